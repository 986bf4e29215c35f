"""Lesson 1 on a page: one matrix product, primitive by primitive."""

from __future__ import annotations

import difflib

import streamlit as st

from app.chart import chart
from app.lessons.ask import made_by, questions
from tcl.lessons import loops
from tcl.views.lessons import base_of, loop_nest, steps_figure
from tcl.views.palette import latency_text

STEP, SEEN = "loops-step", "loops-seen"


@st.cache_data(show_spinner=False)
def _steps(stamp: int) -> loops.Steps:
    return loops.load()


def show() -> None:
    steps = _steps((loops.DATA / "matmul_steps.json").stat().st_mtime_ns)
    last = len(steps.rows) - 1
    seen = st.session_state.setdefault(SEEN, 0)
    step = min(st.session_state.setdefault(STEP, 0), seen)
    st.write(
        f"A tensor compiler starts from plain loops and rewrites them with *schedule primitives*: split, reorder, vectorize, … Each keeps "
        f"the result and changes the speed. Here is `{steps.subject}`, one primitive at a time, measured after each on `{steps.platform}`."
    )
    left, right = st.columns(2, gap="large")
    with left:
        chart(
            steps_figure(steps.rows, seen + 1), key="loops-chart", height=430, on_click=_clicked,
            alt=f"Latency after each of {seen + 1} steps; now {latency_text(steps.rows['latency_s'].iloc[seen])}",
        )  # fmt: skip
        with st.container(horizontal=True, gap="small"):
            st.button("Back", icon=":material/arrow_back:", disabled=step == 0, on_click=_go, args=(step - 1,))
            if step < seen:
                st.button("On", icon=":material/arrow_forward:", on_click=_go, args=(step + 1,))
            if seen < last:
                st.button("Show all", icon=":material/fast_forward:", on_click=_go, args=(last,))
        st.caption("Click a bar to see its loops. Orange: the right primitive on the wrong loop; the next step takes the other one.")
    with right:
        if seen < last:
            _next(steps, seen + 1)
        _loops(steps, step)
    questions(loops.questions(steps), "loops")
    made_by(loops.COMMAND)
    about = steps.machine
    beside = f" · other work was noticed beside {steps.disturbed:.0%} of the turns" if steps.disturbed else ""
    st.caption(f"{about['processor']}, {about['cores']} cores · {about['date']} · TVM {about['versions'].get('apache-tvm', '')}{beside}")


def _next(steps: loops.Steps, number: int) -> None:
    """What comes next: guess, then measure."""
    row = steps.rows.iloc[number]
    asked = loops.guess(steps, number)
    with st.container(border=True):
        st.markdown(f"**Next: {row['name']}.** {row['text']}")
        st.segmented_control("Your guess", asked.options, key=f"loops-guess-{number}")
        st.button(
            "Show what was measured", type="primary", icon=":material/timer:", on_click=_reveal, args=(number, asked.right, asked.why)
        )


def _loops(steps: loops.Steps, step: int) -> None:
    row = steps.rows.iloc[step]
    base = base_of(steps.rows["wrong"].tolist(), step)
    st.markdown(f"**{step}. {row['name']}**: {latency_text(row['latency_s'])}, {loops.speed(steps, step):.1f} GFLOP/s")
    st.caption(row["text"])
    said = st.session_state.get("loops-said")
    if said and said[0] == step:
        (st.success if said[1] else st.info)(said[2], icon=":material/check:" if said[1] else ":material/lightbulb:")
    view = st.segmented_control(
        "View", ["Changes", "Loops", "TVMScript"], default="Changes", key="loops-view", label_visibility="collapsed"
    )
    nest = loop_nest(row["script"])
    if view == "TVMScript":
        st.code(row["script"], language="python", height=420)
    elif view == "Loops" or step == 0:
        st.code(nest, language="python")
    else:
        before = loop_nest(steps.rows["script"].iloc[base]).splitlines()
        lines = [line for line in difflib.ndiff(before, nest.splitlines()) if not line.startswith("?")]
        st.code("\n".join(lines) if lines else nest, language="diff")
        st.caption(f"Against step {base}, {steps.rows['name'].iloc[base]}: − gone, + new.")


def _reveal(number: int, right: str, why: str) -> None:
    guess = st.session_state.get(f"loops-guess-{number}")
    st.session_state[SEEN] = st.session_state[STEP] = number
    words = why if guess is None else f"Yes. {why}" if guess == right else f"You said {guess}; it is {right}. {why}"
    st.session_state["loops-said"] = (number, guess == right, words)


def _go(step: int) -> None:
    st.session_state[STEP] = step
    st.session_state[SEEN] = max(st.session_state[SEEN], step)


def _clicked() -> None:
    at = st.session_state["loops-chart"].clicked
    if at is not None and int(at) <= st.session_state[SEEN]:
        st.session_state[STEP] = int(at)

"""Lesson 2 on a page: pick a tenth by clicking, then see what RDU picks, and what either selection tells."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from app.chart import chart
from app.lessons.ask import made_by, questions
from tcl.lessons import tenth
from tcl.views.lessons import picks_figure
from tcl.views.palette import latency_text
from tcl.views.sampling import METRICS, curves_figure

MINE, SHOWN = "tenth-mine", "tenth-shown"


@st.cache_resource(show_spinner="Reading the task's programs…")
def _task() -> tuple[tenth.OneTask, pd.DataFrame, np.ndarray]:
    one = tenth.load()
    return one, tenth.draws(one), tenth.picked_by_rdu(one)


@st.cache_data(show_spinner=False)
def _curves(stamp: int) -> tuple[pd.DataFrame, dict]:
    return tenth.curves()


def show() -> None:
    one, chance, rdu = _task()
    mine = st.session_state.setdefault(MINE, [])
    shown = bool(st.session_state.get(SHOWN))
    st.write(
        f"Every dot is one program of *{one.name}*: the same computation, another schedule; near dots are alike. Measuring all "
        f"{len(one.frame)} costs time. **Click the {one.budget} that you would measure**, so that they tell most about the others."
    )
    left, right = st.columns([3, 2], gap="large")
    with left:
        picks = {"yours": np.array(mine, dtype=np.int64)} | ({"RDU's": rdu} if shown else {})
        chart(
            picks_figure(one.frame, picks, latencies=shown), key="tenth-map", height=440, on_click=_clicked,
            alt=f"Map of {len(one.frame)} programs; {len(mine)} of {one.budget} picked",
        )  # fmt: skip
    with right:
        st.markdown(f"**{len(mine)} of {one.budget} picked**" + (": click one again to take it back." if mine else "."))
        with st.container(horizontal=True, gap="small"):
            st.button("Start again", icon=":material/restart_alt:", on_click=_clear, disabled=not (mine or shown))
            st.button("Draw mine by chance", icon=":material/casino:", on_click=_draw, args=(one,), disabled=shown)
        st.button("Show RDU's picks and the latencies", type="primary", icon=":material/visibility:", on_click=_reveal, disabled=shown)
        if shown:
            _compare(one, {"yours": np.array(mine, dtype=np.int64), "RDU": rdu}, chance)
        else:
            st.caption(
                "RDU looks at schedules only, as you do. It prefers programs that are typical of their surroundings (R) and far from those "
                "already picked (D); once a model has been trained, also those that may be fast for all it knows (U)."
            )
    if shown:
        _learning()
        questions(tenth.questions(one, chance, _curves(_stamp())[0]), "tenth")
    made_by(tenth.COMMAND, ("map", "assets/builtin", "--scope", _scope(one)))


def _compare(one: tenth.OneTask, picks: dict[str, np.ndarray], chance: pd.DataFrame) -> None:
    frame = tenth.table(one, picks, chance)
    frame["best_s"] = [latency_text(v) for v in frame["best_s"]]
    st.dataframe(
        frame.rename(columns={"distance": "gaps", "spearman": "rank agreement", "best_s": "best found"}), alt="Selections compared",
        column_config={
            "gaps": st.column_config.NumberColumn(format="%.2f", help="Mean distance to a picked program, as a share of the task's spread"),
            "rank agreement": st.column_config.NumberColumn(
                format="%.2f", help="Spearman's rho when every other program is taken to be as fast as the nearest picked one"
            ),
            "best found": st.column_config.TextColumn(help="The fastest picked program"),
            "regret": st.column_config.NumberColumn(format="%.2f", help="1 - best of all / best of the picked; 0: the best was picked"),
        },
    )  # fmt: skip
    st.caption(f"By chance: the median of {len(chance)} random selections. One selection of so few programs is partly luck.")


def _learning() -> None:
    """What a model learns from a tenth."""
    curve, machine = _curves(_stamp())
    st.subheader("And a model that learns from a tenth?", anchor=False)
    st.write(
        "A model does better than the nearest neighbour: it learns from all tasks at once. The same model, trained on what each sampler "
        "picked of the training tasks, ranks programs of tasks that it has never seen:"
    )
    left, right = st.columns(2, gap="large")
    for column, metric in ((left, "top1_mean"), (right, "pairwise")):
        with column:
            alt = f"{METRICS[metric]} against the share of programs measured"
            chart(curves_figure(curve, metric), key=f"tenth-{metric}", height=300, alt=alt)
    st.caption(f"xgb on {tenth.PLATFORM}, 3 seeds, bars: spread over seeds · {machine['processor']} · {machine['date']}")


def _stamp() -> int:
    return (tenth.DATA / "tenth.json").stat().st_mtime_ns


def _scope(one: tenth.OneTask) -> str:
    from tcl.features.map import task_scope

    return task_scope(one.task)


def _clicked() -> None:
    at = st.session_state["tenth-map"].clicked
    mine = st.session_state[MINE]
    if at is None or st.session_state.get(SHOWN):
        return
    row = int(at)
    if row in mine:
        mine.remove(row)
    elif len(mine) < _task()[0].budget:
        mine.append(row)
    else:
        st.toast(f"{len(mine)} are picked already: click one of them to take it back.", icon=":material/info:")


def _draw(one: tenth.OneTask) -> None:
    turn = st.session_state["tenth-turn"] = st.session_state.get("tenth-turn", 0) + 1
    st.session_state[MINE] = [int(row) for row in tenth.picked_by_chance(one, turn)]


def _clear() -> None:
    st.session_state[MINE] = []
    st.session_state[SHOWN] = False


def _reveal() -> None:
    st.session_state[SHOWN] = True

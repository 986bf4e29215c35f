"""Distill: learn platform after platform into one knowledge base, and see what each step did to the earlier ones."""

from __future__ import annotations

import re
from pathlib import Path

import streamlit as st

from app.bench_results import bench_results
from app.distill_view import benchmark, knowledge_base
from app.job_view import head
from app.links import mind_the_address
from app.shared import choose_dataset, reproduce
from tcl.jobs.store import ALIVE, DONE, ENDED, Job, all_jobs, submit
from tcl.programs import overview
from tcl.programs.dataset import Dataset
from tcl.views import continual
from tcl.workspace import inside, workspace

NEW = "a new knowledge base"
SAMPLERS = ("rdu", "random", "kmeans", "kcenter")
PROTECTIONS = {
    "freeze": "freeze: shared layers stay as the first platform left them",
    "ewc": "ewc: weights that mattered are held",
    "lwf": "lwf: what was said before must stay",
    "ewc+lwf": "ewc+lwf: both",
    "none": "none: a baseline that forgets",
}


@st.cache_data(max_entries=8, show_spinner="Comparing platforms…")
def agreement_of(path: str, version: str) -> list[dict]:
    """Rank agreement of each pair of platforms: a, b, shared_programs, spearman."""
    frame = overview.shared_summary(Dataset.open(path))
    return frame.rename(columns={"platform_a": "a", "platform_b": "b"}).to_dict("records")


def move(key: str, at: int, by: int) -> None:
    order = list(st.session_state[key])
    order.insert(at + by, order.pop(at))
    st.session_state[key] = order


def build_sequence(dataset: Dataset) -> list[str]:
    """Pick and order platforms."""
    known = dataset.platforms()
    key = f"order-{dataset.path}"
    if key not in st.session_state:
        first = next(iter(known.values())).kind
        st.session_state[key] = [n for n, p in known.items() if p.kind == first]
    order = st.multiselect("Platforms, in the order of learning", list(known), key=key, placeholder="Pick platforms")
    for i, name in enumerate(order):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{i + 1}** {name}")
            st.badge(known[name].kind.upper(), color="gray")
            st.space("stretch")
            st.button("", key=f"up-{name}", icon=":material/arrow_upward:", type="tertiary", disabled=i == 0, help="Learn earlier",
                      on_click=move, args=(key, i, -1))  # fmt: skip
            st.button("", key=f"down-{name}", icon=":material/arrow_downward:", type="tertiary", disabled=i == len(order) - 1,
                      help="Learn later", on_click=move, args=(key, i, 1))  # fmt: skip
    return order


def may_mix(kinds: set[str]) -> bool:
    """Asks before CPU and GPU platforms go into one knowledge base; whether they may."""
    if len(kinds) <= 1:
        return True
    st.warning(
        "What makes a schedule fast on a GPU says little about a CPU: they are kept apart, as in the paper, unless you ask otherwise.",
        title="CPU and GPU platforms together",
        icon=":material/warning:",
    )
    return st.checkbox("Learn them into one knowledge base anyway", key="mixed")


def outlook(dataset: Dataset, order: list[str]) -> None:
    """What the rank agreement on shared programs lets expect, before anything is learned."""
    frame = continual.pairs(order, agreement_of(str(dataset.path), dataset.version), [])
    if frame.empty:
        return
    for sentence in continual.warnings(frame):
        st.warning(sentence, icon=":material/warning:")
    st.caption("Rank agreement on shared programs (rho: Spearman's, mean over tasks)")
    rows = frame.assign(pair=frame["source"] + " → " + frame["target"])[["spearman", "pair", "verdict", "shared_programs"]]
    st.dataframe(
        rows, hide_index=True, height=250 if len(rows) > 6 else "auto", alt="Rank agreement of platform pairs",
        column_config={
            "spearman": st.column_config.NumberColumn("rho", format="%.2f", width=55),
            "pair": st.column_config.TextColumn("source → target"), "verdict": st.column_config.TextColumn("expected"),
            "shared_programs": st.column_config.NumberColumn("shared", format="localized"),
        },
    )  # fmt: skip


def destination() -> Path | None:
    """Into which knowledge base: a new one, or one that is there; None while its name is none."""
    bases = known_bases()
    choice = st.selectbox("Into", [NEW, *bases], key="distill-into", help="One that is there learns the platforms that it does not know")
    if choice != NEW:
        return bases[choice][0]
    free = next(n for i in range(1, 1000) if (n := "knowledge-base" if i == 1 else f"knowledge-base-{i}") not in bases)
    name = st.text_input("Name", free, key=f"name-{free}", help="A folder of the workspace's models").strip()
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,63}", name):
        st.caption("Name it with letters, digits, '.', '_', '+', '-'.")
        return None
    if name in bases:
        st.caption(f"{name} is there already: choose it above to go on with it.")
        return None
    return inside(workspace() / "models", name)


def setup(dataset: Dataset) -> list[str] | None:
    """The form; returns the command line (without `tcl`), or None while something is missing."""
    stats = dataset.stats()
    if not dataset.platforms() or stats["measurements"] <= stats["failures"]:
        word = "Every measurement in this dataset failed" if stats["measurements"] else "This dataset has no measurements"
        st.info(f"{word}: there is nothing to learn from. `tcl collect` or the Data page adds some.", icon=":material/info:")
        return None
    out = destination()
    files = continual.read(out) if out is not None else None
    learned = files.platforms if files else {}
    if learned:
        st.caption(f"It knows {', '.join(learned)}; an earlier platform is never learned again.")
    order = build_sequence(dataset)
    new = [p for p in order if p not in learned]
    kinds = {dataset.platforms()[n].kind for n in new} | {p["kind"] for p in learned.values()}
    allowed = may_mix(kinds)
    if learned and not new:
        st.info("It knows all of these: nothing new to learn.", icon=":material/info:")
    elif len(new) + len(learned) == 1:
        st.info("One platform can be learned; transfer and forgetting need a second.", icon=":material/info:")
    if stats["tasks"] < 5:
        st.warning(
            f"The dataset has {stats['tasks']} task{'s' if stats['tasks'] > 1 else ''}. A part of the tasks is kept for testing and never "
            "trained on; with fewer than five, one side may be empty.",
            icon=":material/warning:",
        )
    outlook(dataset, [*(p for p in learned if p in dataset.platforms()), *new])
    share = st.slider("Share of each platform's programs to learn from", 1, 100, 10, format="%d %%", key="distill-share")
    compare = st.toggle(
        "Compare with learning from scratch", value=True, key="distill-compare",
        help="Also trains each platform's programs alone, to say what transfer gained; up to twice the time.",
    )  # fmt: skip
    with st.expander("Settings", icon=":material/tune:"):
        sampler = st.selectbox("Sampler", SAMPLERS, key="distill-sampler", help="Picks the share, seeing features only")
        per_task = st.number_input(
            "Programs of a task at most (0: all)",
            0,
            100_000,
            60,
            key="distill-per-task",
            help="Bounds the time: consolidating reads all of these, whatever the share",
        )
        epochs = st.number_input("Epochs of learning", 1, 500, 20, key="distill-epochs")
        protect = st.selectbox("Protection of what is known", list(PROTECTIONS), format_func=PROTECTIONS.get, key="distill-protect")
        seed = st.number_input("Seed", 0, 2**31 - 1, 0, key="distill-seed")
    if out is None or not new or not allowed:
        return None
    argv = ["distill", str(dataset.path), "--order", ",".join(new), "--out", str(out), "--fraction", f"{share / 100:g}"]
    argv += ["--sampler", sampler, "--per-task", str(int(per_task)), "--epochs", str(int(epochs)), "--seed", str(int(seed))]
    argv += ["--protect", protect] if protect != "freeze" else []
    return argv + (["--compare"] if compare else []) + (["--mixed"] if len(kinds) > 1 else [])


def start(argv: list[str]) -> None:
    order, out = argv[argv.index("--order") + 1], Path(argv[argv.index("--out") + 1])
    out.parent.mkdir(parents=True, exist_ok=True)
    identity = submit("distill", [*argv, "--json"], f"Distill {order.replace(',', ' → ')} into {out.name}")
    st.query_params["job"] = identity
    st.query_params["kb"] = out.name
    st.toast("Started: see the top of the page.", icon=":material/play_circle:")


def go_on(job: Job) -> None:
    """A button that runs the command of a job again that ended before its last platform: finished steps are kept."""
    argv = job.about.get("argv", [])
    if job.state in ENDED and job.state != DONE and argv:
        st.button("Go on", icon=":material/play_arrow:", key=f"go-on-{job.id}", on_click=start, args=([a for a in argv if a != "--json"],),
                  help="The same command again: it goes on after the last finished step")  # fmt: skip


def out_of(job: Job) -> Path:
    argv = job.about.get("argv", [])
    return Path(argv[argv.index("--out") + 1]) if "--out" in argv[:-1] else Path()


def known_bases() -> dict[str, tuple[Path, Job | None]]:
    """Knowledge bases of the workspace and of jobs, the newest job's first: name -> (folder, its newest job)."""
    found: dict[str, tuple[Path, Job | None]] = {}
    for job in all_jobs():
        if job.kind == "distill" and out_of(job).name:
            found.setdefault(out_of(job).name, (out_of(job), job))
    for card in sorted((workspace() / "models").glob(f"*/{continual.CARD}")):
        found.setdefault(card.parent.name, (card.parent, None))
    return found


def nothing_yet() -> None:
    with st.container(border=True):
        st.subheader("No knowledge base yet", anchor=False)
        st.write(
            "A knowledge base is one small cost model that learns platform after platform. Each platform is first learned by a second "
            "network, the *active column*, from a share of its programs; the knowledge base then learns from the column what it says of "
            "all of them (it is *consolidated*). No data of earlier platforms is read again. Pick platforms on the left, bring them into "
            "order, and press **Start distilling**."
        )
        st.write("Afterwards this page shows what each step did to every earlier platform, operator and task: averages can hide a loss.")


left, right = st.columns([3, 7], gap="large")
with left:
    st.subheader("Distill", anchor=False)
    dataset = choose_dataset()
    command = setup(dataset) if dataset is not None else None
    if dataset is not None:
        st.button(
            "Start distilling", type="primary", icon=":material/play_arrow:", width="stretch", disabled=command is None,
            on_click=start, args=(command,),
        )  # fmt: skip
    if command:
        reproduce(*command)

with right:
    section = st.segmented_control(
        "Show", ["Knowledge base", "Benchmark"], default="Knowledge base", key="distill-section", label_visibility="collapsed"
    )
    bases = known_bases()
    if section == "Benchmark":
        benchmark(bench_results("continual"))
    elif not bases:
        nothing_yet()
    else:
        names = list(bases)
        wanted = mind_the_address("kb", names, "knowledge base")
        shown = wanted if wanted in bases else names[0]
        if len(names) > 1:
            shown = st.selectbox("Knowledge base", names, index=names.index(shown), label_visibility="collapsed")
            if shown != wanted:
                st.query_params["kb"] = shown
        folder, job = bases[shown]

        @st.fragment(run_every=2.0 if job is not None and job.state in ALIVE else None)
        def live() -> None:
            seen = st.session_state.get("distill-seen")
            state = job.state if job is not None else ""
            if job is not None:
                head(job, "distill", lambda: go_on(job))
            knowledge_base(folder, job)
            st.session_state["distill-seen"] = (job.id if job else "", state)
            if job is not None and seen and seen[0] == job.id and seen[1] in ALIVE and state not in ALIVE:
                st.rerun()  # the timer ends with the job

        live()
        if job is not None:
            with st.expander("Log", icon=":material/notes:"):
                st.code(job.log() or "Nothing yet.", language=None, height=220)

"""The app's entry point: what all pages share. `tcl app` starts it through `app/server.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:  # Streamlit puts the script's own folder on the path; pages import `app.…`
    sys.path.insert(0, ROOT)

from app.shared import show_error  # noqa: E402
from tcl.errors import UserError  # noqa: E402

st.set_page_config(page_title="TCL", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")

page = st.navigation(
    [
        st.Page("app_pages/overview.py", title="Overview", icon=":material/home:", default=True, help="Data, jobs, and what to do next."),
        st.Page("app_pages/explore.py", title="Explore", icon=":material/scatter_plot:", help="Programs on a map: look, select, compare."),
        st.Page("app_pages/sample.py", title="Sample", icon=":material/filter_alt:", help="Which programs to measure, and why these."),
        st.Page("app_pages/data.py", title="Data", icon=":material/database:", help="What a dataset holds; import logs."),
        st.Page("app_pages/train.py", title="Train", icon=":material/model_training:", help="Cost models: train, compare, see errors."),
        st.Page("app_pages/distill.py", title="Distill", icon=":material/merge:", help="Learn platform after platform."),
        st.Page("app_pages/tune.py", title="Tune", icon=":material/speed:", help="Tune an operator or a network on this machine."),
        st.Page("app_pages/lessons.py", title="Lessons", icon=":material/school:", help="Five short lessons on real measurements."),
        st.Page("app_pages/jobs.py", title="Jobs", icon=":material/list_alt:", help="All background work: watch, pause, stop, clean up."),
        st.Page("app_pages/replay.py", title="Replay", icon=":material/replay:", help="Recorded jobs, played as if they were live."),
    ],
    position="top",
)

try:
    page.run()
except UserError as error:
    show_error(error)

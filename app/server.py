"""The server that `tcl app` starts: the pages of `app/main.py`, and the chart library from the plotly package beside them."""

from __future__ import annotations

from pathlib import Path

import plotly
import streamlit as st
from starlette.responses import FileResponse
from starlette.routing import Route

LIBRARY_FILE = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


async def chart_library(request: object) -> FileResponse:
    return FileResponse(LIBRARY_FILE, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


app = st.App(Path(__file__).with_name("main.py"), routes=[Route("/tcl-static/plotly.min.js", chart_library)])

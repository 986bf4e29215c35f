"""The server that `tcl app` starts: the pages of `app/main.py`; beside them the plotly package's chart library, and large figures;
and what is shown when a page fails."""

from __future__ import annotations

import sys
from pathlib import Path

import plotly
import streamlit as st
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:  # Streamlit puts this file's own folder on the path
    sys.path.insert(0, ROOT)

from app import figures  # noqa: E402

LIBRARY_FILE = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
KEPT = {"Cache-Control": "max-age=86400"}


async def chart_library(request: Request) -> FileResponse:
    return FileResponse(LIBRARY_FILE, media_type="text/javascript", headers=KEPT)


async def figure(request: Request) -> Response:
    raw = figures.find(request.path_params["name"])
    if raw is None:
        return Response("This figure is no longer kept.", status_code=404)
    return Response(raw, media_type="application/json", headers=KEPT)


def teach(error: Exception) -> bool:
    """`app.problems.teach`, imported once a page has failed: it brings caches, which want a running server."""
    from app import problems

    return problems.teach(error)


app = st.App(
    Path(__file__).with_name("main.py"),
    routes=[Route("/tcl-static/plotly.min.js", chart_library), Route(figures.ADDRESS + "{name}", figure)],
    on_script_error=teach,
)

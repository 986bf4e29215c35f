"""Plotly figures on a page that keep their zoom when they are drawn anew, and show one selection that the page decides.

`st.plotly_chart` makes a new chart whenever its figure changes (its identity is a hash of the figure), so zoom and selection are
lost, live charts flicker, and a selection sends every selected point. This component keeps one chart a key and lets Plotly
change it in place (`Plotly.react` with the figure's `uirevision`). What a person draws (outlines, ranges on axes) is sent; which points
are selected comes back as one bit a row, whatever view it was drawn in, and so do the outlines. Large figures are fetched by
address (`app.figures`). The library is the one in the plotly package, served by `app/server.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app.figures import LARGE, publish

LIBRARY = "/tcl-static/plotly.min.js"

_mount = st.components.v2.component(
    "tcl_chart",
    html='<div class="tcl-chart" role="img"></div>',
    css=".tcl-chart { width: 100%;\n}",
    js=Path(__file__).with_name("chart.js").read_text().replace("__LIBRARY__", LIBRARY),
    isolate_styles=False,
)


def chart(
    figure: go.Figure | str,
    *,
    key: str,
    alt: str,
    height: int = 320,
    selectable: bool = False,
    shapes: Sequence[Mapping[str, Any]] = (),
    mask: np.ndarray | None = None,
    axes: Mapping[str, Sequence[Sequence[float]]] | None = None,
    on_selection: Callable[[], None] | None = None,
    on_axes: Callable[[], None] | None = None,
    on_click: Callable[[], None] | None = None,
) -> Any:
    """Draw `figure` (or its JSON) in place of what this key drew before.

    Args:
        alt: what screen readers say.
        selectable: whether a box or lasso can be drawn; with `layout.selectdirection` "h" only a range across. `on_selection` is called
            then and `st.session_state[key].selected["shapes"]` lists outlines, each {"box": [x0, x1, y0, y1]} or
            {"lasso": [[x, y], …]}; drawn with the shift key they come on top of the earlier ones.
        shapes: the outlines to show.
        mask: bool (n,), which rows are selected, where traces (scattergl, parcoords) have rows as `customdata`: the others are dimmed
            (parallel coordinates: greyed and below). None: nothing is selected, all look alike.
        axes: of parallel coordinates: axis name -> ranges that are brushed. `on_axes` is called when a person changes them, then
            `st.session_state[key].axes` is such a mapping.
        on_click: called when a point with `customdata` is clicked; its first number is `st.session_state[key].clicked`.
    """
    text = figure if isinstance(figure, str) else figure.to_json()
    large = len(text) > LARGE
    data = {
        "figure": "" if large else text, "address": publish(text) if large else "", "alt": alt, "height": height, "selectable": selectable,
        "clickable": on_click is not None,
        "shapes": list(shapes), "axes": dict(axes or {}), "mask": None if mask is None else _bits(mask),
    }  # fmt: skip
    return _mount(
        key=key,
        data=data,
        on_selected_change=on_selection or _nothing,
        on_axes_change=on_axes or _nothing,
        on_clicked_change=on_click or _nothing,
    )


def _bits(mask: np.ndarray) -> str:
    return base64.b64encode(np.packbits(mask, bitorder="little").tobytes()).decode()


def _nothing() -> None:
    pass

"""Plotly figures on a page that keep their zoom and selection when they are drawn anew.

`st.plotly_chart` makes a new chart whenever its figure changes (its identity is a hash of the figure), so zoom and selection are
lost, live charts flicker, and a selection sends every selected point. This component keeps one chart a key and lets Plotly
change it in place (`Plotly.react` with the figure's `uirevision`); a selection sends its outline only, and `tcl.views` finds the
points inside. The library is the one in the plotly package, served by `app/server.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import streamlit as st

LIBRARY = "/tcl-static/plotly.min.js"

_JS = """
function library() {
  if (window.Plotly) return Promise.resolve(window.Plotly)
  window.tclPlotly ??= new Promise((done, failed) => {
    const script = document.createElement("script")
    script.src = "__LIBRARY__"
    script.onload = () => done(window.Plotly)
    script.onerror = () => failed(new Error("the chart library did not load: start the app with `tcl app`"))
    document.head.append(script)
  })
  return window.tclPlotly
}

function outlines(chart) {
  return (chart.layout.selections ?? []).map(s => {
    if (s.type === "rect") return { box: [s.x0, s.x1, s.y0, s.y1] }
    const corners = s.path.slice(1, -1).split("L").map(p => p.split(",").map(Number))
    return { lasso: corners }
  })
}

function selections(shapes) {
  return (shapes ?? []).map(s => s.box
    ? { type: "rect", xref: "x", yref: "y", x0: s.box[0], x1: s.box[1], y0: s.box[2], y1: s.box[3] }
    : { type: "path", xref: "x", yref: "y", path: "M" + s.lasso.map(p => p.join(",")).join("L") + "Z" })
}

export default function (component) {
  const { data, parentElement, setStateValue, setTriggerValue } = component
  const chart = parentElement.querySelector(".tcl-chart")
  const style = getComputedStyle(chart)
  const theme = name => style.getPropertyValue(name).trim()
  const text = theme("--st-text-color")
  const key = data.figure + text
  chart.setAttribute("aria-label", data.alt)
  chart.style.height = data.height + "px"
  chart.send = { setStateValue, setTriggerValue }
  if (chart.drawn === key && chart.cleared === data.cleared) return
  const first = chart.drawn === undefined
  const clear = !first && chart.cleared !== data.cleared
  chart.drawn = key
  chart.cleared = data.cleared
  library().then(async Plotly => {
    const figure = JSON.parse(data.figure)
    const layout = figure.layout
    layout.font = { family: theme("--st-font"), size: 12, color: text, ...layout.font }
    layout.height = data.height
    layout.autosize = true
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: "rgba(128,128,128,.7)", activecolor: theme("--st-primary-color"), orientation: "h" }
    const panel = theme("--st-secondary-background-color")
    layout.hoverlabel = { bgcolor: panel, bordercolor: theme("--st-border-color"), font: { color: text } }
    layout.activeselection = { opacity: 0.1 }
    layout.newselection = { line: { color: text, width: 1, dash: "dot" } }
    if (data.selectable) layout.selections = clear ? [] : first ? selections(data.shapes) : (chart.layout?.selections ?? [])
    const config = {
      displaylogo: false, showSendToCloud: false, plotlyServerURL: "", responsive: true, scrollZoom: Boolean(data.selectable),
      modeBarButtonsToRemove: data.selectable ? ["autoScale2d"] : ["autoScale2d", "select2d", "lasso2d"],
    }
    await Plotly.react(chart, figure.data, layout, config)
    chart.dataset.drawn = String(Number(chart.dataset.drawn ?? 0) + 1)
    if (!first) return
    if (data.selectable) {
      chart.on("plotly_selected", event => {
        if (event) chart.send.setStateValue("selection", { shapes: outlines(chart) })
      })
      chart.on("plotly_deselect", () => chart.send.setStateValue("selection", { shapes: [] }))
    }
    chart.on("plotly_click", event => {
      const point = event.points[0]
      if (point?.customdata !== undefined) chart.send.setTriggerValue("clicked", [].concat(point.customdata)[0])
    })
    new ResizeObserver(() => chart.offsetParent && Plotly.Plots.resize(chart)).observe(chart)
  }).catch(problem => { chart.textContent = `This chart cannot be drawn: ${problem.message}.` })
}
""".replace("__LIBRARY__", LIBRARY)

_mount = st.components.v2.component(
    "tcl_chart", html='<div class="tcl-chart" role="img"></div>', css=".tcl-chart { width: 100%;\n}", js=_JS, isolate_styles=False
)


def chart(
    figure: go.Figure | str,
    *,
    key: str,
    alt: str,
    height: int = 320,
    selectable: bool = False,
    shapes: list[dict[str, Any]] | None = None,
    cleared: int = 0,
    on_selection: Callable[[], None] | None = None,
    on_click: Callable[[], None] | None = None,
) -> Any:
    """Draw `figure` (or its JSON) in place of what this key drew before.

    Args:
        alt: what screen readers say.
        selectable: whether a box or lasso can be drawn. `st.session_state[key].selection["shapes"]` then lists outlines, each
            {"box": [x0, x1, y0, y1]} or {"lasso": [[x, y], …]}; `shapes` are those to begin with.
        cleared: a number to raise when the outlines shall vanish.
        on_click: called when a point with `customdata` is clicked; its first number is `st.session_state[key].clicked`.
    """
    text = figure if isinstance(figure, str) else figure.to_json()
    return _mount(
        key=key,
        data={"figure": text, "alt": alt, "height": height, "selectable": selectable, "shapes": shapes or [], "cleared": cleared},
        on_selection_change=on_selection or _nothing,
        on_clicked_change=on_click or _nothing,
    )


def _nothing() -> None:
    pass

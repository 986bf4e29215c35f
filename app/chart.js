// One Plotly chart: drawn in place, selected by the page. See chart.py.

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

async function textOf(chart, data) {
  if (!data.address) return data.figure
  if (chart.fetched?.address !== data.address) {
    const answer = await fetch(data.address)
    if (!answer.ok) throw new Error("the app no longer keeps this figure; reload the page")
    chart.fetched = { address: data.address, text: await answer.text() }
  }
  return chart.fetched.text
}

const KINDS = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array }

function bytes(text) {
  return Uint8Array.from(atob(text), c => c.charCodeAt(0))
}

// A number array of a figure, which may be base64 text.
function numbers(values) {
  return values?.bdata === undefined ? values : new KINDS[values.dtype](bytes(values.bdata).buffer)
}

// The places in `rows` whose bit is set.
function chosen(bits, rows) {
  const found = []
  for (let i = 0; i < rows.length; i++) if ((bits[rows[i] >> 3] >> (rows[i] & 7)) & 1) found.push(i)
  return found
}

// What is selected, shown in the figure's traces.
function mark(traces, mask, theme) {
  const bits = mask === null || mask === undefined ? null : bytes(mask)
  for (const trace of traces) {
    if (trace.customdata === undefined || !["scattergl", "scatter", "parcoords"].includes(trace.type)) continue
    const rows = (trace.customdata = numbers(trace.customdata))
    if (trace.type !== "parcoords") {
      trace.selectedpoints = bits ? chosen(bits, rows) : null
    } else if (bits) {
      // Lines are drawn in order: the selected ones last, on top.
      const isChosen = Uint8Array.from(rows, r => (bits[r >> 3] >> (r & 7)) & 1)
      const order = [...rows.keys()].sort((a, b) => isChosen[a] - isChosen[b])
      for (const axis of trace.dimensions) {
        const values = numbers(axis.values)
        axis.values = order.map(i => values[i])
      }
      trace.customdata = order.map(i => rows[i])
      trace.line = { color: order.map(i => isChosen[i]), cmin: 0, cmax: 1, colorscale: [[0, "rgba(140,140,140,0.35)"], [1, theme("--st-primary-color")]] }
    }
  }
}

function outlines(chart) {
  return (chart.layout.selections ?? []).map(s => {
    if (s.type === "rect") return { box: [s.x0, s.x1, s.y0, s.y1] }
    return { lasso: s.path.slice(1, -1).split("L").map(p => p.split(",").map(Number)) }
  })
}

function drawn(shapes, across, color) {
  const look = { line: { color, width: 1, dash: "dot" }, fillcolor: "rgba(128,128,128,0.07)", xref: "x", yref: across ? "paper" : "y" }
  return shapes.map(s => s.box
    ? { type: "rect", x0: s.box[0], x1: s.box[1], y0: across ? 0 : s.box[2], y1: across ? 1 : s.box[3], ...look }
    : { type: "path", path: "M" + s.lasso.map(p => p.join(",")).join("L") + "Z", ...look })
}

function brushed(chart) {
  const axes = {}
  for (const axis of chart.data[0].dimensions) {
    const ranges = axis.constraintrange
    if (ranges?.length) axes[axis.name] = Array.isArray(ranges[0]) ? ranges : [ranges]
  }
  return axes
}

async function draw(chart, data, theme, text) {
  const Plotly = await library()
  const figure = JSON.parse(await textOf(chart, data))
  const layout = figure.layout
  const across = layout.selectdirection === "h"
  const axes = figure.data[0]?.type === "parcoords"
  layout.font = { family: theme("--st-font"), size: 12, color: text, ...layout.font }
  layout.height = data.height
  layout.autosize = true
  layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: "rgba(128,128,128,.7)", activecolor: theme("--st-primary-color"), orientation: "h" }
  layout.hoverlabel = { bgcolor: theme("--st-secondary-background-color"), bordercolor: theme("--st-border-color"), font: { color: text } }
  layout.activeselection = { opacity: 0.1 }
  layout.newselection = { line: { color: text, width: 1, dash: "dot" } }
  if (data.selectable) {
    layout.selections = []
    layout.shapes = [...(layout.shapes ?? []), ...drawn(data.shapes, across, text)]
  }
  if (axes) for (const axis of figure.data[0].dimensions) axis.constraintrange = data.axes[axis.name]
  mark(figure.data, data.mask, theme)
  const config = {
    displaylogo: false, showSendToCloud: false, plotlyServerURL: "", responsive: true, scrollZoom: Boolean(data.selectable) && !across,
    modeBarButtonsToRemove: data.selectable ? ["autoScale2d", ...(across ? ["lasso2d"] : [])] : ["autoScale2d", "select2d", "lasso2d"],
  }
  chart.shown = data.shapes
  const first = chart.dataset.drawn === undefined
  await Plotly.react(chart, figure.data, layout, config)
  for (const left of chart.querySelectorAll(".outline-controllers, .select-outline")) left.remove() // now drawn as a shape
  chart.dataset.drawn = String(Number(chart.dataset.drawn ?? 0) + 1)
  if (first) listen(chart, Plotly, data, axes)
}

function listen(chart, Plotly, data, axes) {
  if (data.selectable) {
    chart.addEventListener("mousedown", event => { chart.adding = event.shiftKey }, true)
    chart.on("plotly_selected", event => {
      if (event && outlines(chart).length) chart.send("selected", { shapes: [...(chart.adding ? chart.shown : []), ...outlines(chart)] })
    })
    chart.on("plotly_deselect", () => chart.send("selected", { shapes: [] }))
  }
  if (axes) chart.on("plotly_restyle", () => chart.send("axes", brushed(chart)))
  if (data.clickable) {
    chart.on("plotly_click", event => {
      const point = event.points[0]
      if (point?.customdata !== undefined) chart.send("clicked", [].concat(point.customdata)[0])
    })
  }
  new ResizeObserver(() => chart.offsetParent && Plotly.Plots.resize(chart)).observe(chart)
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component
  const chart = parentElement.querySelector(".tcl-chart")
  const style = getComputedStyle(chart)
  const theme = name => style.getPropertyValue(name).trim()
  const text = theme("--st-text-color")
  const wanted = [data.address || data.figure, text, data.mask, data.height, JSON.stringify([data.shapes, data.axes])].join("\n")
  chart.setAttribute("aria-label", data.alt)
  chart.style.height = data.height + "px"
  chart.send = setTriggerValue
  if (chart.wanted === wanted) return
  chart.wanted = wanted
  chart.last = (chart.last ?? Promise.resolve())
    .then(() => chart.wanted === wanted ? draw(chart, data, theme, text) : undefined)
    .catch(problem => { chart.textContent = `This chart cannot be drawn: ${problem.message}.` })
}

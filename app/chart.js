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

// A large figure's text, fetched once.
function textOf(chart, data) {
  if (!data.address) return data.figure
  if (chart.fetched?.address !== data.address) chart.fetched = { address: data.address, text: fetched(data.address) }
  return chart.fetched.text
}

async function fetched(address) {
  const answer = await fetch(address)
  if (!answer.ok) throw new Error("the app no longer keeps this figure; reload the page")
  return answer.text()
}

const KINDS = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array }

function bytes(text) {
  return Uint8Array.from(atob(text), c => c.charCodeAt(0))
}

// A number array of a figure, which may be base64 text.
function numbers(values) {
  return values?.bdata === undefined ? values : new KINDS[values.dtype](bytes(values.bdata).buffer)
}

const bit = (bits, row) => (bits[row >> 3] >> (row & 7)) & 1

// Parallel coordinates: the selected lines blue and on top (lines are drawn in order), the others grey.
function markLines(trace, bits, theme) {
  const rows = numbers(trace.customdata)
  const order = [...rows.keys()].sort((a, b) => bit(bits, rows[a]) - bit(bits, rows[b]))
  for (const axis of trace.dimensions) {
    const values = numbers(axis.values)
    axis.values = order.map(i => values[i])
  }
  trace.customdata = order.map(i => rows[i])
  const colorscale = [[0, "rgba(140,140,140,0.35)"], [1, theme("--st-primary-color")]]
  trace.line = { color: order.map(i => bit(bits, rows[i])), cmin: 0, cmax: 1, colorscale }
}

function isMap(chart) {
  return Boolean(chart._fullData?.some(trace => trace.type === "scattergl"))
}

// A map: all points dimmed as they are, the selected ones painted over them. Plotly's own `selectedpoints` would compute and upload every
// point again, seconds for 100,000 without a graphics card.
function paint(chart) {
  const layer = chart.querySelector(".gl-container")
  if (!layer || !isMap(chart)) return
  for (const canvas of layer.querySelectorAll(".gl-canvas")) canvas.style.opacity = chart.bits ? 0.22 : 1
  let top = layer.querySelector(".tcl-selected")
  if (!top) {
    top = document.createElement("canvas")
    top.className = "tcl-selected"
    top.style.cssText = "position:absolute;left:0;top:0;pointer-events:none"
    layer.append(top)
  }
  const { width, height, xaxis, yaxis } = chart._fullLayout
  const ratio = window.devicePixelRatio || 1
  top.width = width * ratio
  top.height = height * ratio
  top.style.width = width + "px"
  top.style.height = height + "px"
  if (!chart.bits) {
    delete chart.dataset.selected
    return
  }
  const brush = top.getContext("2d")
  brush.scale(ratio, ratio)
  brush.beginPath()
  brush.rect(xaxis._offset, yaxis._offset, xaxis._length, yaxis._length)
  brush.clip()
  let selected = 0
  for (const trace of chart._fullData) {
    if (trace.type !== "scattergl" || trace.customdata === undefined || trace.visible !== true) continue
    selected += paintTrace(brush, trace, chart.bits, xaxis, yaxis)
  }
  chart.dataset.selected = String(selected)
}

function paintTrace(brush, trace, bits, xaxis, yaxis) {
  const { x, y, customdata: rows } = trace
  const size = trace.marker.size
  const shades = Array.isArray(trace.marker.color) || ArrayBuffer.isView(trace.marker.color) ? palette(trace.marker) : null
  const [x0, x1] = xaxis.range, [y0, y1] = yaxis.range
  const sx = xaxis._length / (x1 - x0), sy = yaxis._length / (y1 - y0)
  let selected = 0, now
  brush.globalAlpha = trace.marker.opacity ?? 1
  for (let i = 0; i < rows.length; i++) {
    if (!bit(bits, rows[i])) continue
    selected++
    const color = shades ? shades(trace.marker.color[i]) : trace.marker.color
    if (color !== now) brush.fillStyle = now = color
    const px = xaxis._offset + (x[i] - x0) * sx, py = yaxis._offset + yaxis._length - (y[i] - y0) * sy
    if (size < 4) {
      brush.fillRect(px - size / 2, py - size / 2, size, size)
    } else {
      brush.beginPath()
      brush.arc(px, py, size / 2, 0, 6.2832)
      brush.fill()
    }
  }
  return selected
}

// A number's colour on a trace's scale, of 64 shades.
function palette({ colorscale, cmin, cmax }) {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
  const ramp = probe.createLinearGradient(0, 0, 64, 0)
  for (const [at, color] of colorscale) ramp.addColorStop(at, color)
  probe.fillStyle = ramp
  probe.fillRect(0, 0, 64, 1)
  const pixels = probe.getImageData(0, 0, 64, 1).data
  const shades = Array.from({ length: 64 }, (_, i) => `rgb(${pixels[4 * i]},${pixels[4 * i + 1]},${pixels[4 * i + 2]})`)
  return value => shades[Math.max(0, Math.min(63, Math.floor((64 * (value - cmin)) / (cmax - cmin))))]
}

// What was just drawn, as Plotly keeps it until the page answers.
function outlines(chart) {
  return (chart.layout.selections ?? []).map(s => s.type === "rect"
    ? { box: [s.x0, s.x1, s.y0, s.y1] }
    : { lasso: s.path.slice(1, -1).split("L").map(p => p.split(",").map(Number)) })
}

function drawn(shapes, across, color) {
  const line = { color, width: 1, dash: "dot" }
  const on = { line, fillcolor: "rgba(128,128,128,0.07)", xref: "x", yref: across ? "paper" : "y" }
  return shapes.map(s => s.box
    ? { type: "rect", x0: s.box[0], x1: s.box[1], y0: across ? 0 : s.box[2], y1: across ? 1 : s.box[3], ...on }
    : { type: "path", path: "M" + s.lasso.map(p => p.join(",")).join("L") + "Z", ...on })
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
  const bits = data.mask === null ? null : bytes(data.mask)
  const same = [data.address || data.figure, text, data.height].join("\n")
  chart.bits = bits
  chart.shown = data.shapes
  if (chart.same === same && isMap(chart)) {
    paint(chart)  // the answer first; outlines take Plotly a moment
    const now = chart.layout.shapes ?? []
    const shapes = [...now.slice(0, chart.own), ...drawn(data.shapes, false, text)]
    if (now.length || shapes.length) await Plotly.relayout(chart, { shapes, selections: [] })
    tidy(chart)
  } else {
    await drawWhole(Plotly, chart, data, theme, text)
    paint(chart)
  }
  chart.same = same
  chart.dataset.drawn = String(Number(chart.dataset.drawn ?? 0) + 1)
}

// Outlines are shapes from now on. And Plotly shall not look for the points inside at every move of the mouse, which takes seconds where
// there are many: the page says which they are.
function tidy(chart) {
  for (const left of chart.querySelectorAll(".outline-controllers, .select-outline")) left.remove()
  for (const trace of chart._fullData) if (trace.type === "scattergl") trace._module.selectPoints = undefined
}

const SOON = 20000

// A large map is there sooner when every k-th point is drawn first, which it says, and the rest after the browser has shown those.
async function drawSome(Plotly, chart, traces, layout, config) {
  const maps = traces.filter(trace => trace.type === "scattergl")
  for (const trace of maps) for (const key of ["x", "y", "customdata"]) trace[key] = numbers(trace[key])
  const all = maps.reduce((n, trace) => n + trace.x.length, 0)
  if (all <= 2 * SOON) return
  const step = Math.ceil(all / SOON)
  const some = traces.map(trace => (maps.includes(trace) ? thinned(trace, step) : trace))
  const shown = some.reduce((n, trace) => n + (trace.x?.length ?? 0), 0)
  const note = `showing ${shown.toLocaleString("en")} of ${all.toLocaleString("en")}, the rest follows …`
  const where = { text: note, xref: "paper", yref: "paper", x: 0, y: 1, xanchor: "left", yanchor: "top", showarrow: false }
  await Plotly.react(chart, some, { ...layout, annotations: [...(layout.annotations ?? []), where] }, config)
  chart.dataset.some = String(shown)
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)))
}

function outermost(values) {
  let low = 0, high = 0
  for (let i = 1; i < values.length; i++) {
    if (values[i] < values[low]) low = i
    if (values[i] > values[high]) high = i
  }
  return [low, high]
}

// Every `step`-th point of a trace, and its outermost ones: the map does not move when the rest comes.
function thinned(trace, step) {
  const n = trace.x.length
  const ends = new Set([trace.x, trace.y].flatMap(outermost))
  const take = values => {
    const read = numbers(values)
    return read?.length === n && typeof read !== "string" ? read.filter((_, i) => i % step === 0 || ends.has(i)) : values
  }
  const marker = { ...trace.marker, color: take(trace.marker?.color), size: take(trace.marker?.size) }
  return { ...trace, x: take(trace.x), y: take(trace.y), customdata: take(trace.customdata), text: take(trace.text), marker }
}

async function drawWhole(Plotly, chart, data, theme, text) {
  const figure = JSON.parse(await textOf(chart, data))
  const layout = figure.layout
  const across = layout.selectdirection === "h"
  const axes = figure.data[0]?.type === "parcoords"
  layout.font = { family: theme("--st-font"), size: 12, color: text, ...layout.font }
  layout.height = data.height
  layout.autosize = true
  layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: "rgba(128,128,128,.7)", activecolor: theme("--st-primary-color"), orientation: "h" }
  layout.hoverlabel = { bgcolor: theme("--st-secondary-background-color"), bordercolor: theme("--st-border-color"), font: { color: text } }
  if (data.selectable) {
    chart.own = layout.shapes?.length ?? 0
    layout.shapes = [...(layout.shapes ?? []), ...drawn(data.shapes, across, text)]
    layout.selections = []
    layout.newselection = { line: { color: text, width: 1, dash: "dot" } }
  }
  if (axes) {
    for (const axis of figure.data[0].dimensions) axis.constraintrange = data.axes[axis.name]
    if (chart.bits) markLines(figure.data[0], chart.bits, theme)
  }
  const config = {
    displaylogo: false, showSendToCloud: false, plotGlPixelRatio: Math.ceil(window.devicePixelRatio || 1), plotlyServerURL: "", responsive: true, scrollZoom: Boolean(data.selectable) && !across,
    modeBarButtonsToRemove: ["autoScale2d", ...(data.selectable ? [] : ["select2d"]), ...(data.selectable && !across ? [] : ["lasso2d"])],
  }
  const first = chart.dataset.drawn === undefined
  if (first) await drawSome(Plotly, chart, figure.data, layout, config)
  await Plotly.react(chart, figure.data, layout, config)
  tidy(chart)
  if (first) listen(chart, Plotly, data, axes)
}

// Charts below the visible part of the page wait until they come near: the first ones are drawn sooner.
async function near(chart) {
  const { top, bottom } = chart.getBoundingClientRect()
  if (chart.dataset.drawn && bottom > 0 && top < innerHeight) return
  return new Promise(done => {
    const watch = new IntersectionObserver(entries => {
      if (entries.some(e => e.isIntersecting)) {
        watch.disconnect()
        done()
      }
    }, { rootMargin: "120px" })
    watch.observe(chart)
  })
}

// A page's first chart is its main one: it is drawn at once, and the browser shows it before the others begin.
async function turn() {
  const main = document.querySelector(".tcl-chart")
  await Promise.race([main.work, new Promise(done => setTimeout(done, 3000))])
  await new Promise(done => requestIdleCallback(done, { timeout: 1000 }))
}

// One drawing at a time, always of what is wanted by then: where a page changes faster than it can be drawn, some states are left out,
// and something is drawn all the same.
async function keepDrawing(chart) {
  let done
  while (done !== chart.latest.wanted) {
    if (chart !== document.querySelector(".tcl-chart")) await near(chart).then(turn)
    const { data, theme, text, wanted } = chart.latest
    done = wanted
    try {
      await draw(chart, data, theme, text)
    } catch (problem) {
      chart.textContent = `This chart cannot be drawn: ${problem.message}.`
    }
  }
  chart.work = undefined
}

function listen(chart, Plotly, data, axes) {
  if (data.selectable) {
    chart.addEventListener("mousedown", event => { chart.adding = event.shiftKey }, true)
    chart.on("plotly_selected", event => {
      const fresh = outlines(chart)
      if (event && fresh.length) chart.send("selected", { shapes: [...(chart.adding ? chart.shown : []), ...fresh] })
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
  for (const event of ["plotly_relayouting", "plotly_afterplot"]) chart.on(event, () => paint(chart))
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
  if (chart.latest?.wanted === wanted) return
  Promise.resolve(textOf(chart, data)).catch(() => {})  // on its way while the library loads; a failure is told by `draw`
  chart.latest = { data, theme, text, wanted }
  chart.work ??= keepDrawing(chart)
}

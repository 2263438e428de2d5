// Charts: plotly is unpacked from the page, drawn in the page's colours, read under the pointer and in a line below.
// Only these buttons: plotly has others that would send a chart to its makers.
const CONFIG = {
  responsive: true, displaylogo: false, displayModeBar: "hover",
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
};
const dark = matchMedia("(prefers-color-scheme: dark)");

async function unpack() {
  const packed = document.getElementById("plotly");
  if (!packed || typeof DecompressionStream === "undefined") return null;
  const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = make("script");
  script.textContent = await new Response(stream).text();
  packed.remove();
  document.head.append(script);
  return window.Plotly ?? null;
}

// A chart with the colours that the page has now in place of their names.
function coloured(value, colours = getComputedStyle(document.documentElement)) {
  if (typeof value === "string") {
    const name = /^var\((--\w+)\)$/.exec(value);
    return name ? colours.getPropertyValue(name[1]).trim() : value;
  }
  if (Array.isArray(value)) return value.map((one) => coloured(one, colours));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, coloured(one, colours)]));
}

// What plotly would write over a point, as text.
function textOf(point) {
  const at = [].concat(point.pointNumber ?? point.pointIndex);
  const text = at.reduce((texts, index) => texts?.[index], point.data.hovertext);
  return (text ?? "").replaceAll("<br>", "; ").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

// Draw {data, layout} into an element and keep it in the page's colours; `said` is the line that is read.
class Chart {
  constructor(Plotly, area, said) {
    Object.assign(this, { Plotly, area, said, given: null });
    dark.addEventListener("change", () => this.given && this.show(this.given));
  }

  async show(given) {
    const first = this.given === null;
    this.given = given;
    const { data, layout } = coloured(given);
    await this.Plotly.react(this.area, data, layout, CONFIG);
    if (!first) return;
    const say = ({ points }) => { this.said.textContent = textOf(points[0]); };
    this.area.on("plotly_hover", say);
    this.area.on("plotly_click", say);
  }
}

function readout() {
  return make("p", { class: "readout", "aria-live": "polite" }, "Point at a value to read it.");
}

// A box a group of traces, to show it or not; a legend that keys reach.
function legendOf(given, redraw) {
  const groups = new Map();
  for (const trace of given.data) {
    if (trace.legendgroup && (trace.line?.width > 1 || !groups.has(trace.legendgroup))) groups.set(trace.legendgroup, trace);
  }
  if (groups.size < 2) return null;
  const boxes = [];
  const legend = make("fieldset", { class: "legend" }, make("legend", {}, "Shown"));
  for (const [group, trace] of groups) {
    const box = make("input", { type: "checkbox", checked: true, change: () => apply() });
    boxes.push([group, box]);
    const text = make("span");
    text.textContent = trace.name.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
    legend.append(make("label", {}, box, swatchOf(trace), text));
  }
  const apply = () => {
    const on = new Map(boxes.map(([group, box]) => [group, box.checked]));
    for (const trace of given.data) if (on.has(trace.legendgroup)) trace.visible = on.get(trace.legendgroup);
    redraw();
  };
  const all = (checked) => () => { boxes.forEach(([, box]) => { box.checked = checked; }); apply(); };
  legend.append(make("button", { type: "button", click: all(true) }, "all"), make("button", { type: "button", click: all(false) }, "none"));
  return legend;
}

function swatchOf(trace) {
  const lines = (trace.mode ?? "").includes("lines");
  const made = make("span", { class: lines ? "swatch line" : "swatch dot", "aria-hidden": "true" });
  const colour = lines ? trace.line?.color : trace.marker?.color;
  if (lines) made.style.borderTop = `3px ${trace.line?.dash === "dash" ? "dashed" : "solid"} ${colour}`;
  else made.style.background = colour;
  return made;
}

// A box for the words beside their dots, where a chart has any.
function wordsOf(given, redraw) {
  const named = given.data.filter((trace) => trace.text);
  if (!named.length) return null;
  const change = (event) => {
    for (const trace of named) trace.mode = event.target.checked ? "markers+text" : "markers";
    redraw();
  };
  return make("label", { class: "words" }, make("input", { type: "checkbox", change }), make("span", {}, "words beside their dots"));
}

function startChart(Plotly, holder) {
  const given = json(holder);
  const area = make("div", { class: "area" });
  const said = readout();
  const chart = new Chart(Plotly, area, said);
  const redraw = () => chart.show(given);
  const note = given.layout.meta?.note;
  const controls = [note ? make("p", { class: "caption" }, note) : null, legendOf(given, redraw), wordsOf(given, redraw)].filter((one) => one);
  holder.append(...controls, area, said);
  holder.hidden = false;
  holder.closest("figure").classList.add("live");
  return redraw();
}

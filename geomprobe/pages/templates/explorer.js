// The map of heads: a quantity and class to choose, layers and a head to keep, a value to read by pointer or arrow keys.
function startExplorer(Plotly, holder) {
  const content = json(holder);
  const full = new Set(content.full);
  const at = { row: null, column: null };
  let shown = null;

  const quantity = choice(content.quantities.map(({ title }, index) => [index, title]), () => { offer(); draw(); });
  const classes = choice([], draw);
  const classField = labelled("class", classes);
  const from = whole(0, 0, draw);
  const to = whole(0, 0, draw);
  const head = whole(0, 0, draw);
  quantity.dataset.part = "quantity";
  classes.dataset.part = "class";
  from.dataset.part = "from";
  to.dataset.part = "to";
  head.dataset.part = "head";
  const about = make("p", { class: "caption" });
  const area = make("div", {
    class: "area", tabindex: 0, role: "application", keydown: move,
    "aria-label": `${holder.dataset.title}: a map of layers by heads. Arrow keys move from head to head.`,
  });
  const said = readout();
  said.textContent = "Point at a head to read it, or move from head to head with the arrow keys.";
  const summary = make("summary", {}, "Data");
  const details = make("details", { class: "data", toggle: fill }, summary);
  const bar = make("div", { class: "filters", role: "group", "aria-label": "What the map shows" },
    labelled("quantity", quantity), classField, labelled("layers from", from), labelled("to", to), labelled("head", head));
  const chart = new Chart(Plotly, area, said);

  // Class and limits of the chosen quantity; a class that was chosen stays where there is one of that name.
  function offer() {
    const one = content.quantities[quantity.value];
    const before = classes.selectedOptions[0]?.text;
    classes.replaceChildren(...one.classes.map(({ name }, index) => make("option", { value: index, selected: name === before }, name)));
    classField.hidden = one.classes.length === 1 && !one.classes[0].name;
    for (const field of [from, to]) [field.min, field.max] = [one.layers[0], one.layers.at(-1)];
    [head.min, head.max] = [one.heads[0], one.heads.at(-1)];
    if (limit(head, one.heads[0]) > one.heads.at(-1)) head.value = "";
  }

  // The chosen map: the rows and columns that are kept, what is in their cells, and what is said of each.
  function chosen() {
    const one = content.quantities[quantity.value];
    const own = one.classes[classes.value || 0];
    const kept = (list, keeps) => [...list.keys()].filter((index) => keeps(list[index]));
    const rows = kept(one.layers, (layer) => layer >= limit(from, -Infinity) && layer <= limit(to, Infinity));
    const columns = kept(one.heads, (number) => number === limit(head, number));
    const cells = rows.map((row) => columns.map((column) => {
      const n = typeof own.n === "number" ? own.n : own.n[row][column];
      return { layer: one.layers[row], head: one.heads[column], value: own.values[row][column], n };
    }));
    return { one, own, cells, columns: columns.map((column) => one.heads[column]) };
  }

  function saidOf({ layer, head, value, n }) {
    if (value === null) return `layer ${layer}, head ${head}: no value`;
    const [noun, nouns] = shown.one.of;
    const where = `layer ${layer}${full.has(layer) ? " (full attention)" : ""}, head ${head}`;
    return `${where}: ${short(value)} (n = ${grouped.format(n)} ${n === 1 ? noun : nouns})`;
  }

  function draw() {
    shown = chosen();
    const { one, own, cells, columns } = shown;
    const layout = structuredClone(content.chart.layout);
    const logs = one.look === "log";
    const z = cells.map((row) => row.map(({ value }) => (value === null || !logs ? value : value > 0 ? Math.log10(value) : null)));
    const trace = {
      ...content.chart.data[0],
      x: columns.map(String), y: cells.map((row) => String(row[0]?.layer)), z,
      hovertext: cells.map((row) => row.map(saidOf)),
      colorscale: content.scales[one.look],
      colorbar: { ...content.chart.data[0].colorbar, title: { text: one.name, side: "right" }, ...(logs ? factors(z) : {}) },
    };
    if (one.look !== "amount") {
      const reach = Math.max(1e-9, ...z.flat().filter((value) => value !== null).map(Math.abs));
      [trace.zmin, trace.zmax] = [-reach, reach];
    } else if (z.flat().every((value) => value === null || value >= 0)) trace.zmin = 0;
    layout.height = Math.min(900, Math.max(260, 110 + 18 * cells.length));
    layout.xaxis.title.text = one.head;
    at.row = at.column = null;
    about.textContent = `${one.title}${own.name ? `, ${own.name}` : ""}. ${one.said} A cell a ${one.head}.`;
    summary.textContent = `Data (${grouped.format(cells.length * columns.length)} rows)`;
    delete details.dataset.made;
    fill();
    return chart.show({ data: [trace], layout });
  }

  // Plain factors at the ticks of a log scale.
  function factors(z) {
    const reach = Math.max(0.2, ...z.flat().filter((value) => value !== null).map(Math.abs));
    const steps = reach > 2 ? [0.0001, 0.001, 0.01, 0.1, 1, 10, 100, 1000, 10000] : [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100];
    const ticks = steps.filter((step) => Math.abs(Math.log10(step)) <= reach);
    return { tickvals: ticks.map(Math.log10), ticktext: ticks.map(String) };
  }

  function move(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step || !shown.cells.length || !shown.columns.length) return;
    event.preventDefault();
    const within = (value, size) => Math.min(size - 1, Math.max(0, value));
    [at.row, at.column] = at.row === null
      ? [0, 0]
      : [within(at.row + step[0], shown.cells.length), within(at.column + step[1], shown.columns.length)];
    said.textContent = saidOf(shown.cells[at.row][at.column]);
    mark();
  }

  // A frame around the head that is read.
  function mark() {
    const frame = at.row === null ? [] : [{
      type: "rect", x0: at.column - 0.5, x1: at.column + 0.5, y0: at.row - 0.5, y1: at.row + 0.5,
      line: { color: coloured("var(--ink)"), width: 3 },
    }];
    Plotly.relayout(area, { shapes: frame });
  }

  function fill() {
    if (!details.open || details.dataset.made) return;
    details.dataset.made = "yes";
    details.replaceChildren(summary);
    const { one, own, cells } = shown;
    const every = cells.flat();
    const columns = ["layer", "head"].map((name) => ({ name, values: every.map((cell) => cell[name]) }));
    if (own.name) columns.push({ name: "token_class", labels: [own.name], values: every.map(() => 0) });
    columns.push({ name: one.name, values: every.map(({ value }) => value) }, { name: "n", values: every.map(({ n }) => n) });
    const file = own.name ? `heads-${one.name}-${own.name}` : `heads-${one.name}`;
    showRows(details, { rows: every.length, columns }, file, one.title);
  }

  holder.append(bar, about, area, said, details);
  holder.hidden = false;
  offer();
  return draw();
}

// The rows behind a figure: a table made when it is opened, sorted by any column, filtered, saved as CSV.
const ROWS_AT_ONCE = 200;
const MOST_CHOICES = 40;
const collator = new Intl.Collator("en", { numeric: true });

function columnsOf(source) {
  return source.columns.map(({ name, values, labels }) => ({
    name,
    labels,
    values: labels ? values.map((code) => (code < 0 ? null : labels[code])) : values,
  }));
}

// Missing values come last either way.
function compare(one, other, sign) {
  if (one === null || other === null) return (one === null) - (other === null);
  return sign * (typeof one === "number" ? one - other : collator.compare(one, other));
}

function csvOf(columns, order) {
  const cell = (value) => {
    const text = value === null ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = order.map((row) => columns.map((column) => cell(column.values[row])).join(","));
  return [columns.map((column) => cell(column.name)).join(","), ...lines, ""].join("\r\n");
}

function save(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// Fields that leave out rows, and what they leave: a test of a row's index.
function filtersOf(columns, changed) {
  const bar = make("div", { class: "filters", role: "group", "aria-label": "Filters" });
  const tests = [];
  const find = make("input", { type: "search", input: changed });
  for (const { name, values, labels } of columns) {
    if (labels && labels.length > 1 && labels.length <= MOST_CHOICES) {
      const field = choice([["", "all"], ...labels.map((label) => [label, label])], changed);
      field.dataset.column = name;
      bar.append(labelled(name, field));
      tests.push((row) => field.value === "" || values[row] === field.value);
    } else if (name === "layer") {
      const [low, high] = ends(values);
      const [from, to] = [whole(low, high, changed), whole(low, high, changed)];
      from.dataset.column = "layer-from";
      to.dataset.column = "layer-to";
      bar.append(labelled("layer from", from), labelled("to", to));
      tests.push((row) => values[row] >= limit(from, -Infinity) && values[row] <= limit(to, Infinity));
    } else if (name === "head" || name === "q_head") {
      const field = whole(...ends(values), changed);
      field.dataset.column = name;
      bar.append(labelled("head", field));
      tests.push((row) => values[row] === limit(field, values[row]));
    }
  }
  bar.append(labelled("find", find));
  tests.push((row) => {
    const sought = find.value.trim().toLowerCase();
    return !sought || columns.some(({ values }) => values[row] !== null && String(values[row]).toLowerCase().includes(sought));
  });
  return { bar, keeps: (row) => tests.every((test) => test(row)) };
}

function ends(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

// Fill a holder with the table of a source {rows, columns}; `all` is how many rows there are beyond the page.
function showRows(holder, source, file, title, all = source.rows) {
  const columns = columnsOf(source);
  const sorted = { column: null, sign: 1 };
  let most = ROWS_AT_ONCE;
  let order = [];
  const said = make("p", { class: "count", "aria-live": "polite" });
  const more = make("button", { type: "button", click: () => { most = Infinity; draw(); } });
  const body = make("tbody");
  const { bar, keeps } = filtersOf(columns, () => { most = ROWS_AT_ONCE; choose(); });
  const heads = columns.map((column) => {
    const press = () => {
      sorted.sign = sorted.column === column ? -sorted.sign : 1;
      sorted.column = column;
      choose();
    };
    return make("th", { scope: "col", "aria-sort": "none" }, make("button", { type: "button", click: press }, column.name));
  });
  const saving = make("button", { type: "button", class: "save", click: () => save(`${file}.csv`, csvOf(columns, order)) });
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body);
  const region = make("div", { class: "scroll tall", role: "region", "aria-label": `Data: ${title}`, tabindex: 0 }, table);

  function choose() {
    order = [...Array(source.rows).keys()].filter(keeps);
    if (sorted.column) order.sort((a, b) => compare(sorted.column.values[a], sorted.column.values[b], sorted.sign) || a - b);
    columns.forEach((column, index) => {
      const way = sorted.sign > 0 ? "ascending" : "descending";
      heads[index].setAttribute("aria-sort", column === sorted.column ? way : "none");
    });
    draw();
  }

  function draw() {
    body.replaceChildren(...order.slice(0, most).map((row) => make("tr", {}, ...columns.map((column) => cellOf(column, row)))));
    const whole = source.rows < all ? ` the first ${grouped.format(source.rows)} of ${grouped.format(all)}` : ` ${grouped.format(source.rows)}`;
    said.textContent = `${grouped.format(order.length)} of${whole} rows. ${source.rows < all ? "The run's tables hold the rest." : ""}`;
    more.textContent = `Show all ${grouped.format(order.length)}`;
    more.hidden = order.length <= most;
    saving.textContent = `Download CSV (${grouped.format(order.length)} ${order.length === 1 ? "row" : "rows"})`;
  }

  holder.append(bar, make("div", { class: "bar" }, said, saving), region, more);
  choose();
}

function cellOf({ labels, values }, row) {
  const value = values[row];
  const text = value === null ? "–" : String(value).replace("-", labels ? "-" : "−");
  return labels ? make("td", { class: "text" }, make("bdi", {}, text)) : make("td", {}, text);
}

function startRows(details) {
  details.hidden = false;
  details.addEventListener("toggle", () => {
    if (!details.open || details.dataset.made) return;
    details.dataset.made = "yes";
    const { file, title, all } = details.dataset;
    showRows(details, json(details), file, title, Number(all));
  });
}

// Elements out of names, attributes and text; text stays text.
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function labelled(text, control) {
  return make("label", {}, make("span", {}, text), control);
}

function choice(options, change) {
  const made = make("select", { change });
  for (const [value, text] of options) made.append(make("option", { value }, text));
  return made;
}

// A field for a whole number from low to high; empty is no limit.
function whole(low, high, change, value = "") {
  return make("input", { type: "number", min: low, max: high, step: 1, value, inputmode: "numeric", input: change });
}

function json(holder) {
  return JSON.parse(holder.querySelector('script[type="application/json"]').textContent);
}

// The number in a field, or what stands for none.
function limit(field, none) {
  return field.value === "" || Number.isNaN(field.valueAsNumber) ? none : field.valueAsNumber;
}

const grouped = new Intl.NumberFormat("en-US");

// Three significant digits, as everywhere on the page.
function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (size < 1e-3) {
    const [mantissa, exponent] = value.toExponential(1).split("e");
    text = `${mantissa.replace(/\.0$/, "")}×10${raised(Number(exponent))}`;
  } else text = size >= 999.5 ? grouped.format(Math.round(value)) : value.toPrecision(3);
  return text.replace("-", "−");
}

function raised(exponent) {
  const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  return (exponent < 0 ? "⁻" : "") + [...String(Math.abs(exponent))].map((digit) => digits[digit]).join("");
}

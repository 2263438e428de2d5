// What a page does beyond being read: its tables sort, the contents follow, rows unfold, charts take the pictures' place.
function leadingNumber(text) {
  const found = /^[+−-]?[\d,]*\.?\d+(?:×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?/.exec(text.trim());
  if (!found) return null;
  const power = [...(found[1] ?? "")].map((sign) => ("⁰¹²³⁴⁵⁶⁷⁸⁹".includes(sign) ? "⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(sign) : "-")).join("");
  return Number(found[0].replace(/×.*/, "").replaceAll(",", "").replace("−", "-")) * 10 ** Number(power || 0);
}

function startSorting(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((cell, index) => {
    cell.setAttribute("aria-sort", "none");
    const press = () => {
      const sign = cell.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      cell.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const texts = new Map([...body.rows].map((row) => [row, row.cells[index].textContent.trim()]));
      const numeric = [...texts.values()].every((text) => text === "–" || leadingNumber(text) !== null);
      const value = (row) => (texts.get(row) === "–" ? null : numeric ? leadingNumber(texts.get(row)) : texts.get(row));
      body.append(...[...body.rows].sort((one, other) => compare(value(one), value(other), sign)));
    };
    cell.replaceChildren(make("button", { type: "button", click: press }, ...cell.childNodes));
  });
}

// The contents mark the part that is read: the last whose heading has passed the upper third of the window.
function startContents() {
  const links = [...document.querySelectorAll('nav a[href^="#"]')];
  const parts = links.map((link) => [link, document.getElementById(link.hash.slice(1))]).filter(([, part]) => part);
  const mark = () => {
    const passed = parts.filter(([, part]) => part.getBoundingClientRect().top < innerHeight / 3);
    const current = (passed.at(-1) ?? parts[0])?.[0];
    for (const link of links) {
      if (link !== current) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "true");
        const nav = link.closest("nav");
        if (nav.scrollHeight > nav.clientHeight) nav.scrollTop = link.offsetTop - nav.offsetTop - nav.clientHeight / 2;
      }
    }
  };
  const observer = new IntersectionObserver(mark, { rootMargin: "0px 0px -66% 0px", threshold: [0, 1] });
  for (const [, part] of parts) observer.observe(part);
  mark();
}

// Charts are drawn when they come near, so that a long page opens at once.
async function startCharts() {
  const holders = document.querySelectorAll(".chart, .explorer");
  const Plotly = holders.length ? await unpack() : null;
  if (!Plotly) return;
  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      const holder = target.querySelector(".chart, .explorer");
      (holder.matches(".explorer") ? startExplorer : startChart)(Plotly, holder);
    }
  }, { rootMargin: "600px 0px" });
  for (const holder of holders) observer.observe(holder.parentElement);
}

document.documentElement.classList.add("scripted");
document.querySelectorAll("table.sortable").forEach(startSorting);
document.querySelectorAll("details.data").forEach(startRows);
startContents();
startCharts();

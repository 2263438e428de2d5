"""A comparison in a notebook: what it says in words, and the differences over all layers."""

from markupsafe import Markup

from geomprobe.comparison.comparison import Comparison
from geomprobe.comparison.measured import records
from geomprobe.comparison.sides import WHOLE
from geomprobe.figures.side_differences import row_title
from geomprobe.pages.findings import paragraphs
from geomprobe.pages.marking import sentence
from geomprobe.pages.side_findings import amount, between, gap, side_findings

_STYLE = (
    "border: 1px solid rgba(128, 128, 128, .5); border-radius: 4px; padding: .6em 1em; max-width: 62em; "
    "line-height: 1.45"
)


def small_comparison(comparison: Comparison) -> str:
    """A fragment of HTML without any reference to the network; whatever names hold is escaped."""
    told = paragraphs(side_findings(comparison))
    items = Markup("").join(
        Markup("<li><strong>{}.</strong> {}</li>").format(topic, Markup(" ").join(sentence(one.text) for one in found))
        for topic, found in told.items()
    )
    where = ", ".join(str(file) for file in comparison.files) or "nothing yet"
    return str(
        Markup(
            '<div style="{}"><h4>{}</h4><ul>{}</ul>{}<p>Tables: <code>.differences</code>, <code>.values</code>, '
            "<code>.by_depth</code>, <code>.by_rank</code>, <code>.differing</code>. Written: {}.</p></div>"
        ).format(_STYLE, ", ".join(comparison.labels), items, _rows(comparison), where)
    )


def _rows(comparison: Comparison) -> Markup:
    table = comparison.differences
    rows = []
    for row in records(table[table["where"] == WHOLE]):
        unit = row["unit"]
        cells = [
            row_title(row),
            row["b"],
            amount(row["estimate_a"], unit),
            amount(row["estimate_b"], unit),
            gap(row["difference"], unit),
            between(row),
        ]
        rows.append(Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(one) for one in cells)))
    head = ["quantity", "run", comparison.labels[0], "run's", "difference", "95% interval"]
    titles = Markup("").join(Markup("<th>{}</th>").format(one) for one in head)
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(titles, Markup("").join(rows))

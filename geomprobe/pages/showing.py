"""A run in a notebook: a small page of what it is, what it found and how to get the rest."""

from collections.abc import Iterable
from typing import Final

from markupsafe import Markup

from geomprobe import tables
from geomprobe.figures.showing import drawable
from geomprobe.pages.finding import Finding
from geomprobe.pages.findings import findings, paragraphs
from geomprobe.pages.marking import sentence
from geomprobe.pages.page import HTML
from geomprobe.run.reading import Run

MOST: Final = 5  # findings
# What a reader wants to know first: a sentence of each topic, then more of those but the first.
TOPICS: Final = (
    "QK norm",
    "Where attention sinks",
    "Function tokens",
    "Length against angle",
    "Directions",
    "What edits cost",
)
KINDS: Final = {tables.ANALYSIS: "analysis", tables.INTERVENTION: "edits"}

# Colours are the notebook's own, so that light and dark serve alike; only the verdict has one, beside its word.
_STYLE: Final = """
.geomprobe-run { border: 1px solid rgba(128, 128, 128, .5); border-radius: 4px; padding: .6em 1em; max-width: 62em;
  line-height: 1.45; }
.geomprobe-run h4 { margin: 0 0 .2em; font-size: 1.1em; }
.geomprobe-run p, .geomprobe-run ul { margin: .35em 0; }
.geomprobe-run ul { padding-left: 1.3em; }
.geomprobe-run .aside { opacity: .7; }
.geomprobe-run code { background: none; color: inherit; font-size: .92em; overflow-wrap: anywhere; }
.geomprobe-run .passed { color: #009e73; }
.geomprobe-run .failed { color: #d55e00; }
"""
_PAGE: Final = Markup(
    '<div class="geomprobe-run"><style>{style}</style>\n'
    "<h4>{name} <small>on {corpus}, {kind}</small></h4>\n"
    "<p>{scope}</p>\n"
    '<p>Parity: <strong class="{verdict_class}">{verdict}</strong> {parity}</p>\n'
    "<ul>{found}</ul>\n"
    "<p>Tables, as <code>run.tables[…]</code>: {tables}.</p>\n"
    "<p>Figures, as <code>geomprobe.draw(run, …)</code>: {figures}.</p>\n"
    "<p>The whole page: {page}</p></div>"
)


def page_in_brief(run: Run) -> str:
    """A fragment of HTML without any reference to the network; whatever the run's names and tokens hold is escaped.

    Parameters
    ----------
    run : Run
        Of `analyze` or of `intervene`.
    """
    corpus, ok = run.manifest["corpus"], bool(run.manifest["parity"]["ok"])
    told = findings(run)
    check = next(finding for finding in told if finding.topic == "Check")
    return str(
        _PAGE.format(
            style=Markup(_STYLE),
            name=run.name,
            corpus=corpus["name"],
            kind=KINDS[tables.kind(run)],
            scope=_scope(run),
            verdict_class="passed" if ok else "failed",
            verdict="passed." if ok else "FAILED.",
            parity=sentence(check.text),
            found=Markup("").join(Markup("<li>{}</li>").format(sentence(one.text)) for one in chosen(told)),
            tables=_names(run.tables),
            figures=_names(drawable(run)),
            page=_page(run),
        )
    )


def chosen(told: list[Finding]) -> list[Finding]:
    """At most five findings in the order of the page: the first of each topic, then more where there is room."""
    shaped = paragraphs(told)
    firsts = [shaped[topic][0] for topic in TOPICS if topic in shaped]
    others = [finding for topic in TOPICS[1:] for finding in shaped.get(topic, [])[1:]]
    taken = (firsts + others)[:MOST]
    return [finding for finding in told if finding in taken]


def _scope(run: Run) -> str:
    model, corpus = run.manifest["model"], run.manifest["corpus"]
    things = tables.count(corpus["n_windows"], "window" if tables.of_text(run) else "image")
    unit = "tokens" if tables.of_text(run) else "places"
    return (
        f"{model['family']}, {tables.count(model['layers'], 'layer')}, {model['dtype']}; {things} of "
        f"{corpus['window']:,} {unit}, {tables.count(corpus['n_documents'], 'document')}."
    )


def _names(names: Iterable[str]) -> Markup:
    shown = [Markup("<code>{}</code>").format(name) for name in names]
    return Markup(", ").join(shown) if shown else Markup("none")


def _page(run: Run) -> Markup:
    file = run.path / HTML
    if file.is_file():
        return Markup("<code>{}</code>.").format(file)
    return Markup("not drawn yet; <code>geomprobe.report(run)</code> writes <code>{}</code>.").format(file)

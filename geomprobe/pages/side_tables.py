"""The tables of a comparison as text in cells, for a page and for a paper."""

from typing import Any, Final

import pandas as pd

from geomprobe.comparison.comparison import Comparison
from geomprobe.comparison.measured import records
from geomprobe.comparison.sides import WHOLE
from geomprobe.figures.side_differences import row_title, short_title
from geomprobe.ledger.writing import WORDS
from geomprobe.pages.sections import PageTable
from geomprobe.pages.side_findings import amount, between, gap
from geomprobe.pages.wording import NOTHING, coded, signed

MOST_IN_FULL: Final = 4  # runs of which a page lists the thirds of the depth


def side_tables(comparison: Comparison) -> list[PageTable]:
    """The tables that this comparison has values for."""
    made = [differing_table(comparison), difference_table(comparison)]
    if comparison.sides.n > 2:
        made.append(ranking_table(comparison))
    if comparison.ledgers:
        made.append(claims_table(comparison))
    return made


def differing_table(comparison: Comparison) -> PageTable:
    """What else differs, aspect by aspect."""
    labels = list(comparison.labels)
    rows = [
        [str(row["aspect"]), *(str(row[label]) for label in labels), "same" if row["same"] else "differs"]
        for row in records(comparison.differing)
    ]
    caption = (
        f"From the manifests of the runs. {comparison.caveat} What is unknown counts as different. Tokens read and "
        "training data: the first digits of a hash; windows: how many were read, window: of how many tokens."
    )
    return PageTable("differing", "What else differs", caption, ["aspect", *labels, ""], rows)


def difference_table(comparison: Comparison) -> PageTable:
    """Every difference with its interval and effect size."""
    several = comparison.sides.n > 2
    table = comparison.differences
    many = comparison.sides.n > MOST_IN_FULL
    rows = [_difference(row, several=several) for row in records(table[table["where"] == WHOLE] if many else table)]
    a = comparison.labels[0]
    b = "run" if several else comparison.labels[1]
    columns = ["quantity", "where", *(["run"] if several else []), a, "other" if several else b, "difference"]
    columns += ["95% interval", "effect", "n", "beyond"]
    own = (
        ""
        if comparison.sides.same_tokens
        else " The tokenizers differ: what is a mean over tokens is over each model's own, and Λ is over the words "
        "that are one token to every model."
    )
    caption = (
        f"Difference: the other run less {a}; of shares in percentage points. Interval: documents drawn with "
        "replacement, the same on both sides (for Λ types too; for AUC nouns alone), as an expanded percentile "
        "interval; – for fewer than five. Effect: the difference over the standard deviation of the documents' own "
        "differences, or, for Λ, of content types. Beyond: 0 is outside the band that holds all differences of a run "
        "together at 95% (single-step maxT). n: documents, for Λ and AUC types. "
        f"{'The thirds of the depth are in the data.' if many else 'Early, middle, late: thirds of the depth.'}"
        f"{own}"
    )
    return PageTable("differences", "Differences", caption, columns, rows)


def _difference(row: dict[str, Any], *, several: bool) -> list[str]:
    unit = row["unit"]
    return [
        short_title(row),
        row["where"],
        *([coded(row["b"])] if several else []),
        amount(row["estimate_a"], unit),
        amount(row["estimate_b"], unit),
        gap(row["difference"], unit),
        between(row),
        signed(row["effect"]),
        f"{row['n_types'] or row['n_documents']:,}",
        "yes" if row["beyond"] else "no" if row["low"] == row["low"] else NOTHING,
    ]


def ranking_table(comparison: Comparison) -> PageTable:
    """Every quantity over all layers, a column a run: its value and its rank."""
    table = comparison.values
    whole = table[table["where"] == WHOLE]
    rows = []
    for _, group in whole.groupby(["quantity", "gauge", "token_class"], sort=False):
        first = records(group)[0]
        unit = first["unit"]
        own = {row["run"]: row for row in records(group)}
        rows.append(
            [
                row_title(first),
                *(f"{amount(own[label]['estimate'], unit)} ({_rank(own[label])})" for label in comparison.labels),
            ]
        )
    caption = (
        "Each run's value over all layers, and in brackets its rank (1: the largest). A rank is of these runs on this "
        "text; intervals are in the table of differences."
    )
    return PageTable("ranking", "Ranks", caption, ["quantity", *comparison.labels], rows)


def _rank(row: dict[str, Any]) -> str:
    return NOTHING if row["rank"] != row["rank"] else str(int(row["rank"]))


def claims_table(comparison: Comparison) -> PageTable:
    """Verdicts next to each other, with what was seen in each run."""
    first = records(comparison.ledgers[0].claims)
    sentences = [{row["claim"]: row["sentence"] for row in records(ledger.claims)} for ledger in comparison.ledgers]
    rows = []
    for row in first:
        cells = [
            f"{WORDS[ledger.verdict(row['claim'])]}. {said[row['claim']]}"
            for ledger, said in zip(comparison.ledgers, sentences, strict=True)
        ]
        rows.append([row["claim"], row["title"], *cells])
    caption = (
        "Each ledger is decided on its run alone, by rules that were fixed before (docs/claims.md); two verdicts that "
        "differ are no test of a difference. What needs edits is not tested here."
    )
    return PageTable("ledgers", "Which claims hold", caption, ["row", "claim", *comparison.labels], rows, prose=True)


# ------------------------------------------------------------------ for a paper
def latex(comparison: Comparison) -> str:
    """The differences over all layers as a LaTeX table with booktabs rules, intervals and n."""
    rows = []
    for row in records(comparison.differences):
        if row["where"] != WHOLE:
            continue
        unit = row["unit"]
        rows.append(
            {
                "Quantity": _tex(row_title(row)),
                **({"Run": _tex(row["b"])} if comparison.sides.n > 2 else {}),
                _tex(comparison.labels[0]): _tex(amount(row["estimate_a"], unit)),
                _tex(comparison.labels[1] if comparison.sides.n == 2 else "Other"): _tex(
                    amount(row["estimate_b"], unit)
                ),
                "Difference": _tex(gap(row["difference"], unit)),
                r"95\% interval": _tex(between(row)),
                "$n$": str(row["n_types"] or row["n_documents"]),
            }
        )
    table = pd.DataFrame(rows)
    caption = (
        f"Differences from {_tex(comparison.labels[0])} over all layers, on {len(comparison.sides.documents)} common "
        r"documents; shares in per cent, their differences in points. 95\,\% intervals: documents (for $\Lambda$ also "
        r"types, for AUC nouns) drawn with replacement, paired; $n$: documents, or types."
    )
    made = table.style.hide(axis="index").to_latex(
        column_format="l" + "r" * (len(table.columns) - 1), hrules=True, caption=caption, label="tab:geomprobe"
    )
    return f"% needs \\usepackage{{booktabs}} and a Unicode engine or \\usepackage{{textcomp}}\n{made}"


_TEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "Λ": r"$\Lambda$",
    "−": "$-$",
    "–": "--",
    "ε": r"$\varepsilon$",
    "×": r"$\times$",
    "α": r"$\alpha$",
}
_RAISED = dict(zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True))


def _tex(text: str) -> str:
    """Text in which nothing is taken for a command; raised digits become exponents."""
    made, exponent = [], ""
    for character in f"{text}\0":
        if character in _RAISED:
            exponent += _RAISED[character]
            continue
        if exponent:
            made.append(f"$^{{{exponent}}}$")
            exponent = ""
        made.append(_TEX.get(character, character))
    return "".join(made).removesuffix("\0")

"""The sections of the evidence's page, in their order: what was trained, which claims hold, and what is behind it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd

from geomprobe.evidence import tables
from geomprobe.evidence.asides import (
    idle_section,
    larger_section,
    length_section,
    losses_section,
    noise_section,
    sink_page,
    temperature_page,
)
from geomprobe.evidence.blocks import Block, Code, Item, Section
from geomprobe.evidence.decisions import NEEDS
from geomprobe.evidence.tables import Evidence
from geomprobe.evidence.telling import (
    QUANTITIES,
    QUESTIONS,
    confidence,
    grouped,
    interval,
    seeds_told,
    short,
    value,
)
from geomprobe.lab.arms import IN_WORDS
from geomprobe.ledger.thresholds import dated
from geomprobe.ledger.writing import WORDS
from geomprobe.pages.parts import PageFigure
from geomprobe.pages.sections import PageTable
from geomprobe.pages.wording import NOTHING, coded, listing, number
from geomprobe.tables import count

FILES: Final = {"claims": "decisions.csv", "contrasts": "contrasts.csv", "numbers": "numbers.csv"}
FIGURES: Final[Mapping[str, tuple[str, ...]]] = {
    "C1t": ("growth", "radial"),
    "C3": ("spread",),
    "C4": ("clusters",),
    "C5": ("parents",),
    "C6q": ("loss_gaps",),
    "C7b": ("stability",),
    "H9": ("first_mass",),
}
_ELSEWHERE: Final = {"C8": "The losses of these arms are in the picture of C6q."}
_BESIDE: Final[Mapping[str, Callable[[Evidence], list[Block]]]] = {"C8": temperature_page, "H9": sink_page}
_FOR: Final = {
    "nano": "all arms, for most claims",
    "long": "more tokens, for sinks",
    "nobos": "as long, sequences begin without a BOS",
    "stability": "several learning rates",
    "backcopy": "a task with idle rows, for sinks",
    "backcopy2": "the same with two layers",
    "backcopy3": "the same with three layers",
    "micro": "a larger size, to see whether it is the same there",
}


def sections(
    evidence: Evidence, claims: pd.DataFrame, figures: Mapping[str, PageFigure], folder: str, plan: str = ""
) -> list[Section]:
    """All sections.

    Parameters
    ----------
    evidence : Evidence
    claims : DataFrame
        Of `claim_table`.
    figures : mapping
        By name, missing ones too.
    folder : str
        Of the records, as a person in the page's folder would type it.
    plan : str
        The plan beside the page, if there is one.
    """
    contrasts = tables.contrast_table(evidence)
    return [
        _about(evidence),
        _verdicts(evidence, claims, figures),
        Section("seeds", "What so many seeds can tell", seeds_told(evidence)),
        noise_section(evidence),
        *(
            _claim(claim, contrasts[contrasts["claim"] == claim["claim"]], evidence, figures)
            for claim in tables.rows_of(claims)
        ),
        length_section(evidence),
        losses_section(evidence, figures),
        idle_section(evidence, figures),
        larger_section(evidence),
        _limits(evidence),
        _words(contrasts),
        _again(folder, plan),
    ]


# ---------------------------------------------------------------------- what was trained
def _about(evidence: Evidence) -> Section:
    records = evidence.records
    groups = tables.group_table(records)
    largest, longest = (
        tables.rows_of(groups.nlargest(1, column, keep="first"))[0] for column in ("n_parameters", "tokens")
    )
    told = (
        f"This is of small networks, trained as twins ({count(len(records.table), 'run')}): those of one seed begin "
        "with the same weights and see the same tokens in the same order, and differ in one thing, which is what "
        "happens to queries and keys before their product (the arm). So a difference between twins can be put down to "
        "that one thing, at this size. Each was then measured on texts that it was not trained on."
    )
    small = (
        f"They are small: at most {int(largest['n_parameters']):,} parameters (group {largest['group']}) and at most "
        f"{_millions(longest['tokens'])} tokens of training (group {longest['group']}). What is said here is said of "
        "networks of this size, this text and this length of training. Nothing here can tell what larger networks do, "
        "and no difference that is smaller than what seeds make of it."
    )
    odd = tables.not_twins(records)
    pairs = (
        f"{listing(odd)} differ from the others of their group and seed in more than the arm: they are no twins of "
        "theirs, and should be trained again."
        if odd
        else "That twins have recipe and data in common is checked by the fingerprints in their records."
    )
    arms = sorted(set(records.table["arm"]))
    known = tuple(Item(arm, f"{IN_WORDS.get(arm, 'an arm of no table')}.") for arm in arms)
    return Section("about", "What this is", [told, small, _group_page(groups), pairs, "The arms:", known])


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:.3g} million"


def _group_page(groups: pd.DataFrame) -> PageTable:
    rows = [
        [
            str(row["group"]),
            _FOR.get(str(row["group"]), NOTHING),
            f"{row['n_parameters']:,}",
            str(row["layers"]),
            f"{row['tokens']:,.0f}",
            str(row["arms"]),
            str(row["rates"]),
            str(row["n_seeds"]),
            str(row["n_runs"]),
            number(row["hours"]),
        ]
        for row in tables.rows_of(groups)
    ]
    columns = [
        "group",
        "what for",
        "parameters",
        "layers",
        "tokens",
        "arms",
        "learning rates",
        "seeds",
        "runs",
        "hours",
    ]
    caption = "Parameters: without the gains of a QK norm. Hours: of updates, all runs together."
    return PageTable("groups", "What was trained", caption, columns, rows)


# ---------------------------------------------------------------------- which claims hold
def _verdicts(evidence: Evidence, claims: pd.DataFrame, figures: Mapping[str, PageFigure]) -> Section:
    blocks: list[Block] = [
        "The claims are those of the articles behind this project, in a form that can be measured. Each is decided by "
        f"a rule that was fixed before ({dated().isoformat()}), from differences between twins, seed by seed. In "
        "brackets: the interval, at the part of the claim's level at which the number was asked, and how many seeds."
    ]
    for head, rows in grouped(claims).items():
        blocks.append(f"{head}:")
        blocks.append(tuple(Item(f"{row['claim']}: {row['title']}.", row["sentence"]) for row in rows))
    cells = [
        [
            row["claim"],
            row["title"],
            WORDS[row["verdict"]],
            number(row["level"]),
            number(row["p"]),
            str(row["n_seeds"]),
        ]
        for row in tables.rows_of(claims)
    ]
    caption = (
        f"m = {evidence.n_tested} tested claims share a level of 5% (Holm); level: each one's own; p: of the side that "
        "has more for it, by Student's t; seeds: those of the deciding contrast that has the fewest. What is not "
        "tested takes no part. A verdict is about networks of this size."
    )
    columns = ["claim", "in words", "verdict", "level", "p", "seeds"]
    blocks.append(PageTable("decisions", "Verdicts", caption, columns, cells, prose=True))
    return Section("claims", "Which claims hold", [*blocks, figures["forest"]])


# ---------------------------------------------------------------------- a claim
def _claim(
    claim: Mapping[str, Any], contrasts: pd.DataFrame, evidence: Evidence, figures: Mapping[str, PageFigure]
) -> Section:
    name = str(claim["claim"])
    decision = next(one for one in evidence.decisions if one.claim == name)
    word = WORDS[claim["verdict"]]
    blocks: list[Block] = [QUESTIONS[name], (Item(f"{word[0].upper()}{word[1:]}.", claim["sentence"]),)]
    blocks += [figures[each] for each in FIGURES.get(name, ())]
    blocks += [_ELSEWHERE[name]] if name in _ELSEWHERE else []
    shown = contrasts[contrasts["decides"] | (contrasts["n_seeds"] > 0)]
    if len(shown):
        blocks.append(_contrast_page(name, shown))
        blocks.append(_rules(shown))
    blocks += _BESIDE[name](evidence) if name in _BESIDE else []
    if decision.note:
        blocks.append(decision.note)
    return Section(f"claim-{name}", f"{name}: {claim['title']}", [block for block in blocks if block])


def _rules(contrasts: pd.DataFrame) -> tuple[Item, ...]:
    """A line a rule, with the quantities that it is for."""
    quantities: dict[str, list[str]] = {}
    for row in tables.rows_of(contrasts[contrasts["decides"]].drop_duplicates(["quantity", "rule"])):
        quantities.setdefault(str(row["rule"]), []).append(short(str(row["quantity"])))
    return tuple(Item(f"Rule for {listing(names)}.", f"{rule}.") for rule, names in quantities.items())


def _contrast_page(claim: str, contrasts: pd.DataFrame) -> PageTable:
    rows = []
    for row in tables.rows_of(contrasts):
        p = number(row["p_sign_flip"])
        rows.append(
            [
                short(str(row["quantity"])),
                str(row["what"]),
                str(row["n_seeds"]),
                value(row, "estimate"),
                interval(row),
                confidence(row["level"]) if row["low"] == row["low"] else NOTHING,
                p if p == NOTHING else f"{p} (≥ {number(row['p_smallest'])})",
                WORDS[row["verdict"]] if row["decides"] else "shown",
            ]
        )
    columns = ["quantity", "of", "seeds", "mean", "interval", "level", "p, sign flip", "says"]
    caption = (
        "Means over seeds with intervals of Student's t; in brackets the smallest p that so many signs can give. "
        f"Rows that are {coded('shown')} decide nothing; their intervals stand each by itself."
    )
    return PageTable(f"contrasts-{claim}", f"{claim}: what was measured", caption, columns, rows)


# ---------------------------------------------------------------------- at the end
def _limits(evidence: Evidence) -> Section:
    records = evidence.records
    lines = [
        Item("Size.", "Each network is small and trained for a short time; a larger one may differ in kind."),
        Item("Text.", "All networks of a group read one collection of texts in one vocabulary."),
        Item(
            "Seeds.",
            "They change the first weights and the order of the text, and nothing else. Student's t takes their "
            "differences to be normally distributed, which so few cannot show.",
        ),
        Item(
            "Gauge.",
            "Raw lengths and angles are those of one description among many of the same attention; what is said of "
            "keys is asked in the balanced gauge too where it was measured, and other quantities are in the raw one.",
        ),
        Item(
            "Claims.",
            "What the articles say of released models is the matter of `geomprobe claims`; here are only those claims "
            "that twins can decide.".replace("`geomprobe claims`", coded("geomprobe claims")),
        ),
    ]
    short_of = _uneven(evidence)
    if short_of:
        lines.append(Item("Missing.", short_of))
    versions = sorted({int(record.get("version", 0)) for record in records.whole.values()})
    if len(versions) > 1:
        told = f"Records are of versions {listing([str(one) for one in versions])} of what is measured"
        lines.append(Item("Versions.", f"{told}: older ones lack some numbers; the same sweep measures them again."))
    gone = records.table.loc[records.table["diverged"] > 0, "name"] if "diverged" in records.table else pd.Series()
    if len(gone):
        lines.append(Item("Diverged.", f"{listing(sorted(gone))}: these have no final numbers."))
    return Section("limits", "Limits", [tuple(lines)])


def _uneven(evidence: Evidence) -> str:
    """Arms that have fewer seeds than others of their group, and arms that a claim needs and that are not there."""
    records = evidence.records
    said = []
    for group in sorted(set(records.table["group"])):
        n = {arm: len(set(records.seeds(group, arm))) for arm in tables.arms_of(records, group)}
        few = [f"{arm} ({own} of {max(n.values())})" for arm, own in n.items() if own < max(n.values())]
        said += [f"in the group {group}, seeds of {listing(few)}"] if few else []
    for claim, (group, arms) in NEEDS.items():
        absent = [arm for arm in arms if arm not in tables.arms_of(records, group)]
        said += [f"for {claim}, {listing(absent)} in the group {group}"] if absent else []
    return f"{'; '.join(said)}." if said else ""


def _words(contrasts: pd.DataFrame) -> Section:
    used = set(contrasts["quantity"]) | set(tables.OF_NOISE) | set(tables.OF_LARGER) | set(tables.OF_LENGTH)
    lines = tuple(
        Item(f"{few[0].upper()}{few[1:]}", f"({coded(name)}): {said}.")
        for name, (few, said) in QUANTITIES.items()
        if name in used
    )
    return Section("words", "What the quantities are", [lines])


def _again(folder: str, plan: str) -> Section:
    return Section(
        "again",
        "How to make this again",
        [
            "This page, its tables and its pictures, from the records, in this folder:",
            Code(f"geomprobe evidence {folder} --out ."),
            f"The records, from a plan of arms and seeds with {coded('measure: true')} (at its head stands what it "
            f"takes); they come to lie in {coded('SWEEP/records')}:",
            Code(f"geomprobe sweep {plan or 'PLAN'} --out SWEEP"),
            f"The tables behind the page: {listing([coded(file) for file in FILES.values()])}.",
        ],
    )

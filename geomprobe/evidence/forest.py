"""The deciding contrasts of all claims as a picture: seeds, interval and margins, each on a scale of its own."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import Affine2D

from geomprobe.evidence.contrasts import Contrast, Rule
from geomprobe.evidence.drawing import crown
from geomprobe.evidence.tables import Evidence, contrast_table
from geomprobe.evidence.telling import confidence, short, value
from geomprobe.figures.ledger import COLOURS
from geomprobe.figures.style import BLACK, GREY, ORANGE, PALE, SKY
from geomprobe.ledger.writing import WORDS

_STRIP: Final = (0.37, 0.21)  # where the strips begin, and how wide they are
_ROW: Final = 0.49  # inches
_ROOM: Final = 0.1  # of a strip's span, left free at its ends
_NEAR: Final = 0.07  # of a strip's span: bounds that lie nearer share a label
_FOR: Final = SKY
_AGAINST: Final = ORANGE


def rows_of(evidence: Evidence) -> list[tuple[Contrast, dict[str, Any]]]:
    """The deciding contrasts that have seeds, with their rows of the table."""
    every = [one for decision in evidence.decisions for one in decision.contrasts]
    table: list[Any] = contrast_table(evidence).to_dict("records")
    return [(one, row) for one, row in zip(every, table, strict=True) if row["decides"] and one.n]


def size_of(evidence: Evidence) -> tuple[float, float]:
    """Inches: as tall as there are rows."""
    return 10.0, 1.3 + _ROW * len(rows_of(evidence))


def draw_forest(evidence: Evidence, ax: Axes) -> Axes:
    """A row a contrast: claim, quantity, a strip with seeds, interval and margins, the numbers, what it says."""
    ax.set_axis_off()
    ax.set_xlim(0, 1)
    found = rows_of(evidence)
    ax.set_ylim(len(found), 0)
    last = ""
    for place, (contrast, row) in enumerate(found):
        middle = place + 0.5
        if row["claim"] != last:
            ax.axhline(place, color=PALE, linewidth=0.8, zorder=0)
            ax.text(0, middle, row["claim"], fontweight="bold", va="center", parse_math=False)
            last = str(row["claim"])
        what = short(row["quantity"]).replace("balanced gauge", "balanced")  # as the others, and it has room
        ax.text(0.045, middle - 0.19, what, fontsize=9.5, va="center", parse_math=False)
        ax.text(0.045, middle + 0.23, f"{row['what']}, n = {row['n_seeds']}", fontsize=8.5, color=GREY, va="center")
        left, width = _STRIP
        strip = ax.inset_axes((left, len(found) - place - 0.7, width, 0.62), transform=_from_below(ax, len(found)))
        _strip(strip, contrast, row)
        ax.text(left + width + 0.015, middle, _numbers(row), fontsize=9.5, va="center", parse_math=False)
        colour = COLOURS[row["verdict"]]
        ink = GREY if row["verdict"] == "not_tested" else colour
        ax.text(1, middle, WORDS[row["verdict"]], fontsize=9.5, color=ink, va="center", ha="right", fontweight="bold")
    ax.axhline(len(found), color=PALE, linewidth=0.8, zorder=0)
    keys = [
        Patch(facecolor=_FOR, alpha=0.35, label="here it speaks for the claim"),
        Patch(facecolor=_AGAINST, alpha=0.35, hatch="////", edgecolor="white", linewidth=0, label="here against it"),
        Line2D([], [], color=GREY, linewidth=3, label="interval at the claim's level"),
        Line2D([], [], color=BLACK, marker="o", linestyle="none", markersize=3, label="a seed"),
    ]
    crown(ax, "What decides each claim", keys, above=4)
    return ax


def _from_below(ax: Axes, n: int) -> Any:
    """Rows from below: as the axes count them from above, a strip would stand on its head."""
    return Affine2D().scale(1, 1 / n) + ax.transAxes


def _numbers(row: Mapping[str, Any]) -> str:
    if math.isnan(row["low"]):
        return value(row, "estimate")
    return f"{value(row, 'estimate')}  [{value(row, 'low')}, {value(row, 'high')}]  {confidence(row['level'])}"


def _strip(ax: Axes, contrast: Contrast, row: Mapping[str, Any]) -> None:
    rule = contrast.rule
    assert rule is not None
    bounds = sorted(set(_bounds(rule)))
    inside = [row["low"], row["high"], *contrast.values, *bounds, 0.0]
    known = [x for x in inside if math.isfinite(x)]
    low, high = min(known), max(known)
    room = _ROOM * (high - low or 1)
    low, high = low - room, high + room
    _shade(ax, rule, low, high)
    for bound in bounds:
        ax.axvline(bound, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    below = ax.get_xaxis_transform()
    for place, words in _labels(bounds, _NEAR * (high - low)):
        ax.text(place, -0.06, words, fontsize=8, color=GREY, ha="center", va="top", transform=below)
    if 0 not in bounds:
        ax.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    if math.isfinite(row["low"]):
        ax.hlines(0.62, row["low"], row["high"], color=COLOURS[row["verdict"]], linewidth=3, zorder=3)
    ax.plot([row["estimate"]], [0.62], marker="D", markersize=4.5, color=BLACK, zorder=4)
    ax.scatter(contrast.values, np.full(contrast.n, 0.2), s=7, color=BLACK, alpha=0.6, linewidths=0, zorder=4)
    ax.set_xlim(low, high)
    ax.set_ylim(0, 1)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)


def _labels(bounds: list[float], near: float) -> list[tuple[float, str]]:
    """Places and words of the bounds: those that lie near each other are named together."""
    made: list[list[float]] = []
    for bound in bounds:
        if made and bound - made[-1][-1] < near:
            made[-1].append(bound)
        else:
            made.append([bound])
    return [(sum(each) / len(each), _words(each)) for each in made]


def _words(bounds: list[float]) -> str:
    if len(bounds) > 1 and bounds[0] == -bounds[-1]:
        return f"±{bounds[-1]:.3g}"
    return ", ".join(f"{bound:.3g}".replace("-", "−") for bound in bounds)


def _bounds(rule: Rule) -> Iterator[float]:
    """Where the rule's zones begin."""
    yield from (bound for bound in (rule.above, rule.least, rule.below) if math.isfinite(bound))
    for margin in (rule.within, rule.none_within):
        if math.isfinite(margin):
            yield from (margin, -margin)


def _shade(ax: Axes, rule: Rule, low: float, high: float) -> None:
    """The parts of a strip in which an interval, or an estimate that must reach so much, speaks for or against."""
    for_, against = [], []
    if math.isfinite(rule.within):
        for_.append((-rule.within, rule.within))
    if math.isfinite(rule.above):
        least = rule.least if math.isfinite(rule.least) else rule.above
        begin = min(rule.above, least) if rule.turned else max(rule.above, least)
        for_.append((low, begin) if rule.turned else (begin, high))
    if math.isfinite(rule.none_within):
        against.append((-rule.none_within, rule.none_within))
    if math.isfinite(rule.below):
        against.append((rule.below, high) if rule.turned else (low, rule.below))
    for left, right in _joined(for_):
        ax.axvspan(left, right, facecolor=_FOR, alpha=0.35, linewidth=0, zorder=0)
    for left, right in _joined(against):
        ax.axvspan(left, right, facecolor=_AGAINST, alpha=0.35, hatch="////", edgecolor="white", linewidth=0, zorder=0)


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans of which none touches another."""
    made: list[tuple[float, float]] = []
    for left, right in sorted(spans):
        if made and left <= made[-1][1]:
            made[-1] = (made[-1][0], max(right, made[-1][1]))
        else:
            made.append((left, right))
    return made

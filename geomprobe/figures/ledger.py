"""The ledger of claims as a picture."""

import textwrap

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from geomprobe.figures.style import BLACK, GREEN, GREY, PALE, PURPLE, VERMILION
from geomprobe.ledger.ledger import Ledger
from geomprobe.ledger.writing import WORDS

COLOURS = {
    "supported": GREEN,
    "refuted": VERMILION,
    "inconclusive": GREY,
    "not_identified": PURPLE,
    "not_tested": PALE,
}
SIZE = (13.33, 7.5)  # inches: a slide
_LETTERS = 104  # of a line of the sentence
_LINES = (5, 4, 3)  # of a sentence: the most with which all rows fit
_FIT = 40  # lines of a slide
_LEAST = 0.055  # of the height, a row


def draw_ledger(ledger: Ledger, ax: Axes) -> Axes:
    """A row a claim: what it says, the verdict as a coloured field, the sentence behind it."""
    ax.set_axis_off()
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    rows = ledger.claims.to_dict("records")
    titles = [textwrap.wrap(str(row["title"]), 32) for row in rows]
    for most in _LINES:
        told = [_wrapped(str(row["sentence"]), most) for row in rows]
        tall = [max(1.2, len(text), len(title)) + 0.9 for text, title in zip(told, titles, strict=True)]
        if sum(tall) <= _FIT:
            break
    unit = 0.93 / sum(tall)
    top = 0.955
    ax.text(0, 0.995, f"{ledger.name}: which claims hold", fontsize=17, fontweight="bold", va="top", parse_math=False)
    for row, text, title, lines in zip(rows, told, titles, tall, strict=True):
        height = lines * unit
        middle = top - height / 2
        ax.axhline(top, color=PALE, linewidth=0.8)
        ax.text(0.0, middle, row["claim"], fontsize=12, fontweight="bold", va="center", parse_math=False)
        ax.text(0.045, middle, "\n".join(title), fontsize=10, va="center", parse_math=False)
        _field(ax, middle, str(row["verdict"]))
        ax.text(0.405, middle, "\n".join(text), fontsize=9, va="center", linespacing=1.15, parse_math=False)
        top -= height
    ax.axhline(top, color=PALE, linewidth=0.8)
    ax.text(
        1,
        0.0,
        f"m = {ledger.n_primary} primary endpoints, Holm; thresholds of {ledger.dated.isoformat()}; about this "
        "checkpoint alone",
        fontsize=8,
        color=GREY,
        ha="right",
        va="bottom",
    )
    return ax


def _wrapped(sentence: str, most: int) -> list[str]:
    lines = textwrap.wrap(sentence, _LETTERS)
    if len(lines) > most:
        lines = [*lines[: most - 1], textwrap.shorten(" ".join(lines[most - 1 :]), _LETTERS, placeholder=" …")]
    return lines


def _field(ax: Axes, middle: float, verdict: str) -> None:
    colour = COLOURS[verdict]
    ax.add_patch(
        FancyBboxPatch((0.285, middle - 0.018), 0.1, 0.036, boxstyle="round,pad=0,rounding_size=0.008", color=colour)
    )
    ink = BLACK if verdict == "not_tested" else "white"
    ax.text(0.335, middle, WORDS[verdict], fontsize=10, color=ink, ha="center", va="center", fontweight="bold")

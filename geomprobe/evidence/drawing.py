"""What the pictures of twins share: an arm's colour, panels, a thin line a seed and a thick mean, a dot a seed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from geomprobe.evidence.records import Records
from geomprobe.figures.layout import legend_above
from geomprobe.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from geomprobe.lab.arms import IN_WORDS

# Arms that are one thing but for the scale, or for the order of equal steps, share a colour; the second is dashed.
ARM_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{"A0": BLACK, "A1": BLUE, "A2": SKY, "A3": VERMILION, "A4": SKY},
        **{"A5": GREEN, "A6": ORANGE, "A7": BLUE, "A8": PURPLE, "A9": BLACK},
    }
)
DASHED: Final = frozenset({"A4", "A7", "A9"})
_ROW: Final = 13.8  # points that a row of a legend takes
_APART: Final = 0.5  # of an arm's place along x, which its seeds share


@dataclass(frozen=True)
class Place:
    """Where and how a group of dots is drawn.

    Attributes
    ----------
    x : float
    colour : str
    wide : float
        Of the place that the seeds share.
    hollow : bool
    """

    x: float
    colour: str
    wide: float = _APART
    hollow: bool = False


def colour_of(arm: str) -> str:
    """An arm's colour; grey for one of no table."""
    return ARM_COLOURS.get(arm, GREY)


def dashes(arm: str) -> str:
    """The line of an arm."""
    return "--" if arm in DASHED else "-"


def named(arm: str) -> str:
    """An arm with what it is."""
    return f"{arm} {IN_WORDS[arm]}" if arm in IN_WORDS else arm


def grid(
    ax: Axes,
    rows: int,
    columns: int,
    *,
    gap: tuple[float, float] = (0.11, 0.3),
    widths: Sequence[float] = (),
    heights: Sequence[float] = (),
) -> list[Axes]:
    """Turn the axes into panels, row by row, each with scales of its own; gaps as parts of the whole."""
    ax.set_axis_off()
    across, down = np.array(widths or [1.0] * columns), np.array(heights or [1.0] * rows)
    across = across / across.sum() * (1 - gap[0] * (columns - 1))
    down = down / down.sum() * (1 - gap[1] * (rows - 1))
    made = []
    for row in range(rows):
        for column in range(columns):
            left = float(across[:column].sum() + gap[0] * column)
            bottom = float(1 - down[: row + 1].sum() - gap[1] * row)
            made.append(ax.inset_axes((left, bottom, float(across[column]), float(down[row]))))
    return made


def crown(ax: Axes, title: str, handles: Sequence[Artist] = (), *, columns: int = 4, above: float = 22) -> None:
    """Title and legend over the axes, `above` points away from them."""
    rows = legend_above(ax, handles, above=above, columns=columns)
    ax.set_title(title, loc="left", pad=above + rows * _ROW + (9 if rows else 2), fontweight="bold", parse_math=False)


def arm_key(arms: Iterable[str], *, full: bool = True) -> list[Artist]:
    """The legend's entries of arms."""
    return [
        Line2D([], [], color=colour_of(arm), linestyle=dashes(arm), linewidth=2, label=named(arm) if full else arm)
        for arm in arms
    ]


def curve(records: Records, name: str, column: str) -> pd.Series:
    """A measured quantity of one run by step; for "loss" the held-out one."""
    whole = records.whole[name]
    rows: list[dict[str, Any]] = whole["losses"] if column == "loss" else whole["curves"]
    values = {int(row["step"]): row.get(column) for row in rows}
    return pd.Series({step: value for step, value in values.items() if value is not None}, dtype=float)


def curves(records: Records, group: str, arm: str, column: str) -> pd.DataFrame:
    """The same of all runs of an arm: a row a step, a column a seed."""
    names = records.rows(group, arm)["name"]
    found = {seed: curve(records, str(name), column) for seed, name in names.items()}
    return pd.DataFrame(found).sort_index()


def seed_lines(ax: Axes, table: pd.DataFrame, arm: str) -> None:
    """A thin line a seed and, over the steps that all have, their mean as a thick one."""
    colour = colour_of(arm)
    for seed in table.columns if table.shape[1] > 1 else ():
        own = table[seed].dropna()
        ax.plot(own.index, own, color=colour, linestyle=dashes(arm), linewidth=0.6, alpha=0.4, zorder=2)
    middle = table.dropna().mean(axis=1)
    ax.plot(middle.index, middle, color=colour, linestyle=dashes(arm), linewidth=2, zorder=3)


def seed_dots(ax: Axes, values: Iterable[float], place: Place) -> None:
    """A dot a seed, side by side, and a bar at their mean."""
    found = np.asarray(list(values), dtype=float)
    found = found[np.isfinite(found)]
    if not len(found):
        return
    places = place.x + place.wide * ((np.arange(len(found)) + 0.5) / len(found) - 0.5)
    face = "white" if place.hollow else place.colour
    ax.scatter(places, found, s=22, facecolor=face, edgecolor=place.colour, linewidths=1.1, alpha=0.85, zorder=3)
    half = place.wide / 2 + 0.04
    ax.hlines(found.mean(), place.x - half, place.x + half, color=place.colour, linewidth=2, zorder=4)


def arm_axis(ax: Axes, arms: Sequence[str]) -> None:
    """Arms along x."""
    ax.set_xticks(range(len(arms)), labels=list(arms))
    ax.set_xlim(-0.6, len(arms) - 0.4)


def symmetric_scale(ax: Axes, linear: float) -> None:
    """An axis for y that is linear to ± so much and logarithmic beyond, with plain numbers."""
    ax.set_yscale("symlog", linthresh=linear, linscale=1.2)
    low, high = ax.get_ylim()
    steps = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5])
    ticks = [tick for tick in (*-steps[::-1], 0.0, *steps) if low <= tick <= high]
    ax.set_yticks(ticks, labels=[f"{tick:g}".replace("-", "−") for tick in ticks])
    ax.set_yticks([], minor=True)


def step_axis(ax: Axes, *, log: bool = False) -> None:
    """Steps along x, on request with twice as many as far apart everywhere (0 is left out there)."""
    ax.set_xlabel("step")
    if log:
        ax.set_xscale("log", base=10)

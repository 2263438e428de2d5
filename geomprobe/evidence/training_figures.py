"""Pictures of how twins train: losses, lengths, directions of updates, attention on the first position, stability."""

import math
from typing import Final

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from geomprobe.evidence.drawing import (
    Place,
    arm_axis,
    arm_key,
    colour_of,
    crown,
    curves,
    dashes,
    grid,
    seed_dots,
    seed_lines,
    step_axis,
    symmetric_scale,
)
from geomprobe.evidence.record import uniform_first
from geomprobe.evidence.records import SHORT_SINK, Records
from geomprobe.evidence.tables import arms_of
from geomprobe.evidence.twins import LONG, NORMED, PLAIN, SHORT, STABILITY
from geomprobe.figures.layout import plain_log, positive_scale
from geomprobe.figures.style import GREY
from geomprobe.labels import FROM_ROW

MAIN: Final = (PLAIN, NORMED)
_LATE: Final = 0.08  # of the steps, from which losses can be told apart


def main_arms(records: Records, group: str) -> list[str]:
    """Which of the two main arms have runs in a group."""
    return [arm for arm in MAIN if arm in arms_of(records, group)]


def sink_group(records: Records) -> str:
    """The group with the longest trainings that are there."""
    return LONG if main_arms(records, LONG) else SHORT


def sink_number(records: Records, group: str) -> str:
    """What decides the claim on sinks, where all runs of the group have it; else the mean over whole windows."""
    known = records.table.loc[records.table["group"] == group].get(SHORT_SINK)
    return SHORT_SINK if known is not None and len(known) and known.notna().all() else "first_mass"


def draw_losses(records: Records, ax: Axes) -> Axes:
    """Held-out loss by step, and its difference to the plain arm of the same seed."""
    arms = arms_of(records, SHORT)
    left, right = grid(ax, 1, 2, gap=(0.13, 0.0), widths=(1, 1.15))
    plain = curves(records, SHORT, PLAIN, "loss")
    for arm in arms:
        table = curves(records, SHORT, arm, "loss")
        seed_lines(left, table.loc[table.index > 0], arm)
        gap = (table - plain).dropna(axis=1, how="all")
        if arm != PLAIN and gap.size:
            seed_lines(right, gap.loc[gap.index >= _LATE * table.index.max()], arm)
    left.set_ylabel("held-out loss (nats a token)")
    right.set_ylabel(f"less that of {PLAIN}, same seed (nats)")
    compared = bool(right.lines)
    if compared:
        right.axhline(0, color=colour_of(PLAIN), linewidth=1, zorder=1)
        symmetric_scale(right, 0.05)
    else:
        right.set_axis_off()
        right.text(0.5, 0.5, f"There are no twins of {PLAIN} yet.", ha="center", color=GREY, transform=right.transAxes)
    for panel in (left, right) if compared else (left,):
        step_axis(panel, log=True)
        plain_log(panel.xaxis, _ratio(panel))
    crown(ax, "Held-out loss over training, a thin line a seed", arm_key(arms), columns=2, above=8)
    return ax


def _ratio(panel: Axes) -> float:
    low, high = panel.get_xlim()
    return high / low if low > 0 else math.inf


def draw_growth(records: Records, ax: Axes) -> Axes:
    """Mean log length of keys and queries by step, as projected and as scored."""
    arms = main_arms(records, SHORT)
    panels = grid(ax, 2, 2, gap=(0.1, 0.16))
    stages = {"projected": "log_projected", "scored": "log_length"}
    places = [(stage, vector) for stage in stages for vector in ("k", "q")]
    for panel, (stage, vector) in zip(panels, places, strict=True):
        for arm in arms:
            seed_lines(panel, curves(records, SHORT, arm, f"{stages[stage]}_{vector}"), arm)
        many = {"k": "keys", "q": "queries"}[vector]
        behind = "as projected" if stage == "projected" else "as scored, behind the norm"
        panel.set_title(f"{many}, {behind}", loc="left")
        panel.set_ylabel("mean log length" if vector == "k" else "")
        if stage == "scored":
            step_axis(panel)
    crown(ax, "Lengths over training, a thin line a seed", arm_key(arms))
    return ax


def draw_radial(records: Records, ax: Axes) -> Axes:
    """How much of an update of key and query weights points along the weights, over what a random step has."""
    arms = main_arms(records, SHORT)
    panels = grid(ax, 1, 2)
    for panel, vector in zip(panels, "kq", strict=True):
        for arm in arms:
            share, null = (curves(records, SHORT, arm, f"radial_{what}_{vector}") for what in ("share", "null"))
            seed_lines(panel, share / null, arm)
        panel.axhline(1, color=GREY, linestyle=":", linewidth=1.5, zorder=1)
        panel.set_title({"k": "weights of keys", "q": "weights of queries"}[vector], loc="left")
        step_axis(panel)
        panel.set_yscale("log")
        low, high = panel.get_ylim()
        plain_log(panel.yaxis, high / low)
    panels[0].set_ylabel("radial share of updates ÷ random step's")
    chance = Line2D([], [], color=GREY, linestyle=":", linewidth=1.5, label="a random step")
    crown(ax, "How radial updates are, a thin line a seed", [*arm_key(arms), chance])
    return ax


def draw_first_mass(records: Records, ax: Axes) -> Axes:
    """Attention on the first position by step, and at the end by seed; with what uniform attention gives."""
    group = sink_group(records)
    number, arms = sink_number(records, group), arms_of(records, group)
    left, right = grid(ax, 1, 2, gap=(0.12, 0.0), widths=(1.3, 1))
    for place, arm in enumerate(arms):
        seed_lines(left, curves(records, group, arm, "first_mass"), arm)
        seed_dots(right, records.one(group, arm, number), Place(place, colour_of(arm)))
    whole = pd.concat([records.one(group, arm, f"{number}_uniform") for arm in arms])
    names = [str(name) for arm in arms for name in records.rows(group, arm)["name"]]
    lengths = sorted({records.whole[name]["recipe"]["length"] for name in names})
    trained = [uniform_first(length, FROM_ROW) for length in lengths]
    # Other rows on the right, so that uniform attention is another number.
    for panel, uniform in ((left, pd.Series(trained)), (right, whole)):
        if len(uniform):
            panel.axhline(float(uniform.mean()), color=GREY, linestyle=":", linewidth=1.5, zorder=1)
        panel.set_ylim(0, 1.06 * max(panel.get_ylim()[1], float(uniform.max()) if len(uniform) else 0))
    step_axis(left)
    left.set_ylabel("attention on the first position")
    left.set_title(f"over training, of {' or '.join(map(str, lengths))} positions", loc="left")
    of_few = ", of 64 positions" if number == SHORT_SINK else ""
    right.set_title(f"at the end{of_few}, a dot a seed", loc="left")
    arm_axis(right, arms)
    alike = Line2D([], [], color=GREY, linestyle=":", linewidth=1.5, label="uniform attention")
    full = len(arms) <= 3
    crown(ax, "Attention on the first position", [*arm_key(arms, full=full), alike], columns=4 if full else 6)
    return ax


def draw_stability(records: Records, ax: Axes) -> Axes:
    """Final held-out loss, and the largest logit, by learning rate."""
    arms = main_arms(records, STABILITY)
    rates = records.rates(STABILITY)
    left, right = grid(ax, 1, 2, gap=(0.13, 0.0))
    for panel, number in ((left, "loss_1x"), (right, "max_logit")):
        for arm in arms:
            by_rate = {rate: records.one(STABILITY, arm, number, rate) for rate in rates}
            known = {rate: values for rate, values in by_rate.items() if len(values)}
            for rate, values in known.items():
                panel.scatter(
                    [rate] * len(values), values, s=20, color=colour_of(arm), alpha=0.6, linewidths=0, zorder=3
                )
            middle = [float(values.mean()) for values in known.values()]
            panel.plot(list(known), middle, color=colour_of(arm), linestyle=dashes(arm), linewidth=2, zorder=2)
        panel.set_xscale("log")
        panel.set_xticks(rates, labels=[f"{rate:g}" for rate in rates])
        panel.set_xticks([], minor=True)
        panel.set_xlabel("learning rate")
    left.set_ylabel("final held-out loss (nats a token)")
    right.set_ylabel("largest logit")
    positive_scale(right, records.table.loc[records.table["group"] == STABILITY, "max_logit"])
    keys: list[Artist] = arm_key(arms)
    crown(ax, "Loss and largest logit by learning rate, a dot a seed", keys, above=8)
    return ax

"""Pictures of twins at the end of training: clusters, renamed words, lengths, losses, the sinks of Backcopy."""

from typing import Final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from geomprobe.evidence.drawing import Place, arm_axis, arm_key, colour_of, crown, grid, seed_dots, symmetric_scale
from geomprobe.evidence.records import Records, at_equal_loss
from geomprobe.evidence.tables import BACKCOPY, FACTORS, arms_of, idle
from geomprobe.evidence.training_figures import main_arms
from geomprobe.evidence.twins import NORMED, SHORT
from geomprobe.figures.style import BLUE, GREY, ORANGE
from geomprobe.ledger.thresholds import of

SPACES: Final = {"keys": "keys", "residual": "residual stream"}
_FLOOR: Final = 0.002  # of the axis: what lies below is as good as constant
_PLACES: Final = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5)


def draw_clusters(records: Records, ax: Axes) -> Axes:
    """AUC against held-out loss: the last saved steps of each run joined, and the reading at equal loss ringed."""
    arms, ringed = main_arms(records, SHORT), False
    for panel, (space, many) in zip(grid(ax, 1, 2), SPACES.items(), strict=True):
        number = f"auc_{space}"
        for arm in arms:
            for name in records.rows(SHORT, arm)["name"]:
                line = path(records, str(name), number)
                panel.plot(line["loss"], line["value"], color=colour_of(arm), linewidth=0.9, alpha=0.6, zorder=2)
                panel.scatter(line["loss"], line["value"], s=12, color=colour_of(arm), linewidths=0, zorder=3)
        for arm, values in _read(records, arms, number).items():
            place = (values["loss"], values["value"])
            panel.scatter(*place, s=70, facecolor="none", edgecolor=colour_of(arm), linewidths=1.4, zorder=4)
            ringed = ringed or len(values) > 0
        if not panel.xaxis_inverted():
            panel.invert_xaxis()
        panel.set_xlabel("held-out loss (nats; training goes right)")
        panel.set_title(many, loc="left")
        panel.set_ylabel("AUC of word categories" if space == "keys" else "")
    ring = Line2D([], [], marker="o", linestyle="none", color=GREY, markerfacecolor="none", markersize=9)
    ring.set_label("read at equal loss of twins")
    crown(ax, "Clusters by loss, a line a run", [*arm_key(arms), *([ring] if ringed else [])])
    return ax


def path(records: Records, name: str, number: str) -> pd.DataFrame:
    """A number of a run at its last saved steps: loss, value."""
    record = records.whole[name]
    points = [(one["loss"], one["numbers"].get(number)) for one in record["on_the_way"]]
    points.append((record["losses"][-1]["loss"], record["numbers"].get(number)))
    return pd.DataFrame(points, columns=["loss", "value"]).astype(float)


def _read(records: Records, arms: list[str], number: str) -> dict[str, pd.DataFrame]:
    """Where each seed was read: at the higher one of its twins' last losses."""
    if len(arms) < 2:
        return {}
    losses = pd.DataFrame(
        {
            arm: {
                seed: path(records, str(name), number)["loss"].iloc[-1]
                for seed, name in records.rows(SHORT, arm)["name"].items()
            }
            for arm in arms
        }
    )
    target = losses.dropna().max(axis=1)
    values = at_equal_loss(records, SHORT, arms, number)
    return {arm: pd.DataFrame({"loss": target, "value": read}).dropna() for arm, read in values.items()}


def draw_parents(records: Records, ax: Axes) -> Axes:
    """Where the parents of renamed words stand, by arm: pseudo-rare words and halved ones."""
    arms = arms_of(records, SHORT)
    spaces = {**SPACES, "embedding": "input embedding"}
    kinds = {"rare": (ORANGE, "pseudo-rare words"), "half": (BLUE, "words halved")}
    panels = grid(ax, 1, 3, gap=(0.06, 0.0))
    farthest = 0.6
    for panel, (space, many) in zip(panels, spaces.items(), strict=True):
        for shift, (kind, (colour, _)) in zip((-0.21, 0.21), kinds.items(), strict=True):
            for place, arm in enumerate(arms):
                values = records.one(SHORT, arm, f"parent_place_{space}_{kind}")
                seed_dots(panel, values, Place(place + shift, colour, wide=0.3, hollow=kind == "half"))
                farthest = max(farthest, 1.06 * float(values.max())) if len(values) else farthest
        panel.axhline(0.5, color=GREY, linestyle=":", linewidth=1.5, zorder=1)
        panel.set_yscale("function", functions=(_root, _square))  # most parents stand near the top
        panel.set_yticks(_PLACES, labels=[f"{place:g}" for place in _PLACES])
        panel.set_title(many, loc="left")
        panel.tick_params(labelleft=space == "keys")
        arm_axis(panel, arms)
    for panel in panels:
        panel.set_ylim(-0.0012, min(farthest, 1.0))
    panels[0].set_ylabel("parent's place (0: the nearest)")
    keys: list[Artist] = [
        Line2D([], [], marker="o", linestyle="none", color=colour, label=label, markerfacecolor=face)
        for (colour, label), face in zip(kinds.values(), (ORANGE, "white"), strict=True)
    ]
    keys.append(Line2D([], [], color=GREY, linestyle=":", linewidth=1.5, label="chance"))
    crown(ax, "Where a renamed word's parent stands, a dot a seed", keys)
    return ax


def _root(place: np.ndarray) -> np.ndarray:
    return np.sign(place) * np.sqrt(np.abs(place))


def _square(root: np.ndarray) -> np.ndarray:
    return np.sign(root) * np.square(root)


def draw_spread(records: Records, ax: Axes) -> Axes:
    """Spread of key lengths and distance from cosines by arm, with the thresholds of C3."""
    arms = arms_of(records, SHORT)
    named = {
        "k_log_sd": ("spread of key lengths (log sd)", of("C3", "log_sd"), of("C3", "not_log_sd")),
        "tv": ("distance of attention from cosines (TV)", of("C3", "tv"), of("C3", "not_tv")),
    }
    panels = grid(ax, 1, 2, gap=(0.24, 0.0), widths=(1, 1))
    for panel, (number, (title, low, high)) in zip(panels, named.items(), strict=True):
        for place, arm in enumerate(arms):
            values = records.one(SHORT, arm, number)
            seed_dots(panel, np.maximum(values, _FLOOR), Place(place, colour_of(arm)))
        panel.set_yscale("log")
        panel.set_ylim(_FLOOR / 1.3, max(high, panel.dataLim.y1) * 1.4)
        ticks = [_FLOOR, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
        kept = [tick for tick in ticks if tick <= panel.get_ylim()[1]]
        panel.set_yticks(kept, labels=[f"{'≤' * (tick == _FLOOR)}{tick:g}" for tick in kept])
        panel.set_yticks([], minor=True)
        for bound, words in ((low, "supported\nbelow"), (high, "refuted\nabove")):
            panel.axhline(bound, color=GREY, linestyle=":", linewidth=1.5, zorder=1)
            across = panel.get_yaxis_transform()
            panel.text(1.01, bound, f"{words} {bound:g}", fontsize=8, color=GREY, va="center", transform=across)
        panel.set_title(title, loc="left")
        arm_axis(panel, arms)
    crown(ax, "Are lengths constant, and logits cosines? A dot a seed")
    return ax


def draw_loss_gaps(records: Records, ax: Axes) -> Axes:
    """Held-out loss of each arm less that of A1 of the same seed, at one, two and four times the training length."""
    arms = [arm for arm in arms_of(records, SHORT) if arm != NORMED]
    margins = {1: of("C6q", "loss"), 2: of("C6q", "loss"), 4: of("C6q", "loss_4x")}
    panels = grid(ax, 1, 3, gap=(0.09, 0.0))
    for panel, factor in zip(panels, FACTORS, strict=True):
        for place, arm in enumerate(arms):
            gap = records.paired(SHORT, arm, NORMED, f"loss_{factor}x")
            seed_dots(panel, gap, Place(place, colour_of(arm), hollow=arm in ("A4", "A7", "A9")))
        panel.axhline(0, color=colour_of(NORMED), linewidth=1, zorder=1)
        panel.axhspan(-margins[factor], margins[factor], color=GREY, alpha=0.2, linewidth=0, zorder=0)
        symmetric_scale(panel, 0.05)
        panel.set_title(f"{factor}× the length (band ±{margins[factor]:g})", loc="left")
        arm_axis(panel, arms)
    panels[0].set_ylabel(f"loss less that of {NORMED} (nats)")
    crown(ax, f"Final held-out loss against {NORMED}, a dot a seed")
    return ax


def draw_backcopy(records: Records, ax: Axes) -> Axes:
    """Idle rows of Backcopy by arm: attention on the first position, length and angle of its key, parts of the gap."""
    arms = arms_of(records, BACKCOPY)
    found = {arm: idle(records, arm) for arm in arms}
    panels = grid(ax, 2, 2, gap=(0.11, 0.17))
    for place, arm in enumerate(arms):
        values, colour = found[arm], colour_of(arm)
        seed_dots(panels[0], values["idle_first"], Place(place, colour))
        seed_dots(panels[1], values["key_ratio"], Place(place, colour))
        seed_dots(panels[2], values["cos_first"], Place(place - 0.21, colour, wide=0.3))
        seed_dots(panels[2], values["cos_others"], Place(place + 0.21, colour, wide=0.3, hollow=True))
        seed_dots(panels[3], values["gap_by_angle"], Place(place - 0.21, colour, wide=0.3))
        seed_dots(panels[3], values["gap_by_length"], Place(place + 0.21, colour, wide=0.3, hollow=True))
    uniform = pd.concat([values["idle_uniform"] for values in found.values()])
    panels[0].axhline(float(uniform.mean()), color=GREY, linestyle=":", linewidth=1.5, zorder=1)
    panels[0].text(len(arms) - 0.45, float(uniform.mean()), "uniform", fontsize=8, color=GREY, ha="right", va="bottom")
    panels[0].set_ylim(0, 1.02)
    panels[1].axhline(1, color=GREY, linestyle=":", linewidth=1.5, zorder=1)
    panels[1].set_ylim(0, None)
    titles = (
        "attention of idle rows on the first position",
        "length of the first key ÷ the others'",
        "cosine to the query: ● first key  ○ the others",
        "logit gap of the first key: ● by angle  ○ by length",
    )
    for index, (panel, title) in enumerate(zip(panels, titles, strict=True)):
        panel.set_title(title, loc="left")
        arm_axis(panel, arms)
        if index > 1:
            panel.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    crown(ax, "Backcopy: sinks of idle rows by arm, a dot a seed", arm_key(arms), columns=2)
    return ax

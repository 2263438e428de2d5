"""Attention that each token class receives, over its uniform share."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geomprobe import tables
from geomprobe.figures.drawing import WIDTH, Drawing, join, needs_classes, scope
from geomprobe.figures.layout import crown, plain_log
from geomprobe.figures.style import BLACK, CLASS_COLOURS, GREY
from geomprobe.labels import CLOSED_CLASSES, TOKEN_CLASSES
from geomprobe.run.reading import Run


def shown_classes(run: Run) -> list[str]:
    """Classes that the text has tokens of, in the vocabulary's order, the closed classes last below their union."""
    counts = tables.class_counts(run)["n_tokens"]
    ordered = [name for name in TOKEN_CLASSES if name not in CLOSED_CLASSES] + ["function", *CLOSED_CLASSES]
    return [name for name in ordered if counts.get(name, 0) > 0]


def draw_class_lift(run: Run, ax: Axes) -> Axes:
    """A row a class: a dot a head (all layers), the box of its quartiles, the median."""
    names = shown_classes(run)
    counts = tables.class_counts(run)
    floor = _floor(run)
    for place, name in enumerate(names):
        lift = tables.class_rows(run, name)["lift"].dropna().to_numpy(float)
        if not lift.size:
            continue
        colour = CLASS_COLOURS[name]
        jitter = 0.36 * np.modf(np.arange(lift.size) * 0.61803398875)[0] - 0.18
        ax.scatter(np.maximum(lift, floor), place + jitter, s=6, color=colour, alpha=0.3, linewidths=0, zorder=2)
        low, middle, high = np.maximum(np.quantile(lift, (0.25, 0.5, 0.75)), floor)
        ax.plot([low, high], [place, place], color=colour, linewidth=7, alpha=0.6, solid_capstyle="butt", zorder=3)
        ax.plot([middle], [place], "|", color=BLACK, markersize=15, markeredgewidth=2, zorder=4, label=f"{name} median")
    ax.axvline(1, color=GREY, linestyle="--", linewidth=1.2, zorder=1)
    ax.set_xscale("log")
    plain_log(ax.xaxis, max(ax.get_xlim()) / min(ax.get_xlim()))
    ax.set_yticks(range(len(names)), [f"{name} (n = {counts['n_tokens'][name]:,})" for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlabel("lift: attention received ÷ uniform share (log scale)")
    crown(ax, run, "attention by token class", _legend())
    return ax


def _floor(run: Run) -> float:
    """The left end of the log axis: heads with less (or no) attention on a class are drawn there."""
    lift = run.tables["class_attention"]["lift"].to_numpy(float)
    positive = lift[lift > 0]
    return max(1e-3, float(positive.min())) if positive.size else 1e-3


def _legend() -> list[Line2D | Patch]:
    return [
        Line2D([], [], color=GREY, marker="o", linestyle="", markersize=3, label="a head of a layer"),
        Patch(color=GREY, alpha=0.6, label="25–75% of the heads"),
        Line2D([], [], color=BLACK, marker="|", linestyle="", markersize=11, markeredgewidth=2, label="median"),
        Line2D([], [], color=GREY, linestyle="--", label="uniform attention"),
    ]


def _caption(run: Run) -> str:
    table = run.tables["class_attention"]
    heads = len(table[["layer", "q_head"]].drop_duplicates())
    below = int((table["lift"] < _floor(run)).sum())
    return join(
        "Lift of a class: the attention that its tokens receive, Σ A(t, j) over queries t and keys j of the "
        "class, over what they would receive if every query looked at all that it sees alike, Σ 1/|V(t)|. "
        "1 is no preference.",
        f"A dot a query head of a layer ({heads:,} heads); bar: quartiles; mark: median. Lift follows position as well "
        "as class: it describes, the next figure compares neighbours.",
        "first is position 0, whatever token; function pools the closed classes (article to particle). "
        "n counts tokens of the class.",
        f"{below} values below {_floor(run):g} are drawn at the left edge." if below else "",
        scope(run),
    )


def _data(run: Run) -> pd.DataFrame:
    table = run.tables["class_attention"]
    columns = ["layer", "q_head", "token_class", "n_tokens", "share", "uniform_share", "lift"]
    return table.loc[table["token_class"].isin(shown_classes(run)), columns]


CLASS_LIFT = Drawing(
    draw=draw_class_lift,
    title="Attention by token class (lift)",
    alt="A row of dots for each token class: attention received over the uniform share, a dot a head, "
    "with quartiles and median.",
    caption=_caption,
    missing=needs_classes("class_attention"),
    size=lambda run: (WIDTH, 1.6 + 0.33 * max(len(shown_classes(run)), 3)),
    data=_data,
)

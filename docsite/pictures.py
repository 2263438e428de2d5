"""The pictures of the concept pages, and an example of every figure: `python -m docsite.pictures [RUN …]`.

Without run folders it draws the concept pages' pictures alone: analytic ones, one of the packaged model, one of the
numbers in reports/first-light.md. With run folders it draws besides, of each registered figure, the example of the
first of these runs that has something to show.
"""

import io
import json
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from PIL import Image

from docsite.figures import PICTURES
from geomprobe.figures.style import AMOUNT, BLACK, BLUE, GREEN, GREY, ORANGE, PALE, VERMILION, style

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "docs" / "pictures"
DPI: Final = 150
COLOURS: Final = 256  # of a picture: it has few, and a palette takes a third of the bytes
SHORE: Final = "a long and quiet night upon the open water before dawn had come to every house"
SENTENCE: Final = "The old man looked at the sea, and the sea looked at the old man."


def save(figure: Figure, path: Path) -> None:
    """Write a picture with a palette, so that it stays small."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = io.BytesIO()
    figure.savefig(whole, format="png", dpi=DPI)
    plt.close(figure)
    image = Image.open(whole).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


# ------------------------------------------------------------------ heads and layers
def heads() -> Figure:
    """A model as a grid of heads, and the attention of one of them."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.7), width_ratios=[1, 1.35], layout="constrained")
    _grid(left)
    _attention_of_a_head(right, layer=1, head=3)
    return figure


def _grid(ax: Axes) -> None:
    layers, q_heads, group = 6, 6, 2
    for layer in range(layers):
        for head in range(q_heads):
            picked = (layer, head) == (1, 3)
            place = (head + 0.25 * (head // group), layer)
            face = VERMILION if picked else "#BFD9EA"
            ax.add_patch(Rectangle(place, 0.9, 0.8, facecolor=face, edgecolor="white"))
    for kv in range(q_heads // group):
        left = kv * (group + 0.25)
        ax.plot([left, left + group - 0.1], [-0.28, -0.28], color=BLACK, lw=2)
        ax.text(left + (group - 0.1) / 2, -0.45, f"key head {kv}", ha="center", va="top", fontsize=9)
    ax.set(xlim=(-0.2, 6.7), ylim=(-1.1, 6.1), yticks=[i + 0.4 for i in range(layers)])
    ax.set_yticklabels([f"layer {i}" for i in range(layers)])
    ax.tick_params(length=0)
    ax.set_xticks([])
    ax.set_title("the packaged model: 6 layers of 6 query heads;\ntwo query heads share the keys of one key head")
    for side in ax.spines.values():
        side.set_visible(False)


def _attention_of_a_head(ax: Axes, *, layer: int, head: int) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import geomprobe

    folder = ROOT / "geomprobe" / "data" / "checkpoints" / "plain"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = tokenizer(SENTENCE, return_tensors="pt")
    with torch.no_grad(), geomprobe.capture(model) as seen:
        model(input_ids=inputs["input_ids"])
    weights = seen[layer].attention()[0, head].numpy()
    words = [tokenizer.decode([index]).strip() or "␣" for index in inputs["input_ids"][0].tolist()]
    shown = np.where(np.tril(np.ones_like(weights)) > 0, weights, np.nan)
    image = ax.imshow(shown, cmap=AMOUNT, vmin=0, vmax=1)
    ax.set_xticks(range(len(words)), words, rotation=60, ha="right", rotation_mode="anchor", fontsize=8.5)
    ax.set_yticks(range(len(words)), words, fontsize=8.5)
    ax.set(xlabel="key: the token looked at", ylabel="query: the token that looks")
    ax.set_title(f"attention of head {head} in layer {layer} (orange at the left)")
    ax.figure.colorbar(image, ax=ax, label="attention; a row adds up to 1", shrink=0.8)


# ------------------------------------------------------------------ length and angle
def length_and_angle() -> Figure:
    """One query and three keys, and what length and angle make of the attention."""
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.9), width_ratios=[1.5, 1, 1], layout="constrained")
    query = np.array([2.0, 0.0])
    keys = {"a": _polar(1.0, 30), "b: longer": _polar(2.0, 30), "c: turned": _polar(1.0, 80)}
    colours = [BLUE, GREEN, VERMILION]
    _arrow(axes[0], query, ORANGE, "query", (0.1, -0.24))
    for (name, key), colour in zip(keys.items(), colours, strict=True):
        _arrow(axes[0], key, colour, f"key {name}", (0.08, -0.24) if name == "a" else (0.08, 0.08))
        axes[0].plot([key[0], key[0]], [0, key[1]], color=colour, lw=0.9, ls=":")
    angle = np.radians(np.linspace(0, 30, 30))
    axes[0].plot(0.62 * np.cos(angle), 0.62 * np.sin(angle), color=BLACK, lw=0.9)
    axes[0].text(0.36, 0.05, "30°", fontsize=9)
    axes[0].set(xlim=(-0.2, 3.0), ylim=(-0.5, 1.6), aspect="equal", xticks=[], yticks=[])
    axes[0].set_title("logit = ‖q‖ · ‖k‖ · cos of the angle")
    for side in axes[0].spines.values():
        side.set_visible(False)
    logits = np.array([query @ key for key in keys.values()])
    attention = np.exp(logits) / np.exp(logits).sum()
    names = [name[0] for name in keys]
    for ax, values, title in ((axes[1], logits, "logit"), (axes[2], attention, "attention (softmax)")):
        bars = ax.bar(names, values, color=colours, width=0.6)
        ax.bar_label(bars, [f"{value:.2f}" for value in values], fontsize=9.5, padding=2)
        ax.set(title=title, yticks=[], ylim=(0, 1.15 * values.max()), xlabel="key")
        ax.spines["left"].set_visible(False)
    return figure


def _polar(length: float, degrees: float) -> np.ndarray:
    return length * np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def _arrow(ax: Axes, to: np.ndarray, colour: str, text: str, offset: tuple[float, float]) -> None:
    arrow = FancyArrowPatch((0, 0), tuple(to), arrowstyle="-|>", mutation_scale=13, color=colour, lw=2, shrinkA=0)
    ax.add_patch(arrow)
    ax.text(to[0] + offset[0], to[1] + offset[1], text, color=colour, fontsize=10)


# ------------------------------------------------------------------ gauge
def gauge() -> Figure:
    """The same attention from keys and queries in two scales."""
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.8), width_ratios=[1, 1, 0.72], layout="constrained")
    queries = np.array([[2.9, 0.3], [-2.4, 0.5], [1.6, -0.6], [-1.5, -0.35], [2.2, 0.8]])
    keys = np.array([[0.5, 2.6], [-0.3, 1.7], [0.75, -1.1], [-0.6, -2.3], [0.1, 1.0]])
    scale = ((queries**2).mean(0) / (keys**2).mean(0)) ** 0.25
    balanced = queries / scale, keys * scale
    for ax, (q, k), title in (
        (axes[0], (queries, keys), "raw: as the model has them"),
        (axes[1], balanced, "balanced: a channel of the keys × m,\nthe same of the queries ÷ m"),
    ):
        for rows, colour, marker in ((q, ORANGE, "o"), (k, BLUE, "s")):
            for row in rows:
                ax.plot([0, row[0]], [0, row[1]], color=colour, lw=0.8, alpha=0.6)
            ax.plot(*rows.T, marker, color=colour, ms=7)
        for index, row in enumerate(k):
            ax.annotate(str(index + 1), row, xytext=(6, 4), textcoords="offset points", fontsize=9, color=BLUE)
        ax.axhline(0, color=PALE, lw=1, zorder=0)
        ax.axvline(0, color=PALE, lw=1, zorder=0)
        ax.set(xlim=(-3.4, 3.4), ylim=(-3.4, 3.4), aspect="equal", title=title)
        ax.set(xlabel="channel 1", ylabel="channel 2")
    axes[0].plot([], [], "o", color=ORANGE, label="queries")
    axes[0].plot([], [], "s", color=BLUE, label="keys 1 to 5")
    axes[0].legend(loc="upper left", handletextpad=0.2, borderpad=0.1)
    attention = _softmax(queries @ keys.T)
    assert np.allclose(attention, _softmax(balanced[0] @ balanced[1].T))  # that is the point
    image = axes[2].imshow(attention, cmap=AMOUNT, vmin=0, vmax=1)
    axes[2].set(xlabel="key", ylabel="query", title="attention: the same\nin both")
    axes[2].set_xticks(range(5), range(1, 6))
    axes[2].set_yticks([])
    figure.colorbar(image, ax=axes[2], shrink=0.6)
    return figure


def _softmax(logits: np.ndarray) -> np.ndarray:
    risen = np.exp(logits - logits.max(-1, keepdims=True))
    return risen / risen.sum(-1, keepdims=True)


# ------------------------------------------------------------------ QK norm
def qk_norm() -> Figure:
    """Where a QK norm stands, and what the stages are called."""
    figure, ax = plt.subplots(figsize=(9, 4.3), layout="constrained")
    rows = {
        "no QK norm\n(Llama, SmolLM2)": ["W_k", "", "RoPE", ""],
        "before RoPE\n(Qwen3, Gemma 3)": ["W_k", "norm", "RoPE", ""],
        "after RoPE\n(Hunyuan v1)": ["W_k", "", "RoPE", "norm"],
    }
    stages = {
        0: ((1.55, "projected\n= content"), (4.05, "scored")),
        1: ((1.55, "projected"), (2.8, "content"), (4.05, "scored")),
        2: ((1.55, "projected\n= content"), (5.3, "scored")),
    }
    for place, (name, steps) in enumerate(rows.items()):
        y = 2 - place
        ax.text(-0.15, y, name, ha="right", va="center", fontsize=10.5)
        ax.plot([0, 6.05], [y, y], color=GREY, lw=1.2, zorder=0)
        for at, step in enumerate(steps):
            if step:
                _box(ax, 0.55 + 1.25 * at, y, step, VERMILION if step == "norm" else BLUE if step == "RoPE" else GREEN)
        for x, stage in stages[place]:
            ax.plot([x - 0.375], [y], "o", color=BLACK, ms=5)
            ax.text(x - 0.375, y - 0.2, stage, ha="center", va="top", fontsize=9)
        _box(ax, 6.35, y, "q · k", GREY)
    ax.text(-0.15, 2.62, "one key on its way", ha="right", fontsize=10.5, style="italic")
    ax.set(xlim=(-1.9, 6.85), ylim=(-0.65, 2.8))
    ax.axis("off")
    return figure


def _box(ax: Axes, x: float, y: float, text: str, colour: str) -> None:
    shape = FancyBboxPatch((x - 0.3, y - 0.15), 0.6, 0.3, boxstyle="round,pad=0.04", facecolor=colour, edgecolor="none")
    ax.add_patch(shape)
    ax.text(x, y, text, ha="center", va="center", color="white", fontsize=10.5, fontweight="bold")


# ------------------------------------------------------------------ sinks
def sinks() -> Figure:
    """Attention on position 0 and the length of its key, by layer, from the numbers of a report."""
    layers, length, first, mass = _first_light("smollm2-135m, 8 windows of 512 tokens")
    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 4.9), sharex=True, layout="constrained")
    above.bar(layers, 100 * mass, color=BLACK, width=0.7)
    above.set_ylabel("attention on\nposition 0, %")
    above.set_title("smollm2-135m: from layer 12 on, a short key at position 0 draws 30 to 76% of the attention")
    below.plot(layers, length, "-", color=BLUE, lw=2, label="keys past position 0 (median)")
    below.plot(layers, first, "--", color=BLACK, lw=2, label="the key at position 0 (median)")
    below.set(ylim=(0, 30), ylabel="key length", xlabel="layer")
    below.legend(loc="upper left", ncols=2)
    return figure


def _first_light(title: str) -> tuple[np.ndarray, ...]:
    """Layers, key lengths, those at position 0 and first_mass of a model in reports/first-light.md."""
    said = (ROOT / "reports" / "first-light.md").read_text(encoding="utf-8").split(f"## {title}", 1)[1]
    section = said.split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|", section, flags=re.MULTILINE)
    return tuple(np.array(rows, dtype=float).T)


def neighbours() -> Figure:
    """How Λ holds a token against the content words beside it."""
    words = SHORE.split()
    function = {"a", "and", "upon", "the", "before", "had", "to", "every"}
    token = words.index("the")
    figure, ax = plt.subplots(figsize=(9, 3.3), layout="constrained")
    logits = np.array([0.2, 0.4, 0.6, 0.3, 0.5, 0.1, 1.4, 0.45, 0.35, 0.2, 0.5, 0.1, 0.4, 0.2, 0.3, 0.4])
    beside = [at for at, word in enumerate(words) if 0 < abs(at - token) <= 8 and word not in function]
    for at, word in enumerate(words):
        colour = VERMILION if at == token else BLUE if at in beside else PALE
        ax.bar(at, logits[at], color=colour, width=0.7)
        shade = VERMILION if at == token else BLACK if at in beside else GREY
        ax.text(at, -0.09, word, ha="center", va="top", fontsize=9.5, color=shade)
    mean = logits[beside].mean()
    ax.plot([min(beside) - 0.5, max(beside) + 0.5], [mean, mean], color=BLUE, lw=1.5, ls="--")
    ax.text(max(beside) + 0.6, mean, "mean of the\ncontent words", color=BLUE, va="center", fontsize=9)
    ax.annotate("", (token + 0.62, logits[token]), (token + 0.62, mean), arrowprops={"arrowstyle": "<->", "lw": 1.4})
    ax.text(token + 0.8, (logits[token] + mean) / 2 + 0.1, "Λ of this “the”", fontsize=10.5)
    ax.axhline(0, color=BLACK, lw=0.8)
    ax.set(xlim=(-0.7, 17.6), ylim=(-0.35, 1.6), xticks=[], yticks=[], ylabel="mean logit from\nlater queries")
    ax.spines["bottom"].set_visible(False)
    said = "the same queries look at the token (red) and at the content words within 8 tokens (blue); made-up numbers"
    ax.set_title("\n".join(textwrap.wrap(said, 110)))
    return figure


DRAWN: Final[dict[str, Callable[[], Figure]]] = {
    "heads": heads,
    "length-and-angle": length_and_angle,
    "gauge": gauge,
    "qk-norm": qk_norm,
    "sinks": sinks,
    "neighbours": neighbours,
}


# ------------------------------------------------------------------ examples of figures
def examples(runs: Sequence[str]) -> None:
    """An example of each figure, small, and its caption."""
    from geomprobe.figures.catalogue import FIGURES, figures_of
    from geomprobe.run.reading import open_run

    said: dict[str, str] = {}
    for run in (open_run(folder) for folder in runs):
        for name in figures_of(run):
            drawing = FIGURES[name]
            if name in said or drawing.missing(run) is not None:
                continue
            figure = plt.figure(figsize=drawing.size(run), layout="constrained")
            drawing.draw(run, figure.add_subplot())
            said[name] = drawing.caption(run)
            figure.set_dpi(DPI)
            save_small(figure, PICTURES / f"{name}.png")
    text = json.dumps({name: said[name] for name in FIGURES if name in said}, ensure_ascii=False, indent=1)
    (PICTURES / "captions.json").write_text(text + "\n", encoding="utf-8")


def save_small(figure: Figure, path: Path) -> None:
    """Write an example: as wide as a page shows it, with a palette."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = io.BytesIO()
    figure.savefig(whole, format="png", dpi=110)
    plt.close(figure)
    Image.open(whole).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def main(runs: Sequence[str]) -> None:
    """Draw everything."""
    with style():
        for name, draw in DRAWN.items():
            save(draw(), FOLDER / f"{name}.png")
        if runs:
            examples(runs)


if __name__ == "__main__":
    main(sys.argv[1:])

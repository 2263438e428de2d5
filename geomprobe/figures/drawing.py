"""What a figure is: how it is drawn, what it shows, and when there is nothing to draw."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pandas as pd
from matplotlib.axes import Axes

from geomprobe import tables
from geomprobe.run.reading import Run

WIDTH = 9.0  # inches; at 150 dpi 1350 pixels, read at about 900


Subject = TypeVar("Subject")  # what a figure is of: a run, or a comparison of runs


@dataclass(frozen=True)
class Drawing(Generic[Subject]):
    """A figure of a run, or of a comparison; what is said of a run here holds for either.

    Attributes
    ----------
    draw : callable
        ``(run, ax) -> ax``; draws into the axes, neither creates a figure nor saves one.
    title : str
        What a page calls it.
    alt : str
        What is to be seen, for a reader who cannot see it.
    caption : callable
        ``(run) -> str``: the quantity, its formula in words, the rows used, the numbers of things behind it.
    missing : callable
        ``(run) -> str | None``: why the run has nothing to draw, in a sentence; None where it has.
    size : callable
        ``(run) -> (width, height)`` in inches.
    data : callable
        ``(run) -> DataFrame``: the rows behind the figure, tidy, with the names of docs/schema.md.
    dense : bool
        Whether a pixel image serves better on a page than vectors.
    kind : str
        Of runs that it is a figure of (tables.KINDS); on the page of another it is not even missing.
    """

    draw: Callable[[Subject, Axes], Axes]
    title: str
    alt: str
    caption: Callable[[Subject], str]
    missing: Callable[[Subject], str | None]
    size: Callable[[Subject], tuple[float, float]]
    data: Callable[[Subject], pd.DataFrame]
    dense: bool = False
    kind: str = tables.ANALYSIS


def needs(*names: str) -> Callable[[Run], str | None]:
    """A `missing` for a figure that needs these tables and nothing else."""

    def missing(run: Run) -> str | None:
        absent = [name for name in names if not tables.has(run, name)]
        return f"This run has no values in the table {absent[0]}." if absent else None

    return missing


def needs_words(name: str) -> Callable[[Run], str | None]:
    """The same for a figure of words in context, which an analysis looks at only where asked to."""

    def missing(run: Run) -> str | None:
        return None if tables.has(run, name) else "Words in context were not looked at; --probes all adds them."

    return missing


def needs_classes(*names: str) -> Callable[[Run], str | None]:
    """The same for a figure of token classes."""

    def missing(run: Run) -> str | None:
        if not tables.of_text(run):
            return "This figure is of token classes; the places of an image have none."
        return needs(*names)(run)

    return missing


def needs_causal(*names: str) -> Callable[[Run], str | None]:
    """The same for a figure of what later queries do."""

    def missing(run: Run) -> str | None:
        if not tables.looks_back(run):
            return "This figure is of later queries; in this model every token sees what stands behind it, too."
        return needs(*names)(run)

    return missing


def rows_of(name: str, *columns: str) -> Callable[[Run], pd.DataFrame]:
    """A `data` for a figure of one table: these columns of it, or all."""

    def data(run: Run) -> pd.DataFrame:
        table = run.tables[name]
        return table[[column for column in columns if column in table]] if columns else table

    return data


def height(inches: float) -> Callable[[Any], tuple[float, float]]:
    """A `size` of the usual width and one height."""
    return lambda subject: (WIDTH, inches)


def scope(run: Run) -> str:
    """The model, the text and how much of it, for the end of a caption."""
    corpus = run.manifest["corpus"]
    if not tables.of_text(run):
        return f"{run.name} on {tables.count(corpus['n_windows'], 'image')} at {corpus['window']:,} places each."
    return (
        f"{run.name} on {corpus['name']}: {tables.count(corpus['n_windows'], 'window')} of {corpus['window']:,} tokens "
        f"({corpus['n_tokens']:,} tokens, {tables.count(corpus['n_documents'], 'document')})."
    )


def tested(costs: pd.DataFrame, intervals: str) -> str:
    """What stands behind the costs of edits: their intervals ("Bars") and the tokens that were predicted."""
    known = costs["low"].notna() & (costs["low"] < costs["high"])
    said = f"{intervals}: 95% intervals, documents drawn with replacement."
    return join(
        said if known.any() else "There is no interval, as fewer than five documents were read.",
        f"n = {tables.count(costs['n_tokens'].max(), 'predicted token')} of "
        f"{tables.count(costs['n_documents'].max(), 'document')}, from the second half of the windows.",
    )


def measured(run: Run) -> str:
    """Which windows are behind a statistic in both gauges, the first half of which fixes the balanced one."""
    return "from the second half of the windows" if run.manifest["corpus"]["n_windows"] > 1 else "from the one window"


def shading(run: Run) -> str:
    """What the grey layers of a figure are; nothing where all layers are alike."""
    windowed = tables.binding_windows(run)
    if not windowed:
        return dividing(run)
    widths = ", ".join(f"{width:,}" for width in sorted(set(windowed.values())))
    if not tables.full_layers(run):
        return join(f"All layers attend within a sliding window ({widths} tokens).", dividing(run))
    return f"Grey: layers that see all that went before; the others see a sliding window ({widths} tokens)."


def dividing(run: Run) -> str:
    """Where the parts of a model of two stacks lie; nothing for one stack."""
    said = [f"{tables.span(layers)} {part}" for part, layers in tables.parts(run).items()]
    return f"Dotted lines divide {'; '.join(said)}." if len(said) > 1 else ""


def join(*sentences: str) -> str:
    """Sentences in a row, empty ones left out."""
    return " ".join(sentence for sentence in sentences if sentence)

"""One figure of a run as plain matplotlib axes, for notebooks and for figures of one's own."""

from pathlib import Path

from matplotlib.axes import Axes

from geomprobe import tables
from geomprobe.errors import RunError
from geomprobe.figures.catalogue import FIGURES, figures_of
from geomprobe.figures.style import style
from geomprobe.run.reading import Run, open_run


def draw(run: Run | str | Path, name: str, ax: Axes | None = None) -> Axes:
    """Draw a figure of a run's page.

    Parameters
    ----------
    run : Run or path
        A finished run.
    name : str
        The figure's name, as the files in the run's folder `figures` have it.
    ax : matplotlib Axes, optional
        Where it goes; by default a new figure of pyplot, of the size that the page has it in. Figures are made to be
        about nine inches wide.

    Returns
    -------
    matplotlib Axes
        Those that were given or made. A figure of several panels has them inside these.

    Raises
    ------
    InvalidParameter
        Where no figure goes by that name.
    RunError
        Where this run has nothing to draw; the message says why.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    drawing = FIGURES[name]
    reason = missing(opened, name)
    if reason is not None:
        raise RunError(f"This run has no figure {name!r}. {reason}")
    if ax is not None:
        with style():
            return drawing.draw(opened, ax)
    import matplotlib.pyplot as plt  # only where a figure is to be shown

    # Outside of the style: a notebook's backend turns on showing when the first figure is made, and must keep that.
    figure = plt.figure(figsize=drawing.size(opened), layout="constrained", facecolor="white")
    with style():
        drawn = drawing.draw(opened, figure.add_subplot())
        figure.draw_without_rendering()  # ticks are made here, in this style, and not when it is shown
    return drawn


def missing(run: Run, name: str) -> str | None:
    """Why a run has nothing for a figure of the catalogue, in a sentence; None where it has."""
    drawing = FIGURES[name]
    if drawing.kind != tables.kind(run):
        return f"It is of a run of kind {drawing.kind!r}; this one is of kind {tables.kind(run)!r}."
    return drawing.missing(run)


def drawable(run: Run) -> list[str]:
    """The names of the figures that `draw` can draw of a run, in the order of the page."""
    return [name for name in figures_of(run) if FIGURES[name].missing(run) is None]

"""Figures as files: the same bytes from the same run."""

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Final, Generic, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from geomprobe.figures.catalogue import FIGURES, figures_of
from geomprobe.figures.drawing import Drawing, Subject
from geomprobe.figures.style import style
from geomprobe.run.reading import Run

DPI: Final = 150
_FEW: Final = 4  # figures from which helpers are worth their start
_MOST_HELPERS: Final = 8


class Saved(NamedTuple):
    """The files of one figure."""

    png: Path
    svg: Path


class Drawn(Generic[Subject]):
    """Figures that are being drawn: beside what else is done where there are cores for it, else when asked for.

    Parameters
    ----------
    subject : Run or Comparison
        What they are of.
    drawings : mapping from name to Drawing
        Those that the subject has nothing for are left out.
    folder : path
        Where the files go; made where it is missing.
    """

    def __init__(self, subject: Subject, drawings: Mapping[str, Drawing[Subject]], folder: str | Path) -> None:
        self._subject, self._folder = subject, Path(folder)
        self._drawings = {name: drawing for name, drawing in drawings.items() if drawing.missing(subject) is None}
        self._folder.mkdir(parents=True, exist_ok=True)
        self._helpers = self._start_helpers()

    def files(self) -> dict[str, Saved]:
        """Figure's name → its files, without the figures that there is nothing for; waits until all are drawn."""
        for helper in self._helpers:
            helper.join()
        if not self._helpers or any(helper.exitcode for helper in self._helpers):  # here the error comes up, if any
            for name in self._drawings:
                self._save(name)
        return {name: _files(self._folder / name) for name in self._drawings}

    def _start_helpers(self) -> Sequence[BaseProcess]:
        """Copies of this process that draw, one a core; none where torch is loaded, whose threads a copy would lack."""
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" and "torch" not in sys.modules else 1
        if cores < 2 or len(self._drawings) < _FEW:
            return []
        context = get_context("fork")
        waiting = context.SimpleQueue()
        helpers = [context.Process(target=self._help, args=(waiting,)) for _ in range(min(cores, _MOST_HELPERS))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of numpy's threads, which numpy sees to in a fork
            for helper in helpers:
                helper.start()
        for name in (*self._drawings, *[None] * len(helpers)):
            waiting.put(name)
        return helpers

    def _help(self, waiting: SimpleQueue) -> None:
        gc.disable()  # a figure is many small objects in circles, and this process ends soon
        for name in iter(waiting.get, None):
            self._save(name)

    def _save(self, name: str) -> Saved:
        drawing = self._drawings[name]
        return save_picture(partial(drawing.draw, self._subject), drawing.size(self._subject), self._folder / name)


def save_figures(run: Run, folder: str | Path, names: Iterable[str] | None = None) -> dict[str, Saved]:
    """Write PNG and SVG of every figure that the run has something for.

    Parameters
    ----------
    run : Run
        A finished run.
    folder : path
        Where the files go; made where it is missing.
    names : iterable of str, optional
        Figures of the catalogue; by default all that are of such a run.

    Returns
    -------
    dict
        Figure's name → its files, without the figures that this run has nothing for.

    Raises
    ------
    InvalidParameter
        Where a name is not in the catalogue.
    """
    return Drawn(run, {name: FIGURES[name] for name in (figures_of(run) if names is None else names)}, folder).files()


def _files(path: Path) -> Saved:
    return Saved(path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.svg"))


def save_picture(draw: Callable[[Axes], Axes], size: tuple[float, float], path: Path) -> Saved:
    """Write one picture as PNG and SVG.

    Parameters
    ----------
    draw : callable
        Draws into the axes.
    size : (float, float)
        Inches.
    path : Path
        Of the files, without an ending.
    """
    files = _files(path)
    with style():
        figure = Figure(figsize=size, layout="constrained", dpi=DPI)
        draw(figure.add_subplot())
        # Each canvas draws once; savefig would draw twice, first to find out what is there.
        FigureCanvasAgg(figure).print_png(files.png, metadata={"Software": None})
        figure.set_layout_engine("none")  # the places that the first file has
        FigureCanvasSVG(figure).print_svg(files.svg, metadata={"Date": None, "Creator": None})
    return files

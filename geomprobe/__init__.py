"""Measure the lengths, angles and sinks of attention in any pretrained checkpoint."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geomprobe.api import analyze
    from geomprobe.attention.seam import capture
    from geomprobe.errors import GeomprobeError
    from geomprobe.experiment import intervene
    from geomprobe.figures.showing import draw
    from geomprobe.inspection import inspect
    from geomprobe.lab.running import train
    from geomprobe.pages.ledgers import claims
    from geomprobe.pages.page import report
    from geomprobe.run.reading import Run, open_run
    from geomprobe.side_by_side import compare

__version__ = "0.1.0"

# Loaded when first used, so that importing the package stays cheap. No name here is a submodule's.
_HOMES = {
    "analyze": "geomprobe.api",
    "report": "geomprobe.pages.page",
    "claims": "geomprobe.pages.ledgers",
    "capture": "geomprobe.attention.seam",
    "compare": "geomprobe.side_by_side",
    "draw": "geomprobe.figures.showing",
    "inspect": "geomprobe.inspection",
    "intervene": "geomprobe.experiment",
    "GeomprobeError": "geomprobe.errors",
    "train": "geomprobe.lab.running",
    "Run": "geomprobe.run.reading",
    "open_run": "geomprobe.run.reading",
}
__all__ = [
    "GeomprobeError",
    "Run",
    "__version__",
    "analyze",
    "capture",
    "claims",
    "compare",
    "draw",
    "inspect",
    "intervene",
    "open_run",
    "report",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'geomprobe' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

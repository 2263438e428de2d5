"""How figures look: one colour a token class wherever it appears, fonts that come with matplotlib."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

import matplotlib.style

from geomprobe.labels import CLOSED_CLASSES

# Okabe & Ito's palette, told apart by colour-blind readers.
BLACK: Final = "#000000"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#7F7F7F"
PALE: Final = "#E4E4E4"

FUNCTION: Final = VERMILION
CLASS_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "first": BLACK,
        "special": GREY,
        "newline": SKY,
        "punctuation": GREEN,
        "number": ORANGE,
        "subword": PURPLE,
        "content": BLUE,
        "other": GREY,
        "all": GREY,
        "function": FUNCTION,
        **dict.fromkeys(CLOSED_CLASSES, FUNCTION),
    }
)
VECTOR_COLOURS: Final[Mapping[str, str]] = MappingProxyType({"q": ORANGE, "k": BLUE, "v": GREEN})
DEPTH: Final = "viridis"  # colour by layer
AMOUNT: Final = "cividis"  # colour by value

_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "font.family": "DejaVu Sans",
        "font.size": 10.0,
        "axes.titlesize": 10.0,
        "axes.labelsize": 10.0,
        "xtick.labelsize": 9.0,
        "ytick.labelsize": 9.0,
        "legend.fontsize": 9.0,
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": False,
        "axes.titley": 1.0,  # no ticks lie above, so no title has to find its place
        "axes.unicode_minus": True,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "svg.fonttype": "path",
        "svg.hashsalt": "geomprobe",
    }
)


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's defaults with this package's settings on top, for the length of a block."""
    with matplotlib.style.context(["default", dict(_SETTINGS)]):
        yield

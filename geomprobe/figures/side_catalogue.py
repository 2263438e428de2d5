"""The figures of a comparison, in the page's order."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from geomprobe.comparison.comparison import Comparison
from geomprobe.figures.side_differences import SIDE_CLASSES, SIDE_DEPTHS, SIDE_DIFFERENCES, SIDE_OVER
from geomprobe.figures.side_drawing import SideDrawing
from geomprobe.figures.side_layers import SIDE_CLUSTERS, SIDE_ENTROPY, SIDE_FIDELITY, SIDE_NEIGHBOURS, SIDE_SINKS
from geomprobe.figures.side_maps import SIDE_LENGTHS, SIDE_MAPS

SIDE_FIGURES: Final[Mapping[str, SideDrawing]] = MappingProxyType(
    {
        "differences": SIDE_DIFFERENCES,
        "over": SIDE_OVER,
        "sinks": SIDE_SINKS,
        "first_mass_maps": SIDE_MAPS,
        "class_sinks": SIDE_CLASSES,
        "key_lengths": SIDE_LENGTHS,
        "length_and_angle": SIDE_FIDELITY,
        "entropy": SIDE_ENTROPY,
        "clusters": SIDE_CLUSTERS,
        "neighbours": SIDE_NEIGHBOURS,
        "by_depth": SIDE_DEPTHS,
    }
)


def side_figures_of(comparison: Comparison) -> dict[str, SideDrawing]:
    """The figures that a page of this comparison shows or misses: the axis only where there is one."""
    return {name: drawing for name, drawing in SIDE_FIGURES.items() if name != "over" or comparison.over}

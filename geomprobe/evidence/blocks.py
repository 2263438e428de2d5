"""What a section of the evidence's page is made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from geomprobe.pages.parts import PageFigure
from geomprobe.pages.sections import PageTable


@dataclass(frozen=True)
class Item:
    """A line of a list: what stands in bold, and what follows."""

    head: str
    text: str


@dataclass(frozen=True)
class Code:
    """Commands, as they are typed."""

    text: str


Block = str | Code | PageTable | PageFigure | tuple[Item, ...]


@dataclass(frozen=True)
class Section:
    """A section of the page: name (of its place in the page), title, and blocks one below another."""

    name: str
    title: str
    blocks: Sequence[Block]

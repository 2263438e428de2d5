"""The list of notebooks, with a link to each that has been rendered."""

from pathlib import Path
from typing import Final

RENDERED: Final = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
# By the number that a notebook's file begins with.
NOTEBOOKS: Final = {
    1: ("A first look at a checkpoint", "one analysis, and what its tables say"),
    2: ("With and without QK norm", "the two packaged twins side by side"),
    3: ("Where attention sinks, and why it is not length", "position 0, the shortest key, and the most attention"),
    4: ("Clusters and rare words", "what directions know of meaning, and of frequency"),
    5: ("Your own probe in 30 lines", "a statistic, its contract and its table"),
    6: ("Your own model class", "attention that geomprobe has never seen"),
}


def notebook_list() -> str:
    """A numbered list; a notebook that is not rendered yet stands in it without a link."""
    files = sorted(RENDERED.glob("*.html")) if RENDERED.is_dir() else []
    by_number = {int(file.name.split("-")[0].split("_")[0]): file for file in files if file.name[:1].isdigit()}
    lines = []
    for number, (title, says) in NOTEBOOKS.items():
        file = by_number.get(number)
        shown = f"[{title}](notebooks/{file.name})" if file else f"{title} (not rendered yet)"
        lines.append(f"{number}. {shown}: {says}.")
    return "\n".join(lines)

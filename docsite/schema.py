"""What docs/schema.md says of each table, for the pages of probes."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SCHEMA: Final = Path(__file__).resolve().parent.parent / "docs" / "schema.md"


@dataclass(frozen=True)
class TableText:
    """A table of a run, in words.

    Attributes
    ----------
    name : str
    keys, values : str
        Its columns, as the schema lists them.
    section : str
        The heading of the schema under which it is defined; empty where it has none of its own.
    text : str
        What stands there.
    """

    name: str
    keys: str
    values: str
    section: str
    text: str


def schema_tables() -> dict[str, TableText]:
    """Every table that the schema lists, in its order."""
    said = SCHEMA.read_text(encoding="utf-8")
    listed = said.split("## Tables", 1)[1].split("\n### ", 1)[0]
    sections = dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", said, flags=re.MULTILINE | re.DOTALL))
    of_table = {name: heading for heading in sections for name in heading.split(", ")}
    found = {}
    for line in listed.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) == 3 and re.fullmatch(r"[a-z_]+", cells[0]) and cells[0] != "table":
            heading = of_table.get(cells[0], "")
            name, keys, values = cells
            found[name] = TableText(name, keys, values, heading, sections.get(heading, "").strip())
    return found


def anchor(heading: str) -> str:
    """The part of a link that leads to a heading of the schema."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-")

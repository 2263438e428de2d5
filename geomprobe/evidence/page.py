"""The page of the evidence: README.md and evidence.html, with tables and pictures, from records alone."""

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from jinja2 import Environment

from geomprobe.errors import RunError
from geomprobe.evidence.blocks import Code
from geomprobe.evidence.figures import PICTURES, save
from geomprobe.evidence.records import read_records
from geomprobe.evidence.sections import FILES, sections
from geomprobe.evidence.tables import Evidence, contrast_table, number_table, weigh
from geomprobe.evidence.telling import claim_table
from geomprobe.pages import marking
from geomprobe.pages.parts import PageFigure, environment
from geomprobe.pages.sections import PageTable

TITLE: Final = "Does QK Norm do what is said of it? What trained twins show"
MARKDOWN: Final = "README.md"
HTML: Final = "evidence.html"
FIGURES: Final = "figures"
PLAN: Final = "plan.yaml"
_DIGITS: Final = "%.9g"  # those that rounding leaves alone


@dataclass(frozen=True, eq=False)
class EvidencePage:
    """What was written.

    Attributes
    ----------
    readme, html : Path
    tables : tuple of Path
        decisions.csv, contrasts.csv, numbers.csv.
    figures : tuple of Path
    claims : DataFrame
        What decisions.csv holds.
    """

    readme: Path
    html: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    claims: pd.DataFrame


def write_evidence(records_folder: Path, out: Path) -> EvidencePage:
    """Decide every claim on the records of trained twins, and write page, tables and pictures.

    Parameters
    ----------
    records_folder : Path
        <run>.json of each measured run.
    out : Path
        Gets README.md, evidence.html, three tables and figures/*.png, each by rename; nothing else in it is touched.

    Returns
    -------
    EvidencePage

    Raises
    ------
    RunError
        Where there are no records, one is damaged, or `out` is a file.
    """
    evidence = weigh(read_records(records_folder))
    if out.exists() and not out.is_dir():
        raise RunError(f"{str(out)!r} is a file; --out must name a folder.")
    (out / FIGURES).mkdir(parents=True, exist_ok=True)
    claims = claim_table(evidence)
    written = {
        "claims": claims,
        "contrasts": contrast_table(evidence),
        "numbers": number_table(evidence.records),
    }
    files = [_write(out / FILES[name], _csv(table)) for name, table in written.items()]
    figures = draw(evidence, out / FIGURES)
    environment = _environment()
    plan = PLAN if (out / PLAN).is_file() else ""
    made = sections(evidence, claims, figures, _typed(records_folder, out), plan)
    content = {"title": TITLE, "sections": made}
    pages = [_write(out / name, environment.get_template(f"{name}.j2").render(content)) for name in (MARKDOWN, HTML)]
    drawn = tuple(out / figure.png for figure in figures.values() if figure.png)
    return EvidencePage(pages[0], pages[1], tuple(files), drawn, claims)


def draw(evidence: Evidence, folder: Path) -> dict[str, PageFigure]:
    """Draw what there is; a picture that an earlier page had and this one has nothing for goes."""
    made = {}
    for name, picture in PICTURES.items():
        file, missing = folder / f"{name}.png", picture.missing(evidence)
        if missing:
            file.unlink(missing_ok=True)
            made[name] = PageFigure(name, picture.title, picture.alt, "", missing=missing)
            continue
        save(picture, evidence, file)
        source = f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"
        png = f"{FIGURES}/{file.name}"
        made[name] = PageFigure(name, picture.title, picture.alt, picture.caption(evidence), source, png)
    return made


def _typed(records_folder: Path, out: Path) -> str:
    """The records as typed in the page's folder; where they lie elsewhere, a word for them."""
    found = Path(os.path.relpath(records_folder.resolve(), out.resolve()))
    return "RECORDS" if ".." in found.parts else found.as_posix()


def _csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, float_format=_DIGITS)


def _write(file: Path, text: str) -> Path:
    part = file.with_name(f"{file.name}.part")
    part.write_text(text, encoding="utf-8")
    return part.replace(file)


def _environment() -> Environment:
    made = environment("geomprobe.evidence")
    made.filters["sentence"] = lambda text: marking.sentence(text.replace(" − ", "\u00a0−\u00a0"))
    made.filters["kind"] = _kind
    return made


def _kind(block: Any) -> str:
    if isinstance(block, str):
        return "text"
    if isinstance(block, tuple):
        return "items"
    return "code" if isinstance(block, Code) else "table" if isinstance(block, PageTable) else "figure"

"""A run's page: report.html, one file without any reference to the network, and report.md beside it."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from geomprobe import tables
from geomprobe.figures.catalogue import FIGURES, figures_of
from geomprobe.figures.saving import Saved, save_figures
from geomprobe.pages import marking
from geomprobe.pages.findings import findings, paragraphs
from geomprobe.pages.sections import page_tables, parity_table, provenance
from geomprobe.progress import Reporter
from geomprobe.run.reading import Run, open_run

HTML: Final = "report.html"
MARKDOWN: Final = "report.md"
VECTOR_LIMIT: Final = 400_000  # bytes of SVG from which the PNG serves better
PAGE_LIMIT: Final = 7_000_000  # bytes of figures on a page


@dataclass(frozen=True)
class PageFigure:
    """A figure as the page shows it, or the sentence that stands in its place."""

    name: str
    title: str
    alt: str
    caption: str
    source: str = ""
    png: str = ""
    missing: str = ""


def write_page(run: Run, folder: str | Path | None = None) -> Path:
    """Draw the figures, write report.html and report.md; the run's tables are only read.

    Parameters
    ----------
    run : Run
        A finished run.
    folder : path, optional
        Where the pages and their folder `figures` go; the run folder by default.

    Returns
    -------
    Path
        The page, report.html.
    """
    target = run.path if folder is None else Path(folder)
    saved = save_figures(run, target / "figures")
    content = page_content(run, saved)
    environment = _environment()
    for name in (MARKDOWN, HTML):
        text = environment.get_template(f"{name}.j2").render(content)
        part = target / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(target / name)
    return target / HTML


def report(run: Run | str | Path, *, quiet: bool = False) -> Path:
    """Draw a run's figures and write its pages anew.

    Parameters
    ----------
    run : Run or path
    quiet : bool

    Returns
    -------
    Path
        The page, report.html.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    Reporter(quiet=quiet).say(f"drawing the page of {opened.path}")
    return write_page(opened)


def page_content(run: Run, saved: dict[str, Saved]) -> dict[str, Any]:
    """What the templates are filled with."""
    return {
        "run": run,
        "kind": tables.kind(run),
        "model": run.manifest["model"],
        "corpus": run.manifest["corpus"],
        "parity": run.manifest["parity"],
        "paragraphs": paragraphs(findings(run)),
        "figures": page_figures(run, saved),
        "tables": page_tables(run),
        "parity_table": parity_table(run),
        "provenance": provenance(run),
    }


def page_figures(run: Run, saved: dict[str, Saved]) -> list[PageFigure]:
    """The figures that are of such a run, missing ones with the reason; pixels where vectors would be too large."""
    vectors = {name: not FIGURES[name].dense and _size(files.svg) <= VECTOR_LIMIT for name, files in saved.items()}
    if sum(_size(files.svg if vectors[name] else files.png) for name, files in saved.items()) > PAGE_LIMIT:
        vectors = dict.fromkeys(saved, False)
    made = []
    for name in figures_of(run):
        drawing = FIGURES[name]
        if name not in saved:
            reason = drawing.missing(run) or "This figure was not drawn."
            made.append(PageFigure(name, drawing.title, drawing.alt, "", missing=reason))
            continue
        files = saved[name]
        source = _inline(files.svg, "svg+xml") if vectors[name] else _inline(files.png, "png")
        png = f"figures/{files.png.name}"
        made.append(PageFigure(name, drawing.title, drawing.alt, drawing.caption(run), source, png))
    return made


def _size(file: Path) -> int:
    return file.stat().st_size


def _inline(file: Path, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("geomprobe.pages"),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["tokens"] = marking.html
    environment.filters["sentence"] = marking.sentence
    environment.filters["md"] = marking.markdown
    environment.filters["cell"] = marking.markdown_cell
    return environment

"""A run's page: report.html, one file without any reference to the network, and report.md beside it."""

from pathlib import Path
from typing import Any, Final

from geomprobe import tables
from geomprobe.figures.catalogue import FIGURES, figures_of
from geomprobe.figures.drawing import Drawing
from geomprobe.figures.saving import Drawn
from geomprobe.pages.findings import findings, paragraphs
from geomprobe.pages.parts import page_figures, write_templates
from geomprobe.pages.sections import page_tables, parity_table, provenance
from geomprobe.progress import Reporter
from geomprobe.run.reading import Run, open_run

HTML: Final = "report.html"
MARKDOWN: Final = "report.md"


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
    content = page_content(run, Drawn(run, _drawings(run), target / "figures"))
    write_templates(target, {MARKDOWN: f"{MARKDOWN}.j2", HTML: f"{HTML}.j2"}, content)
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


def page_content(run: Run, drawn: Drawn[Run]) -> dict[str, Any]:
    """What the templates are filled with."""
    # plotly, which takes long to import: figures are drawn meanwhile
    from geomprobe.pages.charts import chart_block
    from geomprobe.pages.explorer import explorer

    return {
        "run": run,
        "kind": tables.kind(run),
        "model": run.manifest["model"],
        "corpus": run.manifest["corpus"],
        "parity": run.manifest["parity"],
        "paragraphs": paragraphs(findings(run)),
        "explorer": explorer(run),
        "tables": page_tables(run),
        "parity_table": parity_table(run),
        "provenance": provenance(run),
        "figures": page_figures(run, _drawings(run), drawn, chart_block),  # last, as they are drawn meanwhile
    }


def _drawings(run: Run) -> dict[str, Drawing[Run]]:
    """Those that are of such a run."""
    return {name: FIGURES[name] for name in figures_of(run)}

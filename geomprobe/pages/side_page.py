"""The page of a comparison: compare.html, one file without any reference to the network, and its tables for a paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from geomprobe.comparison.comparison import Comparison
from geomprobe.errors import InvalidParameter, one_of
from geomprobe.figures.saving import Drawn
from geomprobe.figures.side_catalogue import side_figures_of
from geomprobe.pages.findings import paragraphs
from geomprobe.pages.parts import page_figures, write_templates
from geomprobe.pages.side_findings import command, side_findings
from geomprobe.pages.side_tables import latex, side_tables

HTML, MARKDOWN, LATEX = "compare.html", "compare.md", "compare.tex"
FORMATS: Final = ("html", "md", "latex", "csv")


def chosen_formats(formats: str | Sequence[str]) -> tuple[str, ...]:
    """The formats that are asked for, as words or separated by commas.

    Raises
    ------
    InvalidParameter
        Where there is none, or one is unknown.
    """
    given = formats.split(",") if isinstance(formats, str) else list(formats)
    names = tuple(dict.fromkeys(name.strip() for name in given if name.strip()))
    if not names:
        raise InvalidParameter(f"format must name at least one of {', '.join(FORMATS)}.")
    for name in names:
        one_of("format", name, FORMATS)
    return names


def write_comparison(comparison: Comparison, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Draw the figures and write what is asked for; the files, pages first.

    Parameters
    ----------
    comparison : Comparison
    folder : Path
        Made where it is missing.
    formats : sequence of {"html", "md", "latex", "csv"}
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    if "html" in formats or "md" in formats:
        _ = comparison.tables  # before there are copies of this process, each of which would make them
        drawn = Drawn(comparison, side_figures_of(comparison), folder / "figures")
        names = {"html": HTML, "md": MARKDOWN}
        wanted = {names[one]: f"{names[one]}.j2" for one in ("html", "md") if one in formats}
        write_templates(folder, wanted, side_content(comparison, drawn))
        files += [folder / name for name in wanted]
    if "latex" in formats:
        files.append(_written(folder / LATEX, latex(comparison)))
    if "csv" in formats:
        for name, table in comparison.tables.items():
            files.append(_written(folder / f"{name}.csv", table.to_csv(index=False)))
    return files


def _written(path: Path, text: str) -> Path:
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    return part.replace(path)


def side_content(comparison: Comparison, drawn: Drawn[Comparison]) -> dict[str, Any]:
    """What the templates are filled with."""
    from geomprobe.pages.side_charts import (
        side_chart,  # plotly, which takes long to import: figures are drawn meanwhile
    )

    made = {
        "labels": comparison.labels,
        "corpus": comparison.sides.runs[0].manifest["corpus"],
        "paragraphs": paragraphs(side_findings(comparison)),
        "tables": side_tables(comparison),
        "runs": [
            {"label": label, "path": str(run.path.name), "manifest": run.manifest}
            for label, run in zip(comparison.labels, comparison.sides.runs, strict=True)
        ],
        "command": command(comparison),
    }
    # Last, as they are drawn meanwhile.
    figures = page_figures(comparison, side_figures_of(comparison), drawn, side_chart)
    return {**made, "figures": figures, "charts": any(one.chart for one in figures)}

"""What pages are put together from: figures with their data and charts, and the environment of the templates."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from geomprobe.figures.drawing import Drawing, Subject
from geomprobe.figures.saving import Drawn, Saved
from geomprobe.pages import marking
from geomprobe.pages.embedding import PageData, page_data
from geomprobe.pages.scripts import scripts

VECTOR_LIMIT: Final = 250_000  # bytes of SVG from which the PNG serves better
PICTURE_LIMIT: Final = 3_500_000  # bytes of pictures on a page; scripts and data take the rest of its 8 MB


@dataclass(frozen=True)
class PageFigure:
    """A figure as a page shows it, or the sentence that stands in its place.

    Attributes
    ----------
    name : str
        Its id on the page.
    title, alt, caption : str
    source : str
        The picture, as a data URI; empty where there is none.
    png : str
        The picture's file beside the page, for Markdown.
    missing : str
        Why there is no picture.
    data : PageData, optional
        The rows behind it.
    chart : Markup, optional
        The interactive version, as JSON for plotly (`charts.chart_block`).
    """

    name: str
    title: str
    alt: str
    caption: str
    source: str = ""
    png: str = ""
    missing: str = ""
    data: PageData | None = None
    chart: Markup | None = None


def page_figures(
    subject: Subject,
    drawings: Mapping[str, Drawing[Subject]],
    drawn: Drawn[Subject],
    chart: Callable[[str, Subject], Markup | None],
) -> list[PageFigure]:
    """The figures of a page, missing ones with the reason.

    Their data and charts come first, as the pictures are drawn meanwhile.

    Parameters
    ----------
    subject : Run or Comparison
    drawings : mapping from name to Drawing
    drawn : Drawn
        Of these drawings.
    chart : callable
        ``(name, subject)`` → a figure's interactive version, if it has one.
    """
    made = [_unpictured(name, drawing, subject, chart) for name, drawing in drawings.items()]
    saved = drawn.files()
    pictures = sources(saved, {name: drawings[name].dense for name in saved})
    return [
        replace(one, source=pictures[one.name], png=f"figures/{saved[one.name].png.name}") if one.name in saved else one
        for one in made
    ]


def _unpictured(
    name: str, drawing: Drawing[Subject], subject: Subject, chart: Callable[[str, Subject], Markup | None]
) -> PageFigure:
    """All of a figure but its picture, or why there is none."""
    missing = drawing.missing(subject)
    if missing is not None:
        return PageFigure(name, drawing.title, drawing.alt, "", missing=missing)
    rows, shown = page_data(name, drawing.data(subject)), chart(name, subject)
    return PageFigure(name, drawing.title, drawing.alt, drawing.caption(subject), data=rows, chart=shown)


def sources(saved: Mapping[str, Saved], dense: Mapping[str, bool]) -> dict[str, str]:
    """Pictures as data URIs: vectors, but pixels where a picture is dense or vectors would be too large.

    Parameters
    ----------
    saved : mapping
        Figure's name → its files.
    dense : mapping
        Figure's name → whether pixels serve it better.
    """
    vectors = {name: not dense[name] and _size(files.svg) <= VECTOR_LIMIT for name, files in saved.items()}
    if sum(_size(files.svg if vectors[name] else files.png) for name, files in saved.items()) > PICTURE_LIMIT:
        vectors = dict.fromkeys(saved, False)
    return {
        name: _inline(files.svg, "svg+xml") if vectors[name] else _inline(files.png, "png")
        for name, files in saved.items()
    }


def _size(file: Path) -> int:
    return 4 * file.stat().st_size // 3  # in base64


def _inline(file: Path, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"


def environment(*packages: str) -> Environment:
    """The templates of these packages, then of this one, with the filters for tokens and sentences.

    `scripts` is what lets pages act.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "geomprobe.pages")]),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["tokens"] = marking.html
    made.filters["sentence"] = marking.sentence
    made.filters["md"] = marking.markdown
    made.filters["cell"] = marking.markdown_cell
    made.globals["scripts"] = scripts
    return made


def write_templates(folder: Path, names: Mapping[str, str], content: Mapping[str, object]) -> None:
    """Fill templates and write each by rename.

    Parameters
    ----------
    folder : Path
    names : mapping
        File's name → template's.
    content : mapping
        What they are filled with.
    """
    made = environment()
    for name, template in names.items():
        part = folder / f"{name}.part"
        part.write_text(made.get_template(template).render(content), encoding="utf-8")
        part.replace(folder / name)

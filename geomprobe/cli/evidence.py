"""`geomprobe evidence`: which claims hold, from the records of trained twins, as a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from geomprobe.evidence.page import EvidencePage

_WIDE = 120  # columns where the output is no terminal


def evidence(
    records: Annotated[
        Path, typer.Argument(help="A folder with a record of each measured run of `geomprobe sweep`: <run>.json.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Gets page, tables and pictures. [default: the folder above]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the page's path, no verdicts.")] = False,
) -> None:
    """Decide on the articles' claims by trained twins; leave a page with its tables and pictures; print its path.

    Writes README.md, evidence.html, decisions.csv, contrasts.csv, numbers.csv and figures/*.png, in place of older
    ones; all else in the folder is left alone.
    """
    from geomprobe.evidence.page import write_evidence

    made = write_evidence(records, out if out is not None else records.resolve().parent)
    if not quiet:
        _print(made)
    typer.echo(made.readme)


def _print(made: "EvidencePage") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from geomprobe.cli.claims import COLOURS
    from geomprobe.ledger.writing import WORDS

    console = Console()
    console = console if console.is_terminal else Console(width=_WIDE)
    shown = Table(title="Which claims hold in these twins", title_justify="left", pad_edge=False, show_lines=True)
    for title in ("", "claim", "verdict", "seeds", "what was seen"):
        shown.add_column(title, overflow="fold")
    for claim, title, verdict, n_seeds, sentence in zip(
        *(made.claims[name] for name in ("claim", "title", "verdict", "n_seeds", "sentence")), strict=True
    ):
        told = f"[{COLOURS[verdict]}]{WORDS[verdict]}[/]"
        shown.add_row(claim, title, told, str(n_seeds), escape(sentence))
    console.print(shown)

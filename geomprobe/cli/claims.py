"""`geomprobe claims`: which claims hold, from the tables of finished runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

_WIDE = 150  # columns where the output is no terminal
COLOURS = {
    "supported": "bold green",
    "refuted": "bold red",
    "inconclusive": "bold",
    "not_identified": "bold magenta",
    "not_tested": "dim",
}
if TYPE_CHECKING:
    from geomprobe.pages.ledgers import Claims


def claims(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders of `geomprobe analyze`, and of `geomprobe intervene` on the same checkpoint for what "
            "needs edits; several checkpoints have a ledger each."
        ),
    ],
    family: Annotated[
        bool, typer.Option("--family", help="Count over model families on which side of each threshold they lie.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the ledgers as Markdown, CSV and pictures. [default: print only]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the paths that were written, no table.")] = False,
) -> None:
    """Decide on the articles' claims about length, angle and sinks by fixed rules; print a ledger a checkpoint."""
    from geomprobe.pages.ledgers import claims as decide

    found = decide(runs, family=family, out=out)
    if not quiet:
        _print(found)
    for file in found.files:
        typer.echo(file)


def _print(found: "Claims") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from geomprobe.ledger.writing import WORDS

    console = Console()
    console = console if console.is_terminal else Console(width=_WIDE)
    for ledger in found.ledgers:
        shown = Table(
            title=f"{escape(ledger.name)}: which claims hold", title_justify="left", pad_edge=False, show_lines=True
        )
        for title in ("", "claim", "verdict", "what was seen"):
            shown.add_column(title, overflow="fold")
        for row in ledger.claims.to_dict("records"):
            verdict = f"[{COLOURS[row['verdict']]}]{WORDS[row['verdict']]}[/]"
            shown.add_row(row["claim"], row["title"], verdict, escape(row["sentence"]))
        console.print(shown)
        console.print(
            f"m = {ledger.n_primary} primary endpoints, decided together by Holm's procedure; thresholds of "
            f"{ledger.dated.isoformat()}. A verdict is about this checkpoint alone.\n",
            highlight=False,
        )
    if found.pooled is not None:
        signs = Table(title="Signs over families", title_justify="left", pad_edge=False)
        for title in ("claim", "quantity", "families", "on the claim's side", "p", "smallest p"):
            signs.add_column(title)
        for row in found.pooled.to_dict("records"):
            p = ["–" if row[name] != row[name] else f"{row[name]:.3g}" for name in ("p", "p_smallest")]
            signs.add_row(row["claim"], row["quantity"], str(row["n_families"]), str(row["n_for"]), *p)
        console.print(signs)

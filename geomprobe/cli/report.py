"""`geomprobe report`: draw a run's page anew."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Draw the figures and the page of a finished run anew; print the page's path."""
    from geomprobe.pages.page import report as draw

    typer.echo(draw(run, quiet=quiet))

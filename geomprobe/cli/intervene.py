"""`geomprobe intervene`: edit queries and keys while a model reads, and print what it costs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

_WIDE = 150  # columns where the output is no terminal
if TYPE_CHECKING:
    from geomprobe.run.reading import Run


def intervene(
    model: Annotated[str, typer.Option("--model", "-m", help="As `geomprobe analyze` takes it.")],
    edit: Annotated[
        list[str],
        typer.Option(
            help="sham, neutral_norm, permute_norm, swap_angle[:DOSE, :neutral_norm or :permute_norm], neutral_query, "
            "temperature:BETA, scale_class:CLASS:DELTA, equalise_class:CLASS or scalar_gain; with @balanced behind it, "
            "in the balanced gauge; repeatable."
        ),
    ],
    layers: Annotated[str | None, typer.Option(help="Attention layers, as in 0,3-5. [default: all]")] = None,
    one_by_one: Annotated[bool, typer.Option("--one-by-one", help="Each layer by itself, too.")] = False,
    text: Annotated[list[Path] | None, typer.Option("--text", help="A text file or a folder; repeatable.")] = None,
    dataset: Annotated[str | None, typer.Option(help="A hub data set instead: owner/name[:split[:column]].")] = None,
    language: Annotated[str, typer.Option(help="Whose function words are looked up.")] = "en",
    window: Annotated[
        int | None, typer.Option(help="Tokens a window. [default: 512, or the model's positions]")
    ] = None,
    windows: Annotated[int | None, typer.Option(help="How many; half of them are tested. [default: 32]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Windows a forward pass.")] = None,
    seed: Annotated[int, typer.Option(help="Of shuffled lengths and swapped directions.")] = 0,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub repository.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    device_map: Annotated[str | None, typer.Option(help="Spread a large model: auto, balanced, …")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that the repository brings.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The run folder. [default: runs/MODEL.CORPUS.HASH]")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there.")] = False,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Draw figures and the page; `geomprobe report` does so later.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no table.")] = False,
) -> None:
    """Hand the attention kernel other queries and keys than the model made; print the cost, leave a page."""
    from geomprobe.experiment import intervene as run_trial

    run = run_trial(
        model,
        edit,
        layers=None if layers is None else parse_layers(layers),
        one_by_one=one_by_one,
        text=text or None,
        dataset=dataset,
        language=language,
        window=window,
        windows=windows,
        seed=seed,
        batch_size=batch_size,
        loading={
            "revision": revision,
            "dtype": dtype,
            "device": device,
            "device_map": device_map,
            "trust_remote_code": trust_remote_code,
        },
        out=out,
        overwrite=overwrite,
        page=page,
        quiet=quiet,
    )
    if not quiet:
        _print_table(run)
    typer.echo(run.path)


def parse_layers(text: str) -> list[int]:
    """Layers from "0,3-5".

    Raises
    ------
    InvalidParameter
        Where it is none of that form.
    """
    from geomprobe.errors import InvalidParameter

    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        high = high if dash else low
        if not (low.isdecimal() and high.isdecimal() and int(low) <= int(high)):
            raise InvalidParameter(f"layers must be numbers and ranges, as in 0,3-5; got {text!r}.")
        found += range(int(low), int(high) + 1)
    return found


def _signed(value: float) -> str:
    """A signed number; – where there is none."""
    return "–" if value != value else f"{value:+.3f}"


def _print_table(run: "Run") -> None:
    from rich.console import Console
    from rich.table import Table

    from geomprobe import edit_tables

    console = Console(stderr=True)
    console = console if console.is_terminal else Console(stderr=True, width=_WIDE)
    shown = Table(box=None, pad_edge=False, title=f"{run.name}: what edits cost", title_justify="left")
    for title in (
        "edit",
        "layers",
        "loss, nats a token",
        "95 %",
        "KL",
        "Λ of function words",
        "keys moved by",
        "loss per move",
    ):
        shown.add_column(title, overflow="fold")
    for row in edit_tables.edit_costs(run).to_dict("records"):
        interval = "–" if row["low"] != row["low"] else f"{row['low']:+.4f} to {row['high']:+.4f}"
        shown.add_row(
            str(row["setting"]),
            str(row["layers"]),
            f"{row['delta_ce']:+.4f}",
            interval,
            f"{row['kl']:.4f}",
            _signed(row["delta_class_sink"]),
            f"{row['displacement']:.1%}",
            _signed(row["per_displacement"]),
        )
    console.print(shown)

"""`geomprobe compare`: checkpoints held against each other."""

from pathlib import Path
from typing import Annotated, Any

import typer

from geomprobe.cli.analyze import Bos


def compare(
    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            help="Run folders, or what --model of `geomprobe analyze` takes (then it is analyzed first); the first is "
            "what the others are held against. [default: plain qknorm, the packaged pair]"
        ),
    ] = None,
    over: Annotated[
        str | None, typer.Option(help="String the runs along their training step (step) or size (params).")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="Of html, md, latex and csv, separated by commas.")
    ] = "html,md",
    out: Annotated[
        Path | None, typer.Option(help="The folder of what is written. [default: comparisons/FIRST.vs.OTHER.HASH]")
    ] = None,
    text: Annotated[
        list[Path] | None, typer.Option("--text", help="Of models: a text file, or a folder of *.txt; repeatable.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Of models: a hub data set instead: owner/name[:split[:column]].")
    ] = None,
    language: Annotated[str | None, typer.Option(help="Of models: whose function words are looked up.")] = None,
    window: Annotated[int | None, typer.Option(help="Of models: tokens a window.")] = None,
    windows: Annotated[int | None, typer.Option(help="Of models: how many windows.")] = None,
    bos: Annotated[Bos | None, typer.Option(help="Of models: BOS in front of each window.")] = None,
    probes: Annotated[str | None, typer.Option(help="Of models: which probes; all for all.")] = None,
    categories: Annotated[Path | None, typer.Option(help="Of models: categories for clusters.")] = None,
    max_types: Annotated[int | None, typer.Option(help="Of models: words of clusters, and of neighbours.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Of models: auto, float32, bfloat16 or float16.")] = None,
    device: Annotated[str | None, typer.Option(help="Of models: auto, cpu, cuda, cuda:N or mps.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Of models: run Python code that the repository brings.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Hold checkpoints against each other on the same documents; leave a page and tables; print their folder."""
    from geomprobe.side_by_side import compare as run_comparison

    given: dict[str, Any] = {
        "text": text or None,
        "dataset": dataset,
        "language": language,
        "window": window,
        "windows": windows,
        "bos": bos.value if bos else None,
        "probes": probes,
        "categories": categories,
        "max_types": max_types,
        "dtype": dtype,
        "device": device,
        "trust_remote_code": trust_remote_code or None,
    }
    comparison = run_comparison(
        *(subjects or ()),
        over=over,
        formats=format_,
        out=out,
        quiet=quiet,
        **{name: value for name, value in given.items() if value is not None},
    )
    typer.echo(comparison.files[0].parent)

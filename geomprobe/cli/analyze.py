"""`geomprobe analyze`: from a checkpoint to a run folder."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Bos(StrEnum):
    """Whether a BOS token stands in front of each window."""

    default = "default"
    always = "always"
    never = "never"


def analyze(
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="A hub id, an alias (`geomprobe models` lists them), a folder or a .gguf file."
        ),
    ] = "plain",
    text: Annotated[
        list[Path] | None,
        typer.Option(
            "--text", help="A text file, or a folder of *.txt; repeatable. Default: State of the Union addresses."
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="A hub data set instead: owner/name[:split[:column]].")] = None,
    input_: Annotated[
        list[Path] | None,
        typer.Option("--input", help="An image, or a folder of them, for a model that looks at images; repeatable."),
    ] = None,
    language: Annotated[str, typer.Option(help="Whose function words are looked up.")] = "en",
    window: Annotated[
        int | None, typer.Option(help="Tokens a window. [default: 512, or the model's positions]")
    ] = None,
    windows: Annotated[int | None, typer.Option(help="How many windows. [default: 32, or every image]")] = None,
    tokens: Annotated[int | None, typer.Option(help="Or how many tokens in all.")] = None,
    bos: Annotated[
        Bos, typer.Option(help="BOS in front of each window: as the tokenizer does, always or never.")
    ] = Bos.default,
    allow_short: Annotated[
        bool, typer.Option("--allow-short", help="Take fewer windows where the text has no more.")
    ] = False,
    probes: Annotated[
        str | None,
        typer.Option(help="Which probes, separated by commas; all for all. [default: all but clusters, neighbours]"),
    ] = None,
    categories: Annotated[
        Path | None, typer.Option(help="Categories for clusters, a line each: name: word word …. [default: packaged]")
    ] = None,
    context: Annotated[int, typer.Option(help="Tokens of a word's window, the word included.")] = 64,
    max_types: Annotated[int, typer.Option(help="Words of clusters, and of neighbours.")] = 400,
    reference: Annotated[str, typer.Option(help="Of meaning, for neighbours: glove, wordnet or a file.")] = "",
    batch_size: Annotated[
        int | None, typer.Option(help="Windows a forward pass. [default: what suits the device]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides which words and contexts are drawn.")] = 0,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub repository.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    device_map: Annotated[str | None, typer.Option(help="Spread a large model: auto, balanced, …")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that the repository brings.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The run folder. [default: runs/MODEL.CORPUS.HASH]")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write the tables as CSV besides.")] = False,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Draw figures and the page; `geomprobe report` does so later.")
    ] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Watch a checkpoint's attention on real text; leave tables, figures and a page; print the run folder."""
    from geomprobe.api import analyze as run_analysis

    run = run_analysis(
        model,
        text=text or None,
        dataset=dataset,
        input=input_ or None,
        language=language,
        window=window,
        windows=windows,
        tokens=tokens,
        bos=bos.value,
        allow_short=allow_short,
        probes=probes,
        categories=categories,
        context=context,
        max_types=max_types,
        reference=reference,
        batch_size=batch_size,
        seed=seed,
        revision=revision,
        dtype=dtype,
        device=device,
        device_map=device_map,
        trust_remote_code=trust_remote_code,
        out=out,
        overwrite=overwrite,
        csv=csv,
        page=page,
        quiet=quiet,
    )
    typer.echo(run.path)

"""`geomprobe train`: a small decoder, with or without QK norm, from texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from geomprobe.lab.arms import Arm


def train(
    arm: Annotated[
        str, typer.Option(help="What happens to queries and keys: A0 nothing, A1 RMS norm, … A9; --arms lists them.")
    ] = "A1",
    qk_norm: Annotated[str | None, typer.Option(help="An arm of your own: none, rms, rms_gainless or l2.")] = None,
    axis: Annotated[str | None, typer.Option(help="Norm over each head, or full.")] = None,
    order: Annotated[str | None, typer.Option(help="before_rope or after_rope.")] = None,
    scale: Annotated[str | None, typer.Option(help="rsqrt_d, one or learned.")] = None,
    seed: Annotated[int, typer.Option(help="Of the weights and of the order of the data.")] = 0,
    preset: Annotated[str, typer.Option(help="nano, micro, small, or backcopy.")] = "nano",
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", help="A text file, or a folder of *.txt; repeatable. Default: State of the Union."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="A hub data set instead: owner/name[:split[:column]].")] = None,
    task: Annotated[str | None, typer.Option(help="text, or backcopy, which needs none.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens seen in training.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a sequence.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Sequences a step.")] = None,
    rate: Annotated[float | None, typer.Option("--lr", help="The highest learning rate.")] = None,
    warmup: Annotated[float | None, typer.Option(help="Share of the steps in which the rate rises.")] = None,
    decay: Annotated[float | None, typer.Option("--weight-decay", help="Of matrices.")] = None,
    clip: Annotated[float | None, typer.Option(help="Greatest norm of the gradient; 0 for none.")] = None,
    renamed: Annotated[
        int | None, typer.Option("--rename", help="Frequent words that get a second token in part.")
    ] = None,
    bos: Annotated[bool, typer.Option("--bos", help="Begin each sequence with the token that ends documents.")] = False,
    vocab_size: Annotated[int | None, typer.Option(help="Of the tokenizer that is learned.")] = None,
    hidden: Annotated[int | None, typer.Option(help="Width of the residual stream.")] = None,
    intermediate: Annotated[int | None, typer.Option(help="Width of the feed-forward part.")] = None,
    layers: Annotated[int | None, typer.Option(help="Layers.")] = None,
    heads: Annotated[int | None, typer.Option(help="Query heads.")] = None,
    kv_heads: Annotated[int | None, typer.Option(help="Key heads.")] = None,
    head_dim: Annotated[int | None, typer.Option(help="Width of a head.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Of the products: float32 or bfloat16.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Through torch.compile. [default: on a GPU]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder. [default: trained/SIZE.ARM.sSEED.HASH]")] = None,
    arms: Annotated[bool, typer.Option("--arms", help="List the arms.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Drop a training that is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Train a small decoder in which one factor is chosen; leave its checkpoints; print the folder."""
    if arms:
        _list_arms()
        return
    from geomprobe.lab.arms import find_arm
    from geomprobe.lab.recipe import preset as find_preset
    from geomprobe.lab.running import train as run_training
    from geomprobe.lab.running import with_size

    given = {
        "task": task,
        "tokens": tokens,
        "length": length,
        "batch": batch_size,
        "rate": rate,
        "warmup": warmup,
        "decay": decay,
        "clip": clip,
        "renamed": renamed,
        "bos": bos or None,
        "dtype": dtype,
    }
    own = {"qk_norm": qk_norm, "axis": axis, "order": order, "scale": scale}
    chosen = _own_arm(own) if any(own.values()) else find_arm(arm)
    recipe = find_preset("backcopy" if task == "backcopy" else preset, arm=chosen, seed=seed, **_given(given))
    recipe = with_size(
        recipe,
        vocab_size=vocab_size,
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )
    trained = run_training(
        recipe,
        text=list(text) if text else None,
        dataset=dataset,
        out=out,
        device=device,
        compiled=compiled,
        overwrite=overwrite,
        quiet=quiet,
    )
    typer.echo(trained.path)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _own_arm(fields: Mapping[str, str | None]) -> "Arm":
    from geomprobe.lab.arms import Arm

    return Arm(**_given(fields))


def _list_arms() -> None:
    from geomprobe.lab.arms import IN_WORDS

    for name, words in IN_WORDS.items():
        typer.echo(f"{name}  {words}")

"""`geomprobe inspect`: what a model's attention is, and whether it can be captured."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from geomprobe.inspection import Anatomy, LayerAnatomy

_WIDE = 150  # columns where the output is no terminal, so that a pipe gets whole lines
DEFAULT_TOKENS = 32 * 512  # of an analysis
OVERHEAD = 1.5  # of a watched pass over a plain one (benchmarks/pass_ratio.py)


def inspect(
    model: Annotated[
        str, typer.Option("--model", "-m", help="A hub id, a short name, a local folder or a .gguf file.")
    ],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub repository.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    device_map: Annotated[str | None, typer.Option(help="Spread a large model: auto, balanced, …")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that the checkpoint brings.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what a checkpoint's attention is, layer by layer, and whether what is captured is the model's own."""
    from geomprobe.inspection import inspect as look

    found = look(
        model,
        revision=revision,
        dtype=dtype,
        device=device,
        device_map=device_map,
        trust_remote_code=trust_remote_code,
    )
    if as_json:
        _print_json(found)
    else:
        _print_table(model, found)


def _print_json(found: "Anatomy") -> None:
    import json

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else str(value)

    typer.echo(json.dumps({**asdict(found), "trusted": found.trusted}, default=plain, indent=2, allow_nan=True))


def _print_table(name: str, found: "Anatomy") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console = console if console.is_terminal else Console(width=_WIDE)
    softmax = [layer for layer in found.layers if layer.kind == "softmax"]
    table = Table(box=None, pad_edge=False, title=f"{name} ({found.model})", title_justify="left")
    titles = (
        "layers",
        "heads",
        "width",
        "window",
        "scale",
        "cap",
        "sinks",
        "rotation",
        "norm of q",
        "norm of k",
        "of v",
        "stages",
    )
    for title in titles:
        table.add_column(title, overflow="fold")
    for numbers, row in _grouped(softmax):
        table.add_row(numbers, *row)
    console.print(table)
    for line in _remarks(found):
        console.print(line, highlight=False)


def _grouped(layers: "list[LayerAnatomy]") -> list[tuple[str, tuple[str, ...]]]:
    """Rows with the numbers of the layers that share them, in order of first appearance."""
    rows: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    stacks = {_stack(layer) for layer in layers}
    for layer in layers:
        name = _stack(layer) if len(stacks) > 1 else ""
        rows.setdefault((name, _row(layer)), []).append(layer.layer)
    return [(f"{name} {_ranges(numbers)}".strip(), row) for (name, row), numbers in rows.items()]


def _stack(layer: "LayerAnatomy") -> str:
    """The layer's name without its numbers: encoder and decoder, self- and cross-attention stay apart."""
    return ".".join(part for part in layer.module.split(".") if not part.isdecimal())


def _ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}–{part[-1]}" for part in parts)


def _row(layer: "LayerAnatomy") -> tuple[str, ...]:
    turn = layer.rotary
    share = "" if turn is None or turn.share == 1 else f" of {turn.share:.0%}"
    return (
        f"{layer.q_heads} q, {layer.kv_heads} k" + (f", {layer.calls} products" if layer.calls > 1 else ""),
        str(layer.head_dim),
        "–" if layer.window is None else f"{layer.window} (chunks)" if layer.chunked else str(layer.window),
        f"{layer.scale:.4g}",
        "–" if layer.softcap is None else f"{layer.softcap:g}",
        layer.sinks or "–",
        "none" if turn is None else f"{turn.kind}{share}",
        *(_norm(layer, vector) for vector in ("q", "k", "v")),
        _stages(layer),
    )


def _stages(layer: "LayerAnatomy") -> str:
    """What will be captured: every stage of every vector, or of which only the vectors as scored."""
    partly = [vector for vector, stages in layer.stages.items() if "content" not in stages]
    return "all" if not partly else f"scored only of {', '.join(partly)}"


def _norm(layer: "LayerAnatomy", vector: str) -> str:
    norm = getattr(layer, f"{vector}_norm")
    verdict = layer.verdict[vector].replace("_", " ")
    if norm is None:
        return f"keys of {layer.shares_with}" if vector == "k" and layer.shares_with else verdict
    text = str(norm).replace("_rope", " rotation")
    return text if verdict == "norm" else f"{verdict}: {text}"


def _remarks(found: "Anatomy") -> list[str]:
    lines = [f"skipped: {layer.module}: {layer.reason}" for layer in found.layers if layer.kind == "skipped"]
    lines += [f"note: {layer.module}: {note}" for layer in found.layers for note in layer.notes]
    agreed = found.agreement
    word = "agrees with the model's own" if found.trusted else "DOES NOT agree with the model's own"
    lines.append(
        f"parity: attention rebuilt from what is captured {word}: off by {agreed.attention:.1e} in probabilities and "
        f"{agreed.output:.1e} in outputs (allowed {agreed.tolerance:.1e}); watching changes the output by "
        f"{agreed.watched:.1g}"
    )
    seconds = found.seconds_a_token * DEFAULT_TOKENS * OVERHEAD
    lines.append(
        f"an analysis of {DEFAULT_TOKENS:,} tokens will take about {_duration(seconds)} here, after loading; weights "
        f"take {found.parameter_bytes / 2**30:.2f} GiB, logits at most 1 GiB besides"
    )
    return lines


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"

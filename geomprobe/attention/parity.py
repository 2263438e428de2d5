"""Proof, on the user's own model, that what is captured is what the model computes."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import Module
from transformers import PreTrainedConfig

from geomprobe.attention.batch import Tokens, Visibilities, blocks, make_batch
from geomprobe.attention.call import AttentionCall
from geomprobe.attention.seam import Seen, logits, no_attention, watching
from geomprobe.attention.spec import ModelSpec
from geomprobe.errors import ParityError, UnsupportedModel
from geomprobe.labels import WHOLE_MODEL
from geomprobe.models.calling import run, text_inputs

# How far rebuilt probabilities may be off at logits of usual size. A scale off by a thousandth shows as 7e-4 and one
# channel in the wrong place as .8, so these bounds mean something. Eager softmax is float32 in a float64 model too.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def tolerance_of(call: AttentionCall) -> float:
    """How far off rounding alone may put the probabilities of a layer.

    An error δ of each logit moves a probability by at most δ/2. In half precision the product is summed in float32,
    rounded, and rounded again when it is scaled: δ ≤ ε·max|s|. In float32 and float64 the sum itself is rounded, on
    both sides: δ ≤ ε·scale·‖q‖·‖k‖.
    """
    dtype = call.query.dtype
    epsilon = torch.finfo(dtype).eps
    if dtype in (torch.float16, torch.bfloat16):
        s = logits(call.query.float(), call, call.key.float())
        rounding = epsilon / 2 * float(s[torch.isfinite(s)].abs().max())
    else:
        longest = (float(x.cpu().double().norm(dim=-1).max()) for x in (call.query, call.key))
        rounding = epsilon / 2 * call.scale * math.prod(longest)
    return max(TOLERANCE.get(dtype, 1e-5), rounding)


PROBE_TOKENS = 64
MOST_PROBE_TOKENS = 2048  # a window longer than this stays out of the proof: it would need a tensor of that square


def probe_length(spec: ModelSpec, window: int) -> int:
    """Tokens for the self-check: a short text, or one that outruns the model's sliding windows where the pass does."""
    sliding = [layer.window for layer in spec.layers if layer.window is not None and layer.window < window]
    wanted = max([PROBE_TOKENS, *(size + 32 for size in sliding if size + 32 <= MOST_PROBE_TOKENS)])
    return min(window, wanted)


@contextmanager
def eager(model: Any) -> Iterator[None]:
    """The model on its eager attention, with eager's own masks; back on its own kernel afterwards."""
    owned = (getattr(m, "config", None) for m in model.modules())
    configs: dict[int, Any] = {id(config): config for config in owned if isinstance(config, PreTrainedConfig)}
    for config in list(configs.values()):
        for name in getattr(config, "sub_configs", {}):
            sub = getattr(config, name, None)
            if sub is not None:
                configs[id(sub)] = sub
    before = [
        (c, c._attn_implementation_internal) for c in configs.values() if hasattr(c, "_attn_implementation_internal")
    ]
    try:
        with suppress(ValueError, NotImplementedError):  # a model without kernels to choose from
            model.set_attn_implementation("eager")
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def _plain_tokens(query: Tensor) -> Tokens:
    nothing = torch.zeros(query.shape[0], query.shape[2], dtype=torch.int64, device=query.device)
    return Tokens(nothing, nothing, nothing, nothing, nothing[:, 0], torch.ones_like(nothing, dtype=torch.bool))


def rebuilt(seen: Seen, *, rows: int | None = None) -> Tensor:
    """Attention put together from the very blocks that the probes get: (batch, q_head, pos, pos)."""
    tokens = _plain_tokens(seen.call.query)
    visibility = Visibilities().of(seen.call, tokens.valid)
    batch = make_batch(seen, 0, tokens, visibility)
    n, heads, length, _ = seen.call.query.shape
    wide = torch.promote_types(seen.call.query.dtype, torch.float32)
    whole = torch.zeros(n, heads, length, length, dtype=wide, device=tokens.valid.device)
    for block in blocks(batch, rows=rows):
        whole[:, :, block.start : block.start + block.n_rows, block.keys] = block.probabilities
    return whole


def _worst(a: Tensor, b: Tensor) -> float:
    difference = (a.cpu().double() - b.cpu().double()).abs().max()  # on the CPU: not every device has float64
    return float(difference) if bool(torch.isfinite(difference)) else float("inf")


def _weights(output: Any) -> Tensor | None:
    if isinstance(output, tuple) and len(output) > 1 and isinstance(output[1], Tensor):
        return output[1]
    return None


def _off_output(made: Tensor, call: AttentionCall, output: Tensor, alive: Tensor | None = None) -> float:
    """How far rebuilt attention × values is from what a kernel put out; where rows are not alive, both are 0.

    Relative to the size of the values, so that one bound serves models of every scale.
    """
    values = call.value.repeat_interleave(call.query.shape[1] // call.value.shape[1], dim=1)
    mixed = (made @ values.to(made.dtype)).transpose(1, 2)  # (batch, pos, q_head, head_dim)
    own = output.reshape(mixed.shape)
    if alive is not None:
        own = own.nan_to_num() * alive.transpose(1, 2)[..., None]
    return _worst(mixed, own) / max(1.0, float(values.abs().max()))


@dataclass(frozen=True)
class Agreement:
    """How far attention rebuilt from captured queries and keys is from the model's own, at worst.

    Attributes
    ----------
    attention : float
        Of probabilities, against the weights of eager attention; NaN where no kernel gives any.
    output : float
        Of attention times values, against what the kernel in use gives, relative to the values' size.
    watched : float
        Of the model's outputs, watched against unwatched; 0 where they are bit for bit the same.
    tolerance : float
        What rounding allows in the layer that is furthest beyond or nearest to what it is allowed.
    excess : float
        How far that layer is off, by its tolerance; more than 1 is too far.
    worst : str
        That layer.
    """

    attention: float
    output: float
    watched: float
    tolerance: float
    excess: float
    worst: str

    @property
    def ok(self) -> bool:
        """Whether every layer is within what rounding allows it, and the model puts out what it did."""
        return self.excess <= 1 and self.watched == 0


def agreement(model: Module, forward: Callable[[], Any]) -> Agreement:
    """Compare what is captured with what the model computes, on any input, without the blocks that probes get."""
    found: list[tuple[float, float, float, float, str]] = []  # (excess, attention, output, bound, layer)

    def compare(seen: Seen, output: Any) -> None:
        call = seen.call
        wide = torch.promote_types(call.query.dtype, torch.float32)
        made = logits(call.query.to(wide), call, call.key.to(wide)).softmax(-1)[..., : call.key.shape[2]].nan_to_num()
        own, bound = _weights(output), tolerance_of(call)
        alive = made.sum(-1) > 0  # rows of padding see nothing
        off_output = _off_output(made, call, output[0], alive)
        off = math.nan
        if own is not None and call.sinks is None:  # some shrink what comes out instead; the output tells in any case
            off = _worst(made, own[..., : made.shape[-1]].nan_to_num() * alive[..., None])
        found.append((max(0.0 if math.isnan(off) else off, off_output) / bound, off, off_output, bound, call.name))

    with torch.no_grad():
        untouched = _tensors(forward())
        with watching(model, lambda _seen: None, after=compare):
            watched = _tensors(forward())
        with eager(model), watching(model, lambda _seen: None, after=compare, stages=False):
            forward()
    if not found:
        raise UnsupportedModel(no_attention(model))
    changed = max((_worst(a, b) for a, b in zip(untouched, watched, strict=True)), default=0.0)
    excess, _, _, bound, name = max(found)
    weights = [off for _, off, _, _, _ in found if not math.isnan(off)]
    return Agreement(
        max(weights, default=math.nan), max(off for _, _, off, _, _ in found), changed, bound, excess, name
    )


def _tensors(value: Any) -> list[Tensor]:
    """Every floating tensor in an output."""
    if isinstance(value, Tensor):
        return [value.clone()] if value.is_floating_point() else []
    parts = value.values() if hasattr(value, "values") else value if isinstance(value, tuple | list) else ()
    return [x for part in parts for x in _tensors(part)]


def check_parity(model: Module, spec: ModelSpec, inputs: Tensor | dict[str, Tensor]) -> pd.DataFrame:
    """Compare what is captured with what the model computes, on a short input.

    Three questions, each with the model's own answer: does the softmax rebuilt from the captured queries and keys equal
    the weights of its eager attention; does rebuilt attention × values equal what the kernel in use returns; and does
    the model, watched, put out bit for bit what it puts out unwatched.

    Parameters
    ----------
    model : Module
    spec : ModelSpec
    inputs : Tensor (1, pos), int64, or dict
        The ids of a text; or what the model is called with, of one item.

    Returns
    -------
    DataFrame
        The table `parity` (docs/schema.md).

    Raises
    ------
    ParityError
        Where something is off by more than the rounding of the model's dtype.
    """
    given = inputs if isinstance(inputs, dict) else text_inputs(model, inputs)
    weights: dict[int, float] = {}
    outputs: dict[int, float] = {}
    allowed: dict[int, float] = {}
    numbers = {layer.module: layer.layer for layer in spec.layers}

    def compare_weights(seen: Seen, output: Any) -> None:
        own = _weights(output)
        if seen.call.name in numbers:
            worst = np.nan if own is None else _worst(rebuilt(seen, rows=32), own[..., : seen.call.key.shape[2]])
            weights[numbers[seen.call.name]] = worst

    def compare_outputs(seen: Seen, output: Any) -> None:
        if seen.call.name not in numbers:
            return
        number = numbers[seen.call.name]
        allowed[number] = tolerance_of(seen.call)
        outputs[number] = _off_output(rebuilt(seen, rows=32), seen.call, output[0])

    nothing = lambda _seen: None  # noqa: E731
    with torch.no_grad():
        untouched = _output(model, given)
        if not bool(torch.isfinite(untouched).all()):
            raise UnsupportedModel(
                f"In {str(untouched.dtype).removeprefix('torch.')} the model itself puts out numbers that are not "
                "finite; load it in float32 or bfloat16 (--dtype)."
            )
        with watching(model, nothing, after=compare_outputs, stages=True):
            watched = _output(model, given)
        with eager(model), watching(model, nothing, after=compare_weights, stages=False):
            run(model, given)
        restored = _output(model, given)
    return _verdict(spec, (weights, outputs, allowed), max(_worst(untouched, watched), _worst(untouched, restored)))


def _output(model: Module, inputs: dict[str, Tensor]) -> Tensor:
    made = run(model, inputs)
    return made.logits if hasattr(made, "logits") else made[0]


def _verdict(spec: ModelSpec, worst: tuple[dict[int, float], ...], output: float) -> pd.DataFrame:
    weights, outputs, allowed = worst
    layers = [layer.layer for layer in spec.layers]
    table = pd.DataFrame(
        {
            "layer": [WHOLE_MODEL, *layers],
            "max_abs_attention": [np.nan, *(weights.get(layer, np.nan) for layer in layers)],
            "max_abs_output": [output, *(outputs.get(layer, np.nan) for layer in layers)],
            "tolerance": [0.0, *(allowed.get(layer, np.nan) for layer in layers)],
        }
    )
    # Weights of a family whose eager function returns none cannot be compared; its outputs still are.
    attention_ok = table["max_abs_attention"].fillna(0) <= table["tolerance"]
    table["ok"] = attention_ok & (table["max_abs_output"] <= table["tolerance"])
    if not table["ok"].all():
        bad = table[~table["ok"]].iloc[0]
        what = "the model's output" if bad["layer"] == WHOLE_MODEL else f"layer {int(bad['layer'])}"
        raise ParityError(
            f"Parity failed at {what}: attention rebuilt from the captured queries and keys is off by "
            f"{bad['max_abs_attention']:.2g} and the output by {bad['max_abs_output']:.2g} "
            f"(allowed {bad['tolerance']:.2g}); "
            "geomprobe does not understand this model's attention, so its numbers would not be the model's own."
        )
    return table

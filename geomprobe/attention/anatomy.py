"""What attention is this? Read from one short forward pass, layer by layer."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from geomprobe.attention.interface import callers
from geomprobe.attention.seam import Seen, attending, no_attention, watching
from geomprobe.attention.spec import LayerSpec, ModelSpec, NormSpec
from geomprobe.attention.stages import Notebook
from geomprobe.attention.trace import Path, Step
from geomprobe.attention.verdicts import rotary_of
from geomprobe.errors import UnsupportedModel
from geomprobe.labels import CROSS, DECODER, ENCODER, PARTS
from geomprobe.models.calling import run, text_inputs

# What a layer's part that mixes tokens is called, beside attention; only for naming what is left out.
_MIXER_NAME = re.compile(
    r"mamba|mixer|ssm|conv|linear_attn|recurrent|temporal|rwkv|delta|attention|attn", re.IGNORECASE
)


def measure_gain(norm: Module, width: int | tuple[int, int], like: Tensor) -> Tensor:
    """What a norm multiplies each channel by, found by what it does.

    A vector of +1 and −1 in turn has mean 0 and mean square 1, so RMS norm and LayerNorm leave it as it is, up to
    their ε, and what comes out is gain · x + bias; the bias cancels against the answer to −x. A (1 + w) gain shows
    as 1 + w.

    Parameters
    ----------
    norm : Module
    width : int or (int, int)
        Channels that it takes; (heads, channels) where each head has a gain of its own.
    like : Tensor
        For dtype and device.

    Returns
    -------
    Tensor (channel,), float64, on the CPU
        Head after head where each has its own.
    """
    shape = (width,) if isinstance(width, int) else width
    x = torch.ones(1, 1, *((1,) if len(shape) == 1 else ()), *shape, dtype=like.dtype, device=like.device)
    x[..., 1::2] = -1
    with torch.no_grad():
        gain = (norm(x) - norm(-x)).double() / 2 * x.double()
    return gain.flatten().cpu()


def _norm_spec(model: Module, path: Path, seen: Seen, vector: str) -> NormSpec | None:
    """The norm on the way of a vector; what is called on the way and does not take lengths away is none."""
    for step in path.steps:
        if step.kind == "norm":
            found = (
                _from_code(step, path) if step.relation is not None else _from_module(model, step, path, seen, vector)
            )
            if found is not None:
                return found
    return None


def _from_code(step: Step, path: Path) -> NormSpec | None:
    """A norm in a few lines of code, which is no module."""
    relation = step.relation
    if relation is None or relation.kind not in ("rms", "l2"):
        return None
    return NormSpec("", relation.axis, path.order, relation.gain.flatten().numpy())


def _from_module(model: Module, step: Step, path: Path, seen: Seen, vector: str) -> NormSpec | None:
    entered = seen.events[step.event].inputs[step.index]  # (…, channels that are normed together)
    scored = seen.call.query if vector == "q" else seen.call.key
    heads, width = scored.shape[1], entered.shape[-1]
    norm = model.get_submodule(step.name)
    by_head = any(parameter.shape == (heads, width) for parameter in norm.parameters())
    taken = (heads, width) if by_head else width
    if not takes_lengths_away(norm, taken, entered):
        return None
    full = width == heads * scored.shape[3] and heads > 1
    gain = measure_gain(norm, taken, entered)
    return NormSpec(step.name, "full" if full else "head", path.order, gain.numpy())


def takes_lengths_away(norm: Module, width: int | tuple[int, int], like: Tensor) -> bool:
    """Whether a module puts out the same for a vector and for four times that vector."""
    shape = (1, 1, *((1, width) if isinstance(width, int) else width))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(like.device, like.dtype)
    try:
        with torch.no_grad():
            once, fourfold = norm(x).double(), norm(4 * x).double()
    except TypeError:  # it wants more than a vector: a scale by position, say
        return False
    return bool((once - fourfold).abs().max() <= 1e-2 * once.abs().max())


def window_of(seen: Seen) -> int | None:
    """Keys that a late query sees, itself included, where that is less than all.

    A text shorter than the window does not show it: then what the model hands its kernel tells, or its module.
    """
    length = seen.call.key.shape[2]
    try:
        visible = int(seen.call.visibility().count[0].max())
    except UnsupportedModel:  # a mask that is not made of intervals: count what the most open row sees
        mask = seen.call.visible()
        visible = length if mask is None else int(mask.sum(-1).max())
    if visible < length:
        return visible
    told = seen.call.window if seen.call.window is not None else getattr(seen.call.module, "sliding_window", None)
    return told if isinstance(told, int) and told >= length else None


def is_chunked(seen: Seen) -> bool:
    """Whether keys come in fixed groups: then a group's first query sees itself alone, also late in a text."""
    try:
        low, high = seen.call.visibility().low[0], seen.call.visibility().high[0]
    except UnsupportedModel:
        return False
    late = low > 0
    return bool(late.any()) and bool((low == high)[late].any()) and bool((low != high)[late].any())


def other_mixers(model: Module, shown: Iterable[str]) -> dict[str, str]:
    """Layers that mix tokens otherwise, beside layers in which attention was seen: by module, a sentence.

    Parameters
    ----------
    model : Module
    shown : iterable of str
        The modules of which is known what they are.
    """
    known, others = tuple(shown), {}
    for stack_name, stack in model.named_modules():
        if not isinstance(stack, ModuleList):
            continue
        prefixes = [f"{stack_name}.{i}" for i in range(len(stack))]
        inside = [any(name == p or name.startswith(p + ".") for name in known) for p in prefixes]
        if not any(inside):
            continue
        for prefix, layer, has in zip(prefixes, stack, inside, strict=True):
            mixers = [name for name, c in layer.named_children() if _MIXER_NAME.search(f"{name} {type(c).__name__}")]
            if not has and mixers:
                name = f"{prefix}.{mixers[0]}"
                kind = type(layer.get_submodule(mixers[0])).__name__
                others[name] = f"{kind} ({name}) mixes tokens without softmax attention, or not at all."
    return others


def _rotary_width(path: Path, seen: Seen) -> int:
    step = next((step for step in path.steps if step.kind == "rotation"), None)
    return 0 if step is None else seen.events[step.event].inputs[step.index].shape[-1]


def positions_of(model: Module, inputs: dict[str, Tensor]) -> int:
    """The positions over which most attention layers attend, for inputs of one item that are no tokens.

    Raises
    ------
    UnsupportedModel
        Where nothing attends over positions of one item.
    """
    if not attending(model):
        raise UnsupportedModel(no_attention(model))
    lengths: Counter[int] = Counter()

    def see(seen: Seen) -> None:
        query, key = seen.call.query, seen.call.key
        if query.shape[2] == key.shape[2] and query.shape[0] == 1:
            lengths[query.shape[2]] += 1

    with watching(model, see, stages=False, unread=lambda _name, _sentence: None):
        run(model, inputs)
    if not lengths:
        raise UnsupportedModel(
            f"No layer of {type(model).__name__} attends over all positions of an image at once (it may have windows "
            "in two dimensions); geomprobe.capture and geomprobe.inspect still show what they can."
        )
    return lengths.most_common(1)[0][0]


def examine(
    model: Module, inputs: Tensor | dict[str, Tensor], *, length: int = 0, notebook: Notebook | None = None
) -> ModelSpec:
    """Run the model once on a short input and describe each attention layer.

    Parameters
    ----------
    model : Module
    inputs : Tensor (1, pos), int64, or dict
        The ids of a text; or what the model is called with, of one item.
    length : int
        Positions over which layers must attend, where the inputs are no ids.
    notebook : Notebook, optional
        Keeps the paths of the vectors, so that later passes need not trace them over longer texts.

    Returns
    -------
    ModelSpec
        Layers that an analysis cannot take are named in it, with the reason.

    Raises
    ------
    UnsupportedModel
        Where no layer remains.
    """
    if not attending(model):
        raise UnsupportedModel(no_attention(model))
    # A decoder that reads a token less than its encoder: what attends across is then told by its shape.
    given = inputs if isinstance(inputs, dict) else text_inputs(model, inputs, shorter=1)
    due = length if isinstance(inputs, dict) else inputs.shape[1]
    two_sided = "decoder_input_ids" in given
    layers: dict[str, LayerSpec] = {}
    skipped: dict[str, str] = {}

    def see(seen: Seen) -> None:
        name = seen.call.name
        if name in layers:
            del layers[name]
            skipped[name] = f"{name} computes attention several times in one pass; geomprobe reads one a layer."
        elif name not in skipped:
            reason = _unfit(seen, due, two_sided=two_sided)
            if reason:
                skipped[name] = reason
            else:
                layers[name] = _layer_spec(model, seen, _part(seen, due) if two_sided else "")

    stages = notebook if notebook is not None else True
    with watching(model, see, stages=stages, unread=lambda name, sentence: skipped.update({name: sentence})):
        run(model, given)
    skipped |= {
        name: f"{name} did not run, or not through the attention interface."
        for name in callers(model)
        if name not in layers and name not in skipped
    }
    skipped |= other_mixers(model, [*layers, *skipped])
    if not layers:
        raise UnsupportedModel(next(iter(skipped.values()), no_attention(model)))
    return ModelSpec(_numbered(list(layers.values())), tuple(skipped.items()))


def _unfit(seen: Seen, length: int, *, two_sided: bool) -> str:
    """Why an analysis cannot take an attention product; empty where it can."""
    call = seen.call
    queries, keys = call.query.shape[2], call.key.shape[2]
    where = f"Layer {call.layer} ({call.name})"
    across = two_sided and (queries, keys) == (length - 1, length)
    within = queries == keys and (queries == length or (two_sided and queries == length - 1))
    if queries != keys and not across:
        return f"{where} has {queries} queries and {keys} keys; an analysis takes layers that have as many of both."
    if not (across or within):
        return f"{where} has {queries} positions where the input has {length}; an analysis takes attention over those."
    if call.sinks is not None and call.sinks.shape[2] not in (1, queries):
        return f"{where} has sinks of another shape than its queries."
    try:
        call.visibility()
    except UnsupportedModel as error:
        return str(error)
    return ""


def _layer_spec(model: Module, seen: Seen, part: str) -> LayerSpec:
    call = seen.call
    return LayerSpec(
        layer=call.layer,
        module=call.name,
        q_heads=call.query.shape[1],
        kv_heads=call.key.shape[1],
        head_dim=call.query.shape[3],
        window=window_of(seen),
        scale=call.scale,
        softcap=call.softcap,
        learned_sinks=call.sinks is not None,
        stages={vector: _found(seen, vector) for vector in ("q", "k", "v")},
        norms={v: norm for v in ("q", "k") if (norm := _norm_spec(model, seen.paths[v], seen, v)) is not None},
        rotary_width=_rotary_width(seen.paths["q"], seen),
        causal=part != CROSS and call.visibility().causal,
        part=part,
        pairs=_pairs(seen),
    )


def _pairs(seen: Seen) -> tuple[str, tuple[int, ...]] | None:
    """In what pairs the channels of a head turn; None where that is not known, or where q and k differ."""
    found = [rotary_of(seen, vector) for vector in ("q", "k")]
    if any("content" not in seen.stages(vector) for vector in ("q", "k")):
        return None
    if found[0] is None or found[1] is None:
        return ("none", ()) if found == [None, None] else None
    if found[0].kind != found[1].kind or found[0].kind == "other":
        return None
    # Of a pair that is too slow for the dtype one of the two may show nothing.
    return found[0].kind, tuple(sorted({*found[0].channels, *found[1].channels}))


def _part(seen: Seen, length: int) -> str:
    """Which stack a layer is of, or whether it looks across: the decoder reads a token less than the encoder."""
    queries, keys = seen.call.query.shape[2], seen.call.key.shape[2]
    return CROSS if queries != keys else ENCODER if queries == length else DECODER


def _found(seen: Seen, vector: str) -> tuple[str, ...]:
    found = seen.stages(vector)
    return tuple(stage for stage in ("projected", "content", "scored") if stage in found)


def _numbered(layers: list[LayerSpec]) -> tuple[LayerSpec, ...]:
    """The layers with numbers of their own: two stacks of a model may both begin at 0.

    Part after part, so that a figure by layer shows encoder, decoder and what looks across side by side.
    """
    layers = sorted(layers, key=lambda layer: PARTS.index(layer.part))
    if len({layer.layer for layer in layers}) < len(layers):
        layers = [replace(layer, layer=number) for number, layer in enumerate(layers)]
    return tuple(layers)

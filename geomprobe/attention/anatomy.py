"""What attention is this? Read from one short forward pass, layer by layer."""

import torch
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.interface import callers
from geomprobe.attention.seam import Seen, attending, no_attention, watching
from geomprobe.attention.spec import LayerSpec, ModelSpec, NormSpec
from geomprobe.attention.trace import Path
from geomprobe.errors import UnsupportedModel


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
    step = path.norm
    if step is None:
        return None
    if step.relation is not None:  # a few lines of code, no module
        return NormSpec("", step.relation.axis, path.order, step.relation.gain.flatten().numpy())
    entered = seen.events[step.event].inputs[step.index]  # (…, channels that are normed together)
    scored = seen.call.query if vector == "q" else seen.call.key
    heads, width = scored.shape[1], entered.shape[-1]
    norm = model.get_submodule(step.name)
    by_head = any(parameter.shape == (heads, width) for parameter in norm.parameters())
    gain = measure_gain(norm, (heads, width) if by_head else width, entered)
    full = width == heads * scored.shape[3] and heads > 1
    return NormSpec(step.name, "full" if full else "head", path.order, gain.numpy())


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


def _rotary_width(path: Path, seen: Seen) -> int:
    step = next((step for step in path.steps if step.kind == "rotation"), None)
    return 0 if step is None else seen.events[step.event].inputs[step.index].shape[-1]


def examine(model: Module, ids: Tensor) -> ModelSpec:
    """Run the model once on a short text and describe each attention layer.

    Parameters
    ----------
    model : Module
    ids : Tensor (1, pos), int64

    Raises
    ------
    UnsupportedModel
        Where no attention is seen, or where layers that ask the interface did not show.
    """
    if not attending(model):
        raise UnsupportedModel(no_attention(model))
    layers: list[LayerSpec] = []

    def see(seen: Seen) -> None:
        call = seen.call
        if call.query.shape[2] != call.key.shape[2]:
            raise UnsupportedModel(
                f"Layer {call.layer} ({call.name}) has {call.query.shape[2]} queries and {call.key.shape[2]} keys; "
                "geomprobe analyses self-attention."
            )
        norms = {v: norm for v in ("q", "k") if (norm := _norm_spec(model, seen.paths[v], seen, v)) is not None}
        layers.append(
            LayerSpec(
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
                norms=norms,
                rotary_width=_rotary_width(seen.paths["q"], seen),
            )
        )

    with torch.no_grad(), watching(model, see):
        model(input_ids=ids, use_cache=False)
    _check(model, layers)
    return ModelSpec(tuple(layers))


def _found(seen: Seen, vector: str) -> tuple[str, ...]:
    found = seen.stages(vector)
    return tuple(stage for stage in ("projected", "content", "scored") if stage in found)


def _check(model: Module, layers: list[LayerSpec]) -> None:
    shown = [layer.module for layer in layers]
    if len(set(shown)) < len(shown):
        twice = next(name for name in shown if shown.count(name) > 1)
        raise UnsupportedModel(f"{twice} computes attention several times in one pass; geomprobe reads one a layer.")
    missed = [name for name in callers(model) if name not in shown]
    if not shown:
        raise UnsupportedModel(no_attention(model))
    if missed:
        raise UnsupportedModel(
            f"{type(model).__name__} ran without showing the attention of {len(missed)} layers ({missed[0]} …); "
            "what geomprobe would report is not the whole model."
        )

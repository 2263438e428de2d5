"""What the attention of a model is, layer by layer: found by what it does, confirmed by names."""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from geomprobe.attention.anatomy import is_chunked, other_mixers, window_of
from geomprobe.attention.behaviour import Tamperer, probe_responses
from geomprobe.attention.interface import callers
from geomprobe.attention.parity import Agreement, agreement
from geomprobe.attention.seam import Seen, attending, no_attention
from geomprobe.attention.verdicts import (
    NormAnatomy,
    RotaryAnatomy,
    Verdict,
    norm_of,
    rotary_of,
    turns,
    verdict_of,
)
from geomprobe.errors import InvalidParameter, UnsupportedModel
from geomprobe.models.calling import probe_inputs, run
from geomprobe.models.load import load
from geomprobe.models.resolve import resolve

PROBE_TOKENS = 48
# A child of an attention module that is called like a norm of queries or keys. Only for a second opinion.
_NORM_NAME = re.compile(r"^(q|k|query|key|qk)_?(layer)?_?(norm|layernorm|ln)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class LayerAnatomy:
    """One attention layer.

    Attributes
    ----------
    module : str
    kind : {"softmax", "skipped"}
    reason : str
        Why it is skipped; empty for softmax attention.
    layer : int
        −1 where it is skipped.
    verdict : dict from "q", "k", "v" to str
        none, norm, latent_only, partial, clip, composite, shared_kv or unknown.
    q_norm, k_norm, v_norm : NormAnatomy or None
    q_heads, kv_heads, head_dim : int
    window : int or None
        Keys that a late query sees at most, where that is less than all.
    chunked : bool
        Whether the window does not slide: keys come in fixed groups.
    scale : float
    softcap : float or None
    sinks : {"learned", "input"} or None
    rotary : RotaryAnatomy or None
    stages : dict from "q", "k", "v" to tuple of str
        What will be captured.
    calls : int
        Attention products in one pass.
    shares_with : str
        The module whose keys it uses, if it has none of its own.
    notes : tuple of str
        Where behaviour and names or structure disagree, and norms that never ran.
    """

    module: str
    kind: str
    reason: str = ""
    layer: int = -1
    verdict: dict[str, Verdict] = field(default_factory=dict)
    q_norm: NormAnatomy | None = None
    k_norm: NormAnatomy | None = None
    v_norm: NormAnatomy | None = None
    q_heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    window: int | None = None
    chunked: bool = False
    scale: float = float("nan")
    softcap: float | None = None
    sinks: str | None = None
    rotary: RotaryAnatomy | None = None
    stages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    calls: int = 0
    shares_with: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Anatomy:
    """What `inspect` found.

    Attributes
    ----------
    model : str
        Its class.
    layers : tuple of LayerAnatomy
        One a module, in the order of the model.
    agreement : Agreement
        How far attention rebuilt from what is captured is from the model's own.
    seconds_a_token : float
        Of a plain forward pass here, on the short input.
    parameter_bytes : int
    """

    model: str
    layers: tuple[LayerAnatomy, ...]
    agreement: Agreement
    seconds_a_token: float
    parameter_bytes: int

    @property
    def trusted(self) -> bool:
        """Whether what geomprobe captures of this checkpoint is what the model computes."""
        return self.agreement.ok


def inspect(model: Module | str | Path, *, inputs: dict[str, Any] | None = None, **loading: Any) -> Anatomy:
    """Say what the attention of a model is, by tampering with it, and whether it can be captured faithfully.

    Parameters
    ----------
    model : Module, str or Path
        A transformers model of any kind, which is as before afterwards; or what `--model` takes.
    inputs : dict, optional
        What to call it with, of one sequence or image; by default random tokens or pixels.
    **loading
        For a name: revision, dtype, device, device_map, trust_remote_code, as `geomprobe.analyze` takes them.

    Returns
    -------
    Anatomy

    Raises
    ------
    UnsupportedModel
        Where the model has no attention that can be seen.
    """
    if isinstance(model, str | Path):
        revision, trust = loading.pop("revision", None), loading.get("trust_remote_code", False)
        found = resolve(str(model), revision=revision, trust_remote_code=trust)
        return _inspect(load(found, reading="any", **loading).model, inputs)
    if loading:
        raise InvalidParameter(f"{', '.join(loading)} go with a model's name; this one is loaded already.")
    return _inspect(model, inputs)


def _inspect(model: Module, inputs: dict[str, Any] | None) -> Anatomy:
    if not attending(model):
        raise UnsupportedModel(no_attention(model))
    given = probe_inputs(model, PROBE_TOKENS) if inputs is None else inputs
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        seconds = min(_seconds(model, given) for _ in range(3))  # the first is slower, and others may be at work here
        layers = _layers(model, given)
        agreed = agreement(model, lambda: run(model, given))
    finally:
        for module in training:
            module.training = True
    tokens = max(x.shape[1] for x in given.values() if isinstance(x, torch.Tensor) and x.dim() > 1)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return Anatomy(type(model).__name__, layers, agreed, seconds / tokens, size)


def _seconds(model: Module, inputs: dict[str, Any]) -> float:
    begun = time.perf_counter()
    run(model, inputs)
    return time.perf_counter() - begun


def _layers(model: Module, inputs: dict[str, Any]) -> tuple[LayerAnatomy, ...]:
    tamperer = Tamperer(model, lambda: run(model, inputs))
    if not tamperer.seen:
        raise UnsupportedModel(no_attention(model))
    answers = probe_responses(tamperer)
    products: dict[str, list[Seen]] = {}
    for seen in tamperer.seen:
        products.setdefault(seen.call.name, []).append(seen)
    found = {}
    keys: dict[tuple, str] = {}
    tokens = max(seen.call.query.shape[2] for seen in tamperer.seen)
    for name, calls in products.items():
        query = calls[0].call.query
        if query.shape[2] < tokens <= query.shape[1]:
            found[name] = LayerAnatomy(name, "skipped", "it attends over something else than tokens (over depth, say)")
            continue
        shared = _shared(calls[0], keys)
        found[name] = _layer(model, calls, tamperer, answers, shared)
    silent = {name: "it did not run on this input" for name in callers(model) if name not in products}
    others = tamperer.unread | silent
    for name, reason in (others | other_mixers(model, [*products, *others])).items():
        found[name] = LayerAnatomy(name, "skipped", reason)
    order = {name: place for place, (name, _) in enumerate(model.named_modules())}
    return tuple(sorted(found.values(), key=lambda layer: order[layer.module]))


def _shared(seen: Seen, keys: dict[tuple, str]) -> str:
    """The module that made the keys that this one uses, if it is another; notes the keys that it made itself."""
    key = seen.call.key
    where = (key.data_ptr(), tuple(key.shape))
    path = seen.paths["k"]
    if not path.steps and where in keys:
        return keys[where]
    keys.setdefault(where, seen.call.name)
    return ""


def _layer(model: Module, calls: list[Seen], tamperer: Tamperer, answers: dict, shared: str) -> LayerAnatomy:
    seen, call = calls[0], calls[0].call
    looks, responses = tamperer.base[call.name], answers.get(call.name, {})
    verdict: dict[str, Verdict] = {}
    norms: dict[str, NormAnatomy | None] = {}
    for vector, look in looks.items():
        verdict[vector] = verdict_of(look, responses.get(vector), seen)
        norms[vector] = norm_of(look, responses.get(vector), verdict[vector])
    if shared:
        verdict["k"] = "shared_kv"
    sinks = None if call.sinks is None else "learned" if call.sinks.shape[2] == 1 else "input"
    return LayerAnatomy(
        module=call.name,
        kind="softmax",
        layer=call.layer,
        verdict=verdict,
        q_norm=norms["q"],
        k_norm=norms["k"],
        v_norm=norms["v"],
        q_heads=call.query.shape[1],
        kv_heads=call.key.shape[1],
        head_dim=call.query.shape[3],
        window=window_of(seen),
        chunked=is_chunked(seen),
        scale=call.scale,
        softcap=call.softcap,
        sinks=sinks,
        rotary=rotary_of(seen, "q"),
        stages={vector: tuple(seen.stages(vector)) for vector in looks},
        calls=len(calls),
        shares_with=shared,
        notes=_notes(call.module, seen, tamperer, (verdict, norms)),
    )


def _notes(module: Module, seen: Seen, tamperer: Tamperer, judged: tuple[dict, dict]) -> tuple[str, ...]:
    """What a second look, at structure and names, says against the behaviour."""
    verdict, norms = judged
    notes = []
    fired = {event.name.rsplit(".", 1)[-1] for event in seen.events}
    for name, child in module.named_children():
        if _NORM_NAME.match(name) and not isinstance(child, torch.nn.Identity):
            vectors = ("q", "k") if name.lower().startswith("qk") else (name[0].lower(),)
            if name not in fired and not any(part.startswith(name) for part in fired):
                notes.append(f"{name} is there and never ran")
            elif all(verdict[vector] in ("none", "latent_only") for vector in vectors):
                notes.append(f"{name} ran, and {' and '.join(vectors)} behave as if not normed")
    for vector in ("q", "k"):
        path, norm = tamperer.base[seen.call.name][vector].path, norms[vector]
        if norm is not None and norm.kind != "clip" and path.complete and path.norm is not None:
            if norm.order != path.order and turns(path):
                notes.append(f"{vector}: by behaviour the norm is {norm.order}, by structure {path.order}")
        elif norm is None and path.norm is not None and verdict[vector] == "none":
            notes.append(f"{vector}: a norm stands on its way and does not show")
    return tuple(notes)

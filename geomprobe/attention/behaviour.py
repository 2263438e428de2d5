"""What stands between a projection and the kernel, found by tampering: put other numbers into the model and look.

The outputs of the projections that feed queries, keys and values are replaced, in all layers at once, by what they
were in an untouched pass, times three, plus a constant, … What reaches the kernel then tells: a norm takes the
factor away, a LayerNorm the constant too, a norm over the full width lets one head change the others. Since the
replaced numbers do not depend on the layers before, one pass answers for every layer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.columns import Layout, columns
from geomprobe.attention.seam import Seen, attending, watching
from geomprobe.attention.stages import Notebook
from geomprobe.attention.trace import Path, projected_of

VECTORS = ("q", "k", "v")
CLOSE = 2e-3  # of a vector's size: how far two passes may differ and still count as the same
Kind = Literal["rms", "layernorm", "l2", "clip", "other", "unknown"]
Forward = Callable[[], Any]


@dataclass(frozen=True, eq=False)
class Look:
    """A vector in one pass: what left the projection, what stood before the rotation, and what reached the kernel."""

    projected: Tensor | None
    content: Tensor | None
    scored: Tensor
    path: Path

    @property
    def known(self) -> bool:
        """Whether the vector was followed back to its projection."""
        return self.projected is not None and self.content is not None


Looks = dict[str, dict[str, Look]]  # by module, by vector


@dataclass(frozen=True, eq=False)
class _Patch:
    """Numbers to put into some columns of an output."""

    index: int
    layout: Layout
    columns: Tensor
    values: Tensor  # (batch, pos, column)


def _put(tensor: Tensor, patch: _Patch) -> Tensor:
    batch, length, _ = patch.values.shape
    places = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)
    found = columns(places, patch.layout, batch, length)
    if found is None:
        return tensor
    changed = tensor.clone().contiguous()
    changed.view(-1)[found[..., patch.columns.to(tensor.device)]] = patch.values.to(tensor.device, tensor.dtype)
    return changed


def _tampered(output: Any, patches: list[_Patch]) -> Any:
    parts = list(output) if isinstance(output, tuple | list) else [output]
    places = [place for place, part in enumerate(parts) if isinstance(part, Tensor)]
    for patch in patches:
        place = places[patch.index]
        parts[place] = _put(parts[place], patch)
    if not isinstance(output, tuple | list):
        return parts[0]
    return type(output)(parts) if isinstance(output, list) else tuple(parts)


class Tamperer:
    """Passes of a model in which its queries, keys and values are changed where they leave their projections.

    Parameters
    ----------
    model : Module
    forward : callable
        Runs the model once, always on the same input.
    """

    def __init__(self, model: Module, forward: Forward) -> None:
        self._model = model
        self._forward = forward
        self._notebook = Notebook(attending(model), keep=True)
        self.seen: list[Seen] = []
        self.unread: dict[str, str] = {}
        self.base = self._pass({}, keep=self.seen)

    def _pass(self, patches: dict[str, list[_Patch]], *, keep: list[Seen] | None = None) -> Looks:
        looks: Looks = {}

        def see(seen: Seen) -> None:
            name = seen.call.name
            if keep is not None:
                keep.append(seen)
            if name in looks:  # a module that attends several times shows in its first product
                return
            looks[name] = {}
            scored = {"q": seen.call.query, "k": seen.call.key, "v": seen.call.value}
            for vector in VECTORS:
                path, content = seen.paths[vector], seen.stages(vector).get("content")
                projected = projected_of(scored[vector], path, seen.events)
                looks[name][vector] = Look(
                    None if projected is None else projected.clone(),
                    None if content is None else content.clone(),
                    scored[vector].clone(),
                    path,
                )

        with torch.no_grad(), self._tampering(patches), self._watching(see):
            self._forward()
        return looks

    def _watching(self, see: Callable[[Seen], None]) -> Any:
        def unread(name: str, sentence: str) -> None:
            self.unread[name] = sentence

        return watching(self._model, see, stages=self._notebook, unread=unread)

    @contextmanager
    def _tampering(self, patches: dict[str, list[_Patch]]) -> Iterator[None]:
        handles = []
        try:
            for name, of_module in patches.items():
                module = self._model.get_submodule(name)
                handles.append(
                    module.register_forward_hook(
                        lambda _m, _a, output, of_module=of_module: _tampered(output, of_module), prepend=True
                    )
                )
            yield
        finally:
            for handle in handles:
                handle.remove()

    def change(self, alter: Callable[[Tensor], Tensor]) -> Looks:
        """A pass in which every projected vector (batch, head, pos, head_dim) is what `alter` makes of it."""
        patches: dict[str, list[_Patch]] = {}
        for vectors in self.base.values():
            for look in vectors.values():
                if look.projected is None:
                    continue
                altered = alter(look.projected).transpose(1, 2).flatten(2)  # (batch, pos, channel)
                for step in look.path.steps:
                    if step.kind == "projection" and step.name:
                        values = altered[..., step.found.channels]
                        patches.setdefault(step.name, []).append(
                            _Patch(step.index, step.layout, step.found.columns, values)
                        )
        return self._pass(patches)


def size(x: Tensor) -> Tensor:
    """Root mean square."""
    return x.double().square().mean().sqrt().clamp(min=1e-30)


def share(mask: Tensor) -> float:
    """The part that is True."""
    return float(mask.double().mean())


def same(a: Tensor, b: Tensor, factor: float = 1.0) -> Tensor:
    """Which channels of `a` are `factor` times those of `b` at all positions: (head, head_dim) bool."""
    if a.shape != b.shape:
        return torch.zeros(b.shape[1], b.shape[3], dtype=torch.bool)
    off = (a.double() - factor * b.double()).abs().amax((0, 2))
    # A channel with a small gain has a scale of its own, down to where the rounding of its neighbours would drown it.
    scale = torch.maximum(b.double().abs().amax((0, 2)), 1e-4 * size(b))
    return torch.nan_to_num(off, nan=torch.inf) <= CLOSE * factor * scale


@dataclass(frozen=True, eq=False)
class Responses:
    """How one vector of one layer answers to what is done to its projection.

    Attributes
    ----------
    steady : bool
        Whether the untouched projection, put in by hand, gives the untouched vector.
    invariant, linear : Tensor (head, head_dim), bool
        Channels that a factor of 3 leaves as they are, or multiplies by 3. Looked at where they are large: a norm's ε
        makes small vectors answer a little.
    clipped : Tensor (head, head_dim), bool
        Channels that answer to a factor when they are small, and no more when they are large.
    before_rotation : bool
        Whether the factor is gone already where the rotation begins.
    shift_invariant : bool
        Whether a constant added to all channels is taken away.
    spreads : bool
        Whether a change of the first head changes others.
    mixes : bool
        Whether a change of the first channel of each head changes others.
    gain, bias : Tensor (head, head_dim) or None
        What each channel is multiplied by, and what is added, as a vector of +1 and −1 shows.
    """

    steady: bool
    invariant: Tensor
    linear: Tensor
    clipped: Tensor
    before_rotation: bool
    shift_invariant: bool
    spreads: bool
    mixes: bool
    gain: Tensor | None
    bias: Tensor | None


def _first_head_tripled(x: Tensor) -> Tensor:
    changed = x.clone()
    changed[:, 0] *= 3
    return changed


def _first_channel_large(x: Tensor) -> Tensor:
    changed = x.clone()
    changed[..., 0] *= _large(x)
    return changed


def _large(x: Tensor) -> float:
    """A factor after which no channel is small any more."""
    return 1e2 if x.dtype == torch.float16 else 1e6


def _alternating(x: Tensor) -> Tensor:
    ones = torch.ones_like(x)
    ones[..., 1::2] = -1
    return ones


def probe_responses(tamperer: Tamperer) -> dict[str, dict[str, Responses]]:
    """Tamper with every layer in eleven ways.

    Returns
    -------
    dict from module to dict from vector to Responses
        Vectors that could not be followed to a projection are left out.
    """
    alterations: dict[str, Callable[[Tensor], Tensor]] = {
        "again": lambda x: x,
        "tripled": lambda x: 3 * x,
        "small": lambda x: 1e-2 * x / size(x).to(x.dtype),
        "small_tripled": lambda x: 3e-2 * x / size(x).to(x.dtype),
        "large": lambda x: _large(x) * x,
        "large_tripled": lambda x: 3 * _large(x) * x,
        "shifted": lambda x: _large(x) * (x + 3 * size(x).to(x.dtype)),
        "one_head": _first_head_tripled,
        "one_channel": _first_channel_large,
        "plus": _alternating,
        "minus": lambda x: -_alternating(x),
    }
    passes = {name: tamperer.change(alter) for name, alter in alterations.items()}
    return {
        module: {
            vector: _responses(look, {name: looks[module][vector] for name, looks in passes.items() if module in looks})
            for vector, look in vectors.items()
            if look.known
        }
        for module, vectors in tamperer.base.items()
    }


def _responses(base: Look, under: dict[str, Look]) -> Responses:
    scored = base.scored
    small = same(under["small_tripled"].scored, under["small"].scored, 3.0)
    large = same(under["large_tripled"].scored, under["large"].scored)
    others = (under["one_head"].scored - scored)[:, 1:].abs()
    spreads = scored.shape[1] > 1 and bool(others.max() > 1e-4 * size(scored))
    dead = (under["large"].scored == 0).all(2).all(0)  # says nothing, and so goes with any verdict
    clipped = small & large | dead
    invariant = large & ~small | dead
    normed = invariant if bool(invariant.any()) else torch.ones_like(invariant)  # a norm may cover a part
    ends = under["large_tripled"].content, under["large"].content
    before = ends[0] is not None and ends[1] is not None and bool(same(ends[0], ends[1])[normed].all())
    gain, bias = _gain(under, before=before)
    unmoved = same(under["one_channel"].scored, scored)
    return Responses(
        steady=bool(same(under["again"].scored, scored).all()),
        invariant=invariant,
        linear=same(under["tripled"].scored, scored, 3.0) | dead,
        clipped=clipped,
        before_rotation=before,
        shift_invariant=bool(same(under["shifted"].scored, under["large"].scored)[normed].all()),
        spreads=spreads,
        mixes=not bool(unmoved[:, 1:].any()),
        gain=gain,
        bias=bias,
    )


def _gain(under: dict[str, Look], *, before: bool) -> tuple[Tensor | None, Tensor | None]:
    """Gain and bias at position 0, where a rotation leaves everything as it is.

    A rotation may scale (YaRN): with a norm before it, they are read where it begins, unless each channel is scaled by
    itself behind it.
    """
    ends = [under[name].scored[0, :, 0].double().cpu() for name in ("plus", "minus")]
    signs = torch.ones_like(ends[0])
    signs[..., 1::2] = -1
    gain, bias = (ends[0] - ends[1]) / 2 * signs, (ends[0] + ends[1]) / 2
    starts = [x[0, :, 0].double().cpu() for x in (under["plus"].content, under["minus"].content) if x is not None]
    if before and len(starts) == len(ends):
        inner = (starts[0] - starts[1]) / 2 * signs
        ratio = gain / torch.where(inner.abs() < 1e-12, 1, inner)
        if bool((ratio - ratio.median()).abs().max() <= CLOSE * ratio.abs().max()):
            return inner, (starts[0] + starts[1]) / 2
    return gain, bias

"""From how a layer answers to tampering to what it is."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geomprobe.attention.behaviour import Look, Responses
from geomprobe.attention.columns import as_vectors, columns
from geomprobe.attention.seam import Seen
from geomprobe.attention.trace import Path, Step

Verdict = Literal["none", "norm", "latent_only", "partial", "clip", "composite", "shared_kv", "unknown"]
PLAIN = 1e-3  # how near to 1 a gain, or to 0 a bias, counts as not there


@dataclass(frozen=True, eq=False)
class NormAnatomy:
    """A norm as it acts.

    Attributes
    ----------
    kind : {"rms", "layernorm", "l2", "clip", "other", "unknown"}
        An RMS norm with a gain and an L2 norm with √head_dim times that gain are the same function; both read "rms".
    axis : {"head", "full", "element"}
        What one statistic spans: a head, all heads together, or a single channel (a clamp).
    gain, bias : ndarray (head, head_dim), float64, or None
        As measured: a (1 + w) gain is 1 + w. None where all channels have the same.
    factor : float
        What all channels are multiplied by where there is no gain; else 1.
    order : {"before_rope", "after_rope", "no_rope", "unknown"}
    module : str
        Its name, empty where it is no module.
    """

    kind: str
    axis: str
    order: str
    module: str = ""
    gain: NDArray[np.float64] | None = field(default=None, repr=False)
    bias: NDArray[np.float64] | None = field(default=None, repr=False)
    factor: float = 1.0

    def __str__(self) -> str:
        spans = {"head": "each head", "full": "all heads together", "element": "each channel"}.get(self.axis, self.axis)
        extras = [name for name, value in (("gain", self.gain), ("bias", self.bias)) if value is not None]
        return f"{self.kind} over {spans}, {self.order}" + (f", {' and '.join(extras)}" if extras else ", no gain")


@dataclass(frozen=True)
class RotaryAnatomy:
    """A rotation as it acts.

    Attributes
    ----------
    kind : {"half", "interleaved", "other"}
        Which channels make a pair: i with i + n/2 of those that turn, or 2i with 2i + 1.
    share : float
        Turned channels by head_dim.
    channels : tuple of int
        Those of a head that turn.
    """

    kind: str
    share: float
    channels: tuple[int, ...] = ()


def verdict_of(look: Look, answers: Responses | None, seen: Seen) -> Verdict:
    """One word for a vector."""
    if answers is None or not answers.steady:
        return "unknown"
    if bool(answers.invariant.all()):
        # A clamp behind a norm does not show by a factor; it shows as a step, or as a norm's output written into.
        clamped = any(step.relation is not None and step.relation.kind == "clamp" for step in look.path.steps)
        written = any(
            step.kind == "norm" and step.name and seen.events[step.event].overwritten(step.index)
            for step in look.path.steps
        )
        return "composite" if clamped or written else "norm"
    if bool(answers.clipped.all()):
        return "clip"
    if bool(answers.linear.all()):
        return "latent_only" if has_latent_norm(seen, look.path) else "none"
    if bool((answers.invariant | answers.linear).all()):
        return "partial"
    return "unknown"


def norm_of(look: Look, answers: Responses | None, verdict: Verdict) -> NormAnatomy | None:
    """The norm on a vector, None where there is none."""
    if verdict == "clip":
        axis = "head" if answers is not None and answers.mixes else "element"
        return NormAnatomy("clip", axis, _order(look.path, answers))
    if verdict not in ("norm", "partial", "composite") or answers is None:
        return None
    axis = "full" if answers.spreads else "head"
    step = look.path.norm
    module = "" if step is None else step.name
    order, kind = _order(look.path, answers), "layernorm" if answers.shift_invariant else "rms"
    normed = answers.invariant.cpu()
    gain, bias = answers.gain, answers.bias
    if gain is None or bias is None or verdict == "composite":  # behind a clamp what is measured is the clamp
        return NormAnatomy(kind, axis, order, module)
    width = int(normed.sum()) if axis == "full" else int(normed[0].sum())
    if kind == "rms" and bool(((gain.abs() * width**0.5 - 1)[normed]).abs().max() < PLAIN):
        kind, gain = "l2", gain * width**0.5
    typical = float(gain[normed].median())
    uniform = bool((gain[normed] - typical).abs().max() < PLAIN * abs(typical))
    plain = bool(bias[normed].abs().max() < PLAIN)
    return NormAnatomy(
        kind,
        axis,
        order,
        module,
        gain=None if uniform else gain.numpy(),
        bias=None if plain else bias.numpy(),
        factor=typical if uniform else 1.0,
    )


def turns(path: Path) -> list[Step]:
    """The rotations on a path."""
    return [step for step in path.steps if step.kind == "rotation"]


def _order(path: Path, answers: Responses | None) -> str:
    if not path.complete or answers is None:
        return "unknown"
    if not turns(path):
        return "no_rope"
    return "before_rope" if answers.before_rotation else "after_rope"


def has_latent_norm(seen: Seen, path: Path) -> bool:
    """Whether what enters the last projection comes straight from a norm inside the attention module."""

    def equal(x: Tensor, y: Tensor) -> bool:
        return x.numel() == y.numel() and torch.equal(x.flatten(), y.flatten())

    norms = [event for event in seen.events if event.kind == "norm"]
    normed = [y for event in norms for y in event.outputs if not any(equal(x, y) for x in event.inputs)]
    last = [seen.events[step.event] for step in path.steps if step.kind == "projection"]
    return any(equal(event.inputs[0], y) for event in last if event.inputs for y in normed)


def rotary_of(seen: Seen, vector: str) -> RotaryAnatomy | None:
    """Which channels turn, and in what pairs, by value; None where none does."""
    path = seen.paths.get(vector)
    scored = seen.call.query if vector == "q" else seen.call.key
    if path is None:
        return None
    batch, heads, length, width = scored.shape
    before = torch.zeros(batch, length, heads * width, dtype=torch.float64)
    after = torch.zeros_like(before)
    covered = torch.zeros(heads * width, dtype=torch.bool)
    for step in turns(path):
        event = seen.events[step.event]
        given = columns(event.inputs[step.index], step.layout, batch, length)
        made = columns(event.outputs[step.index], step.layout, batch, length)
        if given is None or made is None:
            return None
        at = step.found.channels.cpu()
        covered[at] = True
        before[..., at] = given[..., step.found.columns].double().cpu()
        after[..., at] = made[..., step.found.columns].double().cpu()
    x, y = as_vectors(before, heads), as_vectors(after, heads)
    # A slow pair turns little, one that does not turn is untouched; a channel that holds nothing but 0 tells nothing.
    moved = (x != y).any(0).any(1) | (x == 0).all(0).all(1) & covered.view(heads, width)  # (head, head_dim)
    if not bool(moved.any()):
        return None
    seen_in = covered.view(heads, width).any(0).nonzero().flatten()
    # What is rounded to few digits hides that a slow pair turns, often in one channel of it and not in the other.
    rounding = max(1e-4, 4 * torch.finfo(scored.dtype).eps)
    turning = moved.any(0)
    for channels in (seen_in, turning.nonzero().flatten()):
        for kind, (a, b) in _pairings(channels).items():
            turns_here = turning[a] | turning[b]
            a, b = a[turns_here], b[turns_here]
            if _keeps_lengths(x, y, (a, b), rounding):
                both = torch.cat([a, b]).sort().values
                return RotaryAnatomy(kind, len(both) / width, tuple(both.tolist()))
    return RotaryAnatomy("other", float(turning.double().mean()), tuple(turning.nonzero().flatten().tolist()))


def _pairings(channels: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    n = len(channels)
    if n % 2:
        return {}
    return {"half": (channels[: n // 2], channels[n // 2 :]), "interleaved": (channels[::2], channels[1::2])}


def _keeps_lengths(x: Tensor, y: Tensor, pairs: tuple[Tensor, Tensor], rounding: float) -> bool:
    a, b = pairs
    given = x[..., a].square() + x[..., b].square()
    made = y[..., a].square() + y[..., b].square()
    factor = made.sum() / given.sum()  # YaRN and LongRoPE scale cos and sin
    return bool((made - factor * given).abs().max() <= rounding * made.max())

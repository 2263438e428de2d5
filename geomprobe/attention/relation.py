"""How a vector was made of another where no module did it: scaled, or normed by a few lines of code."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["scale", "rms", "l2", "clip", "clamp", "other"]
ROUNDING = 64  # in units of the dtype's ε: what a norm of some hundred channels may round


@dataclass(frozen=True, eq=False)
class Relation:
    """y = factor · gain · x, value for value.

    Attributes
    ----------
    kind : {"scale", "rms", "l2", "clip", "clamp", "other"}
        "scale" where the factor is one number, one a channel or one a position; "clamp" where each channel is cut off
        by itself; "rms" or "l2" where it makes all lengths equal;
        "clip" where it shortens what is too long; "other" where it depends on the vector in another way.
    axis : {"head", "full"}
        Whether each head has a factor of its own.
    gain : Tensor (head, head_dim), float64
        Of ones where there is none.
    """

    kind: Kind
    axis: Literal["head", "full"]
    gain: Tensor


def _near(a: Tensor, b: Tensor, epsilon: float) -> bool:
    return bool((a - b).abs().max() <= epsilon * a.abs().max())


def _fit(y: Tensor, x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The factor that makes y of x best, one for all of `dims`."""
    return (y * x).sum(dims, keepdim=True) / (x * x).sum(dims, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def relate(made: Tensor, source: Tensor) -> Relation | None:
    """How `made` came of `source`, or None where it did not, channel by channel.

    Parameters
    ----------
    made, source : Tensor (batch, head, pos, head_dim)
    """
    epsilon = ROUNDING * torch.finfo(made.dtype).eps
    y, x = made.double(), source.double()
    if not bool(torch.isfinite(y).all() & torch.isfinite(x).all()) or y.shape[2] < 2 or not bool(x.abs().max() > 0):
        return None
    ones = torch.ones(y.shape[1], y.shape[3], dtype=torch.float64)
    if _near(y, _fit(y, x, (0, 1, 2, 3)) * x, epsilon):
        return Relation("scale", "full", ones)
    by_channel = _fit(y, x, (0, 2))
    if _near(y, by_channel * x, epsilon):
        return Relation("scale", "full", by_channel[0, :, 0].cpu())
    limit = y.abs().max()
    if torch.equal(y, x.clamp(-limit, limit)):
        return Relation("clamp", "head", ones)
    for axis, dims in (("full", (1, 3)), ("head", (3,))):
        factor = _fit(y, x, dims)
        if _near(y, factor * x, epsilon):
            return Relation(_kind(y, factor, axis), axis, ones)  # type: ignore[arg-type]
    return _with_gain(y, x, epsilon)


def _kind(y: Tensor, factor: Tensor, axis: str) -> Kind:
    """What a factor that differs between tokens does."""
    length = y.norm(dim=-1) if axis == "head" else y.transpose(1, 2).flatten(2).norm(dim=-1)
    width = y.shape[3] if axis == "head" else y.shape[1] * y.shape[3]
    if bool((length.amax() - length.amin()) <= 1e-3 * length.amax()):
        # An RMS norm makes lengths √channels, an L2 norm 1; another length is an L2 norm with a scale behind it.
        return "rms" if abs(float(length.mean()) / width**0.5 - 1) < 1e-2 else "l2"
    if axis == "full" and _by_position(factor):
        return "scale"
    if bool((factor <= 1 + 1e-6).all()) and bool((factor >= 1 - 1e-6).any()):
        return "clip"
    return "other"


def _by_position(factor: Tensor) -> bool:
    """Whether a factor (batch, 1, pos, 1) is the same in all sequences, or never falls along one."""
    if len(factor) > 1 and _near(factor, factor[:1].expand_as(factor), 1e-5):
        return True
    return len(factor) == 1 and bool((factor.diff(dim=2) >= -1e-6).all())


def _with_gain(y: Tensor, x: Tensor, epsilon: float) -> Relation | None:
    """A norm of each head with a gain: the ratio is a factor of the token times one of the channel."""
    small = x.abs() < 1e-6 * x.abs().amax()
    if bool(small.any(dim=(0, 2)).all()):
        return None
    ratio = torch.where(small, torch.nan, y / torch.where(small, 1, x))  # (batch, head, pos, head_dim)
    # The largest channel of each vector is the best known; take the gain relative to the mean over tokens of ratios.
    size = ratio.abs().log()
    token = size.nanmean(-1, keepdim=True)
    gain = (size - token).nanmean((0, 2), keepdim=True).exp()  # (1, head, 1, head_dim)
    sign = ratio.nan_to_num().sum((0, 2), keepdim=True).sign()
    gain = gain * torch.where(sign == 0, 1, sign)
    for axis, dims in (("full", (1, 3)), ("head", (3,))):
        factor = _fit(y, x * gain, dims)
        if _near(y, factor * gain * x, 16 * epsilon):
            normed = y / gain
            kind = _kind(normed, factor, axis)
            if kind in ("rms", "l2"):
                return Relation(kind, axis, gain[0, :, 0].cpu())  # type: ignore[arg-type]
    return None

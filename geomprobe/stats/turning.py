"""Rotations of channel pairs, read off vectors before and after, and what happens to a norm's gain on either side."""

import torch
from torch import Tensor


def pairs_of(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The rotary pairs of vectors as complex numbers: (…, pair), complex128."""
    return torch.complex(x[..., first].double(), x[..., second].double())


def turns(before: Tensor, after: Tensor) -> Tensor:
    """By how much each pair is turned at each position: (pos, pair), complex128, of modulus about 1.

    Parameters
    ----------
    before, after : Tensor (…, pos, pair), complex128
        The same vectors before and after; whatever is in front of pos turns alike.

    Returns
    -------
    Tensor
        Least squares, Σ after·conj(before)/Σ|before|²; NaN where a pair holds nothing but 0.
    """
    before, after = (x.reshape(-1, *x.shape[-2:]) for x in (before, after))
    weight = before.abs().square().sum(0)
    return (after * before.conj()).sum(0) / torch.where(weight > 0, weight, torch.nan)


def later(turn: Tensor, delta: int) -> Tensor:
    """The turns `delta` positions further on: (pos, pair).

    The angle of a pair grows by the same step at each position; the step is read off neighbours.

    Parameters
    ----------
    turn : Tensor (pos, pair), complex128
        Of at least two positions.
    delta : int
    """
    step = (turn[1:] * turn[:-1].conj()).sum(0)
    return turn * torch.polar(torch.ones_like(step.real), delta * step.angle())


def turned(x: Tensor, turn: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Vectors (…, pos, channel) with their pairs turned; other channels stay."""
    made = pairs_of(x, first, second) * turn
    out = x.double().clone()
    out[..., first], out[..., second] = made.real, made.imag
    return out

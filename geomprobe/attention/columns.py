"""Tensors as columns: one a channel, over all tokens, so that a channel can be found again wherever a model put it.

A projection may hold queries, keys and values one after the other, head by head or interleaved; a rotation may take a
part of each head; a latent may be spread over heads. Columns do not care: a channel is the one column that has its
values, bit for bit.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

Form = Literal["split", "positions_first", "merged", "heads_in_batch"]
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Layout:
    """Which axes of a tensor are batch and position; all others, in their order, are its columns.

    Attributes
    ----------
    form : str
        "split" (batch, …), "positions_first" (pos, batch, …), "merged" (batch · pos, …), "heads_in_batch"
        (batch · head, pos, …).
    pos : int
        The axis of positions, for "split".
    """

    form: Form
    pos: int = 1


def layouts(tensor: Tensor, batch: int, length: int) -> list[Layout]:
    """The layouts that a shape allows; the likelier first. Values decide among them."""
    shape = tensor.shape
    if len(shape) < 2:
        return []
    found = []
    if shape[0] == batch:
        axes = [2, 1, *range(3, len(shape))] if len(shape) == 4 else range(1, len(shape))
        found += [Layout("split", axis) for axis in axes if shape[axis] == length]
    if shape[0] == length and shape[1] == batch and len(shape) > 2:
        found.append(Layout("positions_first", 0))
    if shape[0] == batch * length and batch > 1:
        found.append(Layout("merged"))
    if batch > 1 and shape[0] % batch == 0 and shape[0] > batch and shape[1] == length and len(shape) > 2:
        found.append(Layout("heads_in_batch"))
    # One sequence: batch · pos is pos, and batch · head is head.
    if batch == 1 and shape[0] == length:
        found.append(Layout("merged"))
    if batch == 1 and len(shape) > 2 and shape[1] == length and shape[0] > 1:
        found.append(Layout("heads_in_batch"))
    return found


def columns(tensor: Tensor, layout: Layout, batch: int, length: int) -> Tensor | None:
    """The tensor as (batch, pos, column), a view where it can be one; None where the layout does not fit its shape."""
    if layout not in layouts(tensor, batch, length):
        return None
    if layout.form == "split":
        return tensor.movedim(layout.pos, 1).flatten(2) if tensor.dim() > 2 else tensor[..., None]
    if layout.form == "positions_first":
        return tensor.transpose(0, 1).flatten(2)
    if layout.form == "merged":
        return tensor.unflatten(0, (batch, length)).flatten(2)
    return tensor.unflatten(0, (batch, -1)).movedim(2, 1).flatten(2)


def as_vectors(found: Tensor, heads: int) -> Tensor:
    """(batch, pos, head · channel) as (batch, head, pos, channel)."""
    return found.unflatten(-1, (heads, -1)).transpose(1, 2)


@cache
def _weights(tokens: int) -> Tensor:
    generator = torch.Generator().manual_seed(8_191)
    return torch.randint(-(2**62), 2**62, (tokens,), generator=generator, dtype=torch.int64) | 1


def fingerprints(found: Tensor) -> Tensor:
    """One number a column of (batch, pos, column), equal where all its values are: (column,) int64."""
    bits = (found + 0.0).flatten(0, 1).contiguous()  # + 0: −0 becomes 0, which it equals
    numbers = bits.view(_INTEGERS[bits.element_size()]).long()
    return (numbers * _weights(len(numbers)).to(numbers.device)[:, None]).sum(0)


@dataclass(frozen=True, eq=False)
class Match:
    """Which column each channel is.

    Attributes
    ----------
    channels : Tensor (item,), int64
        The channels that were found.
    columns : Tensor (item,), int64
    start : int or None
        Where all channels are consecutive columns in their own order: the first; else None.
    sure : bool
        Whether no other column has the values of one that was taken.
    """

    channels: Tensor
    columns: Tensor
    start: int | None
    sure: bool

    @property
    def width(self) -> int:
        """How many channels."""
        return len(self.channels)


def match_whole(wanted: Tensor, open_channels: Tensor, have: Tensor) -> Match | None:
    """Find a vector whose channels are consecutive columns in their own order; as `match`."""
    n = len(wanted)
    if not bool(open_channels.all()) or len(have) % n:
        return None
    for start in range(0, len(have), n):
        if torch.equal(have[start : start + n], wanted):
            everything = torch.arange(n, device=wanted.device)
            return Match(everything, everything + start, start, sure=True)
    return None


def match(wanted: Tensor, open_channels: Tensor, have: Tensor) -> Match | None:
    """Find channels among columns by their fingerprints.

    Parameters
    ----------
    wanted : Tensor (channel,), int64
    open_channels : Tensor (channel,), bool
        Those that are looked for.
    have : Tensor (column,), int64
    """
    n = len(wanted)
    everything = torch.arange(n, device=wanted.device)
    ordered, places = have.sort(stable=True)
    at = torch.searchsorted(ordered, wanted).clamp(max=len(ordered) - 1)
    there = (ordered[at] == wanted) & open_channels
    if not bool(there.any()):
        return None
    again = (at + 1).clamp(max=len(ordered) - 1)
    sure = not bool(((ordered[again] == wanted) & (again != at) & there).any())
    channels, found = everything[there], places[at[there]]
    first: int | None = int(found[0]) if len(channels) == n and torch.equal(found, everything + found[0]) else None
    return Match(channels, found, first, sure)

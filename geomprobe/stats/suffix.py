"""Λ without a T × T pass: the mean of a logit over many queries is the logit of their mean query."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries that judge each key: those outside its neighbourhood that see all of it.

    For a key at k they are ``low[k] … high[k]`` without ``k − reach … k + reach``; in a causal model the first part is
    empty and they all stand behind.

    Attributes
    ----------
    low, high : Tensor (batch or 1, pos), int64
        low > high where there are none.
    count : Tensor (batch or 1, pos), int64
    reach : int
    behind : bool
        Whether no query stands before its key, as in a causal model.
    judged : slice
        From the first to the last key that has queries.
    """

    low: Tensor
    high: Tensor
    count: Tensor
    reach: int
    behind: bool
    judged: slice

    def contain(self, rows: Tensor, keys: slice) -> Tensor:
        """Whether queries judge keys: (batch or 1, row, key) bool."""
        position = torch.arange(keys.start, keys.stop, device=rows.device)
        low, high = self.low[:, None, keys], self.high[:, None, keys]
        far = (rows[:, None] - position).abs() > self.reach
        return (rows[:, None] >= low) & (rows[:, None] <= high) & far


def queries_of(visibility, reach: int) -> Queries:  # type: ignore[no-untyped-def]
    """The queries that judge each key under a visibility.

    Parameters
    ----------
    visibility : geomprobe.attention.visibility.Visibility
    reach : int
        Half the width of a key's neighbourhood; a key nearer than this to either end has no queries.
    """
    key = ("queries", reach)
    if key not in visibility.cache:
        first, last = visibility.seen_by()  # (batch or 1, pos)
        length = visibility.n_keys
        low, high = torch.full_like(first, length), torch.full_like(last, -1)
        if length > 2 * reach:
            # A query sees the whole neighbourhood where it comes after the last "first" and before the first "last".
            low[:, reach:-reach] = first.unfold(1, 2 * reach + 1, 1).amax(-1)
            high[:, reach:-reach] = last.unfold(1, 2 * reach + 1, 1).amin(-1)
        position = torch.arange(length, device=first.device)
        inside_low = torch.maximum(low, position - reach)
        inside_high = torch.minimum(high, position + reach)
        count = (high - low + 1).clamp(min=0) - (inside_high - inside_low + 1).clamp(min=0)
        behind = bool((low >= position - reach).all())
        found = (count > 0).any(0).nonzero().flatten().tolist()
        judged = slice(found[0], found[-1] + 1) if found else slice(0, 0)
        visibility.cache[key] = Queries(low, high, count, reach, behind, judged)
    return visibility.cache[key]


def _pick(prefix: Tensor, at: Tensor) -> Tensor:
    """prefix[:, :, at]: (batch, head, key, channel); a view where the places are one run or one place.

    Parameters
    ----------
    prefix : Tensor (batch, head, pos + 1, channel)
    at : Tensor (batch or 1, key), int64
    """
    if len(at) > 1:
        index = at[:, None, :, None].expand(-1, prefix.shape[1], -1, prefix.shape[3])
        return prefix.gather(2, index)
    row = at[0]
    if row.device.type == "cpu" and len(row):  # a look at the places costs a wait on a GPU, where copies are cheap
        first, steps = int(row[0]), row.diff()
        if bool((steps == 1).all()):
            return prefix[:, :, first : first + len(row)]
        if bool((steps == 0).all()):
            return prefix[:, :, first : first + 1]
    return prefix[:, :, row]


def _sums(prefix: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Sums of x[low] … x[high] from the prefix sums of x; 0 where low > high.

    Parameters
    ----------
    prefix : Tensor (batch, head, pos + 1, channel)
    low, high : Tensor (batch or 1, key), int64
    """
    return _pick(prefix, torch.maximum(high + 1, low)) - _pick(prefix, low)


def _prefix(x: Tensor) -> Tensor:
    """Sums of what stands before each position: (…, pos + 1, channel), float64."""
    *outer, length, width = x.shape
    sums = torch.zeros(*outer, length + 1, width, dtype=torch.float64, device=x.device)
    torch.cumsum(x, -2, dtype=torch.float64, out=sums[..., 1:, :])
    return sums


def _far_sums(prefix: Tensor, queries: Queries, keys: slice) -> Tensor:
    """Sums of the queries that judge some keys: (batch, q_head, key, head_dim)."""
    length = queries.low.shape[1]
    position = torch.arange(keys.start, keys.stop, device=prefix.device)[None]
    low, high = queries.low[:, keys].clamp(max=length), queries.high[:, keys]
    near_high = position + queries.reach
    if queries.behind:  # all of them come after the neighbourhood: one run
        return _sums(prefix, torch.maximum(low, near_high + 1).clamp(max=length), high)
    near_low = torch.maximum(low, position - queries.reach).clamp(0, length)
    return _sums(prefix, low, high) - _sums(prefix, near_low, torch.minimum(high, near_high))


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Content tokens around each key; the same for every layer of a batch.

    Attributes
    ----------
    content : Tensor (batch, pos), bool
        Tokens that may serve as neighbours.
    count : Tensor (batch, pos), int64
    offset : Tensor (batch, pos), float64
        Mean of k' − k; NaN where there are none.
    reach : int
    """

    content: Tensor
    count: Tensor
    offset: Tensor
    reach: int

    def span(self, keys: slice) -> tuple[Tensor, Tensor]:
        """The first and last position around some keys: two (1, key) int64."""
        position = torch.arange(keys.start, keys.stop, device=self.content.device)[None]
        return (position - self.reach).clamp(min=0), (position + self.reach).clamp(max=self.content.shape[1] - 1)

    def mean(self, x: Tensor, keys: slice) -> Tensor:
        """Mean of `x` (batch, head, pos, channel) over each key's neighbours (head, key), NaN over none."""
        some = self.count[:, None, keys, None].double()
        kept = torch.where(self.content[:, None, :, None], x, 0)
        return (_sums(_prefix(kept), *self.span(keys)) - kept[:, :, keys]) / torch.where(some > 0, some, torch.nan)


def neighbours_of(content: Tensor, reach: int) -> Neighbours:
    """The content tokens at most `reach` away from each key, itself apart."""
    position = torch.arange(content.shape[1], device=content.device)[None]
    low, high = (position - reach).clamp(min=0), (position + reach).clamp(max=content.shape[1] - 1)
    own = content.double()

    def about(x: Tensor) -> Tensor:
        return _sums(_prefix(x[:, None, :, None]), low, high)[:, 0, :, 0] - x  # (batch, pos)

    count = about(own)
    offset = about(position.double() * own) / torch.where(count > 0, count, torch.nan) - position
    return Neighbours(content, count.round().long(), offset, reach)


def contrast_parts(
    query: Tensor, key: Tensor, *, neighbours: Neighbours, queries: Queries, scale: float
) -> tuple[Tensor, Tensor]:
    """Λ_k and the part of it that lies in lengths.

    For a key f, a neighbour c and one query, x_tf − x_tc = scale·m_t·[(n_f − n_c)·½(cos_tf + cos_tc) + ½(n_f + n_c)·
    (cos_tf − cos_tc)], the first term in lengths, the second in angles. Both are linear in q_t, and over the neighbours
    the first is ½[(n_f − n̄)·k̂_f + n_f·mean(k̂) − mean(k)]: sums over runs again. The formula holds before soft-cap and
    bias.

    Parameters
    ----------
    query, key, neighbours, queries, scale
        As in `contrast`.

    Returns
    -------
    (Tensor, Tensor) (batch, q_head, pos), float64
        Λ and its length part; Λ less that is its angle part.
    """
    batch, q_heads, length, _ = query.shape
    shape = (batch, q_heads, length)
    value, part = (torch.full(shape, torch.nan, dtype=torch.float64, device=query.device) for _ in range(2))
    keys = queries.judged
    if keys.start >= keys.stop:
        return value, part
    wide = key.double()
    n = wide.norm(dim=-1, keepdim=True)
    unit = wide / torch.where(n > 0, n, 1)
    own, own_n, own_unit = wide[:, :, keys], n[:, :, keys], unit[:, :, keys]
    mean, mean_n, mean_unit = (neighbours.mean(x, keys) for x in (wide, n, unit))
    lengths = 0.5 * ((own_n - mean_n) * own_unit + own_n * mean_unit - mean)
    judge = _judge(query, key.shape[1], queries, scale)
    value[..., keys], part[..., keys] = judge(own - mean), judge(lengths)
    return value, part


def _judge(query: Tensor, kv_heads: int, queries: Queries, scale: float) -> Callable[[Tensor], Tensor]:
    """What the queries that judge each key make, on average, of vectors (batch, kv_head, key, channel): by q_head."""
    keys = queries.judged
    total = _far_sums(_prefix(query), queries, keys)
    groups = total.view(query.shape[0], kv_heads, -1, *total.shape[2:])
    n = queries.count[:, None, keys].double()
    by = scale / torch.where(n > 0, n, torch.nan)
    return lambda against: (groups * against[:, :, None]).sum(-1).flatten(1, 2) * by


def first_contrast(
    query: Tensor, key: Tensor, content: Tensor, visibility: Any, *, reach: int, scale: float
) -> tuple[Tensor, Tensor, int]:
    """The logit of position 0 less that of the content keys before each query, and the part of it in lengths.

    Parameters
    ----------
    query : Tensor (batch, q_head, pos, head_dim)
    key : Tensor (batch, kv_head, pos, head_dim)
    content : Tensor (batch, pos), bool
        Keys that serve as the other side.
    visibility : geomprobe.attention.visibility.Visibility
        A query counts where it sees position 0 and a content key more than `reach` before it.
    reach : int
    scale : float

    Returns
    -------
    (Tensor, Tensor, int)
        Sums over queries: of the contrast and of its length part, (q_head,) float64; how many queries.
    """
    batch, _, length, width = query.shape
    kept = content[:, None, :, None]
    wide = key.double()
    n = wide.norm(dim=-1, keepdim=True)
    unit = wide / torch.where(n > 0, n, 1)
    position = torch.arange(length, device=key.device)
    last = (torch.minimum(visibility.high, position - reach - 1)).clamp(min=-1) + 1  # (batch or 1, pos)

    def before(x: Tensor) -> Tensor:
        return _pick(_prefix(torch.where(kept, x, 0)), last)  # (batch, kv_head, pos, …)

    count = _pick(_prefix(kept.double()), last)  # (batch, 1, pos, 1)
    alive = (count > 0) & (visibility.low == 0)[:, None, :, None]
    some = torch.where(alive, count, 1)
    mean = before(wide) / some
    first, first_n, first_unit = wide[:, :, :1], n[:, :, :1], unit[:, :, :1]
    lengths = 0.5 * ((first_n - before(n) / some) * first_unit + first_n * before(unit) / some - mean)
    groups = query.double().view(batch, key.shape[1], -1, length, width)
    sums = [
        torch.einsum("bkgtd,bktd->kg", groups, torch.where(alive, against, 0)).flatten() * scale
        for against in (first - mean, lengths)
    ]
    return sums[0], sums[1], int(alive.expand(batch, 1, length, 1).sum())


def contrast(query: Tensor, key: Tensor, *, neighbours: Neighbours, queries: Queries, scale: float) -> Tensor:
    """Λ_k: the mean logit of key k less that of its content neighbours, over the same queries.

    Λ_k = mean_t [x_tk − mean_{k'} x_tk'] is linear in q_t, so the mean over t may be taken of the queries first; sums
    over runs of queries are differences of prefix sums. O(pos · channel) instead of O(pos²).

    Parameters
    ----------
    query : Tensor (batch, q_head, pos, head_dim)
    key : Tensor (batch, kv_head, pos, head_dim)
    neighbours : Neighbours
    queries : Queries
    scale : float

    Returns
    -------
    Tensor (batch, q_head, pos), float64
        NaN where there are no neighbours or no queries.
    """
    batch, q_heads, length, _ = query.shape
    value = torch.full((batch, q_heads, length), torch.nan, dtype=torch.float64, device=query.device)
    keys = queries.judged
    if keys.start >= keys.stop:
        return value
    wide = key.double()
    against = wide[:, :, keys] - neighbours.mean(wide, keys)  # (batch, kv_head, key, head_dim)
    value[..., keys] = _judge(query, key.shape[1], queries, scale)(against)
    return value

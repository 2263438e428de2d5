"""Λ without a T × T pass: the mean of a logit over many queries is the logit of their mean query."""

from dataclasses import dataclass

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
    """

    low: Tensor
    high: Tensor
    count: Tensor
    reach: int

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
        visibility.cache[key] = Queries(low, high, count, reach)
    return visibility.cache[key]


def _sums(prefix: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Sums of x[low] … x[high] from the prefix sums of x; 0 where low > high.

    Parameters
    ----------
    prefix : Tensor (batch, head, pos + 1, channel)
    low, high : Tensor (batch or 1, pos), int64
    """
    high = torch.maximum(high + 1, low)
    if len(low) == 1:
        return prefix[:, :, high[0]] - prefix[:, :, low[0]]
    pick = lambda at: prefix.gather(2, at[:, None, :, None].expand(-1, prefix.shape[1], -1, prefix.shape[3]))  # noqa: E731
    return pick(high) - pick(low)


def _prefix(x: Tensor) -> Tensor:
    """Sums of what stands before each position: (…, pos + 1, channel), float64."""
    zero = torch.zeros_like(x[..., :1, :], dtype=torch.float64)
    return torch.cat([zero, x.cumsum(-2, dtype=torch.float64)], dim=-2)


def contrast(
    query: Tensor, key: Tensor, *, content: Tensor, queries: Queries, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Λ_k: the mean logit of key k less that of its content neighbours, over the same queries.

    Λ_k = mean_t [x_tk − mean_{k'} x_tk'] is linear in q_t, so the mean over t may be taken of the queries first; sums
    over runs of queries are differences of prefix sums. O(pos · channel) instead of O(pos²).

    Parameters
    ----------
    query : Tensor (batch, q_head, pos, head_dim)
    key : Tensor (batch, kv_head, pos, head_dim)
    content : Tensor (batch, pos), bool
        Tokens that may serve as neighbours.
    queries : Queries
    scale : float

    Returns
    -------
    value : Tensor (batch, q_head, pos), float64
        NaN where there are no neighbours or no queries.
    offset : Tensor (batch, pos), float64
        Mean of k' − k.
    n_neighbours : Tensor (batch, pos), int64
    """
    reach = queries.reach
    batch, q_heads, length, _ = query.shape
    position = torch.arange(length, device=query.device)[None]
    low, high = (position - reach).clamp(min=0), (position + reach).clamp(max=length - 1)
    member = content[:, None, :, None].double()
    own = content.double()
    about = _sums(_prefix(own[:, None, :, None]), low, high)[:, 0, :, 0] - own  # (batch, pos)
    n_neighbours = about.round().long()
    some = torch.where(about > 0, about, torch.nan)
    place = position.double() * own
    offset = (_sums(_prefix(place[:, None, :, None]), low, high)[:, 0, :, 0] - place) / some - position

    key = key.double()
    kept = key * member
    others = (_sums(_prefix(kept), low, high) - kept) / some[:, None, :, None]
    against = key - others  # (batch, kv_head, pos, head_dim)

    prefix = _prefix(query)
    near_low, near_high = torch.maximum(queries.low, position - reach), torch.minimum(queries.high, position + reach)
    total = _sums(prefix, queries.low.clamp(max=length), queries.high)
    total -= _sums(prefix, near_low.clamp(0, length), near_high)
    n = queries.count[:, None].double()
    groups = total.view(batch, key.shape[1], -1, length, total.shape[-1])
    value = torch.einsum("bkgtd,bktd->bkgt", groups, against).reshape(batch, q_heads, length)
    return value * scale / torch.where(n > 0, n, torch.nan), offset, n_neighbours

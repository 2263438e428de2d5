"""Count, mean and spread of a stream, kept so that parts merge in any order."""

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

Moments = dict[str, Tensor]


def empty(*shape: int) -> Moments:
    """Moments of nothing: n (float64, a count), mean and m2, the sum of squared deviations."""
    return {name: torch.zeros(shape, dtype=torch.float64) for name in ("n", "mean", "m2")}


def of_groups(x: Tensor, member: Tensor) -> Moments:
    """Moments of each row of `x` within groups of its columns.

    Parameters
    ----------
    x : Tensor (series, item), float64
        Finite values.
    member : Tensor (series or 1, item, group), float64
        1 where an item belongs to a group, else 0; an item belongs to one group at most.

    Returns
    -------
    dict of Tensor (series, group)
        The deviations are taken from each group's own mean, so nothing cancels.
    """
    n = member.sum(-2)  # (series or 1, group)
    total = torch.matmul(x.unsqueeze(-2), member).squeeze(-2)  # (series, group)
    n = n.expand_as(total)
    mean = total / n.clamp(min=1)
    own = torch.matmul(member, mean.unsqueeze(-1)).squeeze(-1)  # (series, item): the mean of an item's own group
    m2 = torch.matmul((x - own).square().unsqueeze(-2), member).squeeze(-2)
    return {"n": n, "mean": mean, "m2": m2}


def merge(a: Moments, b: Moments) -> Moments:
    """Moments of two streams together (Chan, Golub and LeVeque 1979, pairwise update)."""
    n = a["n"] + b["n"]
    delta = b["mean"] - a["mean"]
    share = b["n"] / n.clamp(min=1)
    return {
        "n": n,
        "mean": a["mean"] + delta * share,
        "m2": a["m2"] + b["m2"] + delta.square() * a["n"] * share,
    }


def pool(groups: Moments, members: Sequence[int]) -> Moments:
    """Moments of some groups together: (series, group) to (series, 1)."""
    parts = ({name: value[..., member : member + 1] for name, value in groups.items()} for member in members)
    return reduce(merge, parts)

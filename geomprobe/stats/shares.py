"""How much of an attention its lengths tell, how much its angles: descriptions of rows by part of the facts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

HIDDEN = -1e30
Finish = Callable[[Tensor], Tensor]  # from scale·q·k to what enters the softmax: soft-cap and bias


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of the attention of a layer, in one gauge.

    Attributes
    ----------
    products : Tensor (batch, q_head, row, key)
        scale·q·k, in this gauge.
    query : Tensor (batch, q_head, row)
        scale · length of each query.
    key : Tensor (batch, q_head, key)
        Lengths of the keys, each head's own.
    visible : Tensor (batch or 1, 1, row, key), bool
        What a row may count: V(t), without position 0 where that is out.
    finish : callable
        Soft-cap and bias on (batch, q_head, row, key).
    """

    products: Tensor
    query: Tensor
    key: Tensor
    visible: Tensor
    finish: Finish

    def log_softmax(self, x: Tensor) -> Tensor:
        """Log of the attention that logits `x` before soft-cap and bias would give; −1e30 where hidden."""
        made = torch.where(self.visible, self.finish(x), HIDDEN)
        return torch.where(self.visible, made - made.logsumexp(-1, keepdim=True), HIDDEN)

    @cached_property
    def own(self) -> Tensor:
        """Log of the attention itself, over the keys that count: (batch, q_head, row, key)."""
        return self.log_softmax(self.products)

    @cached_property
    def probability(self) -> Tensor:
        """The attention itself: (batch, q_head, row, key)."""
        return self.own.exp()

    def mean(self, x: Tensor) -> Tensor:
        """Mean of `x` (…, row, key) over the keys that count: (…, row)."""
        return torch.where(self.visible, x, 0).sum(-1) / self.visible.sum(-1)

    @property
    def cosines(self) -> Tensor:
        """Cos of every query and key: (batch, q_head, row, key)."""
        return self.products / (self.query[..., None] * self.key[..., None, :])

    def by_angle(self) -> Tensor:
        """Logits if every key had the row's geometric mean length: scale·m·n̄·cos."""
        middle = self.mean(self.key.log()[..., None, :].expand_as(self.products)).exp()  # (batch, q_head, row)
        return self.products * (middle[..., None] / self.key[..., None, :])

    def by_length(self) -> Tensor:
        """Logits if every key stood at the row's mean cosine: scale·m·c̄·n."""
        return (self.query * self.mean(self.cosines))[..., None] * self.key[..., None, :]


def divergence(rows: Rows, other: Tensor) -> Tensor:
    """KL(A ‖ other) of the rows' attention from other log probabilities: (batch, q_head, row)."""
    return torch.where(rows.visible, rows.probability * (rows.own - other), 0).sum(-1)


def explained(rows: Rows) -> dict[str, Tensor]:
    """What each description of the rows leaves unexplained, KL(A ‖ Â): (batch, q_head, row) each.

    Returns
    -------
    dict
        empty (uniform over the keys), angle, length.
    """
    own = rows.own
    visible = rows.visible.expand_as(own)
    uniform = torch.where(visible, -rows.visible.sum(-1, keepdim=True).to(own.dtype).log(), HIDDEN)
    return {
        "empty": divergence(rows, uniform),
        "angle": divergence(rows, rows.log_softmax(rows.by_angle())),
        "length": divergence(rows, rows.log_softmax(rows.by_length())),
    }


def fidelity(rows: Rows, middle: Tensor) -> dict[str, Tensor]:
    """How near the attention is to one of cosines alone, with one temperature a head.

    Parameters
    ----------
    rows : Rows
    middle : Tensor (batch, q_head)
        The head's geometric mean key length n̄; β = scale·m·n̄ in each row.

    Returns
    -------
    dict of Tensor (batch, q_head, row)
        tv, and the sums behind R² of row-centred logits on row-centred m·cos: xy, xx, yy.
    """
    own = rows.own
    other = rows.log_softmax(rows.products * (middle[..., None, None] / rows.key[..., None, :]))
    visible = rows.visible.expand_as(own)
    tv = 0.5 * torch.where(visible, (rows.probability - other.exp()).abs(), 0).sum(-1)
    x = rows.query[..., None] * rows.cosines
    x, y = (torch.where(visible, z - rows.mean(z)[..., None], 0) for z in (x, rows.products))
    return {"tv": tv, "xy": (x * y).sum(-1), "xx": (x * x).sum(-1), "yy": (y * y).sum(-1)}


def leverage(rows: Rows, slope: Tensor) -> Tensor:
    """Σ_j ∂A_tj/∂log n_j = Σ_j A(1 − A)·x·cap′(x): (batch, q_head, row).

    Parameters
    ----------
    rows : Rows
    slope : Tensor
        cap′(x) at the products; 1 without a soft-cap.
    """
    own = rows.probability
    return torch.where(rows.visible.expand_as(own), own * (1 - own) * rows.products * slope, 0).sum(-1)


def norm_share(empty: Tensor, angle: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Shapley's division of what length and angle explain: (φ_norm, φ_angle).

    v(B) = −KL of description B, v(both) = 0; φ_norm = ½[(v_norm − v_∅) + (v_both − v_angle)].
    """
    return 0.5 * ((empty - length) + angle), 0.5 * ((empty - angle) + length)


def bucket_rho(a: Tensor, b: Tensor, valid: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Spearman's ρ of a and b within buckets of positions, as a sum of Fisher's z and of its weights n − 3.

    Parameters
    ----------
    a, b : Tensor (batch, head, pos)
    valid : Tensor (pos,), bool
    size : int
        Positions a bucket; one with fewer than five values is left out.

    Returns
    -------
    (Tensor, Tensor)
        Σ (n − 3)·z and Σ (n − 3): (head,) each.
    """
    z_sum = torch.zeros(a.shape[1], dtype=torch.float64)
    weight = torch.zeros_like(z_sum)
    for start in range(0, a.shape[2], size):
        at = valid[start : start + size].nonzero().flatten() + start
        n = len(at)
        if n < 5:
            continue
        x, y = (_ranks(z[..., at].double()) for z in (a, b))  # (batch, head, n)
        x, y = (z - z.mean(-1, keepdim=True) for z in (x, y))
        scale = (x.square().sum(-1) * y.square().sum(-1)).sqrt()
        rho = torch.where(scale > 0, (x * y).sum(-1) / scale, 0)
        z = rho.clamp(-1 + 1e-9, 1 - 1e-9).atanh()
        z_sum += (n - 3) * z.sum(0).cpu()
        weight += (n - 3) * len(a)
    return z_sum, weight


def _ranks(x: Tensor) -> Tensor:
    """Ranks along the last axis, ties at their mean."""
    below = (x[..., None, :] < x[..., :, None]).sum(-1)
    same = (x[..., None, :] == x[..., :, None]).sum(-1)
    return below + (same - 1).double() / 2

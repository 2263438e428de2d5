"""The balanced gauge: the one among all equal descriptions of an attention in which keys and queries are alike.

Attention is unchanged by k → M k, q → M⁻ᵀ q with an invertible M; where channels rotate, M may hold but one number a
rotary pair. So lengths and angles of queries and keys are fixed only once such an M is chosen.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

Moments = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Pairing:
    """Which channels of a head turn together.

    Attributes
    ----------
    first, second : Tensor (pair,), int64
        Channels of the rotary pairs.
    free : Tensor (channel,), int64
        Channels that do not turn.
    """

    first: Tensor
    second: Tensor
    free: Tensor

    @classmethod
    def of(cls, width: int, channels: tuple[int, ...], kind: str) -> "Pairing":
        """The pairing of a head of `width` channels, of which `channels` turn: half-split or interleaved."""
        turning = torch.tensor(channels, dtype=torch.int64)
        half = len(channels) // 2
        first, second = (turning[::2], turning[1::2]) if kind == "interleaved" else (turning[:half], turning[half:])
        still = torch.ones(width, dtype=torch.bool)
        still[turning] = False
        return cls(first, second, still.nonzero().flatten())


def empty(kv_heads: int, width: int) -> Moments:
    """Second moments of nothing: n, and sums of qqᵀ, kkᵀ and k by kv_head, float64."""
    square = (kv_heads, width, width)
    return {
        "n": torch.zeros((), dtype=torch.int64),
        "n_q": torch.zeros((), dtype=torch.int64),
        "qq": torch.zeros(square, dtype=torch.float64),
        "kk": torch.zeros(square, dtype=torch.float64),
        "k": torch.zeros(kv_heads, width, dtype=torch.float64),
    }


def add(moments: Moments, query: Tensor, key: Tensor) -> None:
    """Add vectors in place, those of position 0 left out.

    Parameters
    ----------
    query : Tensor (batch, q_head, pos, channel)
        The queries of a kv_head's group are pooled.
    key : Tensor (batch, kv_head, pos, channel)
    """
    kv_heads, width = key.shape[1], key.shape[3]
    k = key[:, :, 1:].transpose(0, 1).reshape(kv_heads, -1, width).double().cpu()
    q = query[:, :, 1:].unflatten(1, (kv_heads, -1)).transpose(0, 1).reshape(kv_heads, -1, width).double().cpu()
    moments["n"] += k.shape[1]
    moments["n_q"] += q.shape[1]
    moments["qq"] += q.transpose(1, 2) @ q
    moments["kk"] += k.transpose(1, 2) @ k
    moments["k"] += k.sum(1)


@dataclass(frozen=True, eq=False)
class Gauge:
    """A change of description.

    Attributes
    ----------
    key, query : Tensor (kv_head, channel, channel), float64
        k' = (k − centre) · key and q' = q · query, as rows.
    centre : Tensor (kv_head, channel), float64
        0 on channels that turn, and everywhere where the softmax sees a constant (soft-cap, learned sink).
    n_kept : int
        Rotary pairs without a moment, which keep their scale.
    """

    key: Tensor
    query: Tensor
    centre: Tensor
    n_kept: int

    def apply(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys in this gauge; centring takes one number from each query's logits, which no softmax sees.

        Parameters
        ----------
        query : Tensor (batch, q_head, pos, channel)
        key : Tensor (batch, kv_head, pos, channel)

        Returns
        -------
        (Tensor, Tensor)
            Shaped as given.
        """
        by, to, centre = (x.to(key.device, key.dtype) for x in (self.key, self.query, self.centre))
        return _grouped(query, to), _by_head(key - centre[None, :, None], by)

    def undo(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys of this gauge as they were before `apply`; keys get their centre back.

        The inverse of either matrix is taken to be the other's transpose, which it is where no product changes: through
        what is no gauge vectors do not come back.

        Parameters
        ----------
        query : Tensor (batch, q_head, pos, channel)
        key : Tensor (batch, kv_head, pos, channel)

        Returns
        -------
        (Tensor, Tensor)
            Shaped as given.
        """
        by, to, centre = (x.to(key.device, key.dtype) for x in (self.key, self.query, self.centre))
        return _grouped(query, by.mT), _by_head(key, to.mT) + centre[None, :, None]

    def keys(self, key: Tensor) -> Tensor:
        """Keys alone in this gauge: (batch, kv_head, pos, channel)."""
        by, centre = (x.to(key.device, key.dtype) for x in (self.key, self.centre))
        return _by_head(key - centre[None, :, None], by)


def _by_head(x: Tensor, by: Tensor) -> Tensor:
    """Rows times a matrix a head: (batch, kv_head, pos, channel)."""
    return torch.einsum("bktc,kcd->bktd", x, by)


def _grouped(x: Tensor, by: Tensor) -> Tensor:
    """The same for queries, each by its kv_head's matrix: (batch, q_head, pos, channel)."""
    grouped = x.unflatten(1, (len(by), -1))  # (batch, kv_head, group, pos, channel)
    return torch.einsum("bkgtc,kcd->bkgtd", grouped, by).flatten(1, 2)


def _root(matrix: Tensor) -> Tensor:
    """The positive square root of a symmetric positive matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T


def _matrix_gauge(qq: Tensor, kk: Tensor) -> Tensor | None:
    """M with M Σ_k M = M⁻¹ Σ_q M⁻¹, symmetric: X^½, X = Σ_k^-½ (Σ_k^½ Σ_q Σ_k^½)^½ Σ_k^-½; None where Σ is singular."""
    values, vectors = torch.linalg.eigh(kk)
    if (
        values.min() <= 1e-12 * values.max()
        or torch.linalg.eigvalsh(qq).min() <= 1e-12 * torch.linalg.eigvalsh(qq).max()
    ):
        return None
    root, inverse = (vectors * values.sqrt()) @ vectors.T, (vectors / values.sqrt()) @ vectors.T
    return _root(inverse @ _root(root @ qq @ root) @ inverse)


def balanced(moments: Moments, pairing: Pairing, *, centred: bool) -> Gauge:
    """The balanced gauge of the vectors in `moments`.

    A rotary pair p is scaled by m_p = (E|q_p|²/E|k_p|²)^¼; channels that do not turn get the matrix that makes the
    second moments of queries and keys equal, keys centred first where that changes no attention.

    Parameters
    ----------
    moments : dict
    pairing : Pairing
    centred : bool
        Whether the softmax sees no constant: neither soft-cap nor learned sink.
    """
    kv_heads, width = moments["k"].shape
    n, n_q = int(moments["n"]), int(moments["n_q"])
    key = torch.eye(width, dtype=torch.float64).repeat(kv_heads, 1, 1)
    query = key.clone()
    mean = moments["k"] / max(n, 1)
    centre = torch.zeros_like(mean)
    kept = 0
    q_square = moments["qq"].diagonal(dim1=1, dim2=2) / max(n_q, 1)
    k_square = moments["kk"].diagonal(dim1=1, dim2=2) / max(n, 1)
    a, b, free = pairing.first, pairing.second, pairing.free
    if len(a):
        ratio = (q_square[:, a] + q_square[:, b]) / (k_square[:, a] + k_square[:, b])
        alive = torch.isfinite(ratio) & (ratio > 0)
        kept = int((~alive).sum())
        scale = torch.where(alive, ratio, 1).pow(0.25)  # (kv_head, pair)
        for channels in (a, b):
            key[:, channels, channels] = scale
            query[:, channels, channels] = 1 / scale
    if len(free):
        if centred:
            centre[:, free] = mean[:, free]
        grid = torch.meshgrid(free, free, indexing="ij")
        for head in range(kv_heads):
            at = centre[head, free]
            spread = moments["kk"][head][grid] / max(n, 1) - torch.outer(at, at)
            made = _matrix_gauge(moments["qq"][head][grid] / max(n_q, 1), spread)
            if made is None:
                kept += len(free)
                continue
            key[head][grid] = made
            query[head][grid] = torch.linalg.inv(made)
    return Gauge(key, query, centre, kept)

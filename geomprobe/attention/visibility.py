"""Which keys each query may see, read from the model's own mask."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from geomprobe.errors import UnsupportedModel

# An additive mask hides a key by -inf, by the dtype's lowest value or, in old models, by -10000.
HIDDEN_BELOW = -9_000.0
MOVES_BACK = (
    "A layer's mask lets an earlier query see later keys than a later query sees; "
    "geomprobe reads masks whose first and last visible key never move back."
)


@dataclass(frozen=True, eq=False)
class Visibility:
    """The keys that each query sees, as one interval of positions a query.

    Every causal, sliding, chunked, prefix and bidirectional mask is of this kind. A query's keys are
    ``low[b, t] <= j <= high[b, t]``; both are non-decreasing in t, so the queries that see a key are an interval too.

    Attributes
    ----------
    low, high : Tensor (batch or 1, pos), int64
    n_keys : int
    """

    low: Tensor
    high: Tensor
    n_keys: int
    cache: dict = field(default_factory=dict, repr=False)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self.low.shape[1]

    @property
    def count(self) -> Tensor:
        """|V(t)|: (batch or 1, pos), int64."""
        return self.high - self.low + 1

    @property
    def causal(self) -> bool:
        """Whether no query sees a key behind it."""
        if "causal" not in self.cache:
            position = torch.arange(self.n_queries, device=self.high.device)
            self.cache["causal"] = bool((self.high <= position).all())
        return self.cache["causal"]

    def rows(self, start: int, stop: int) -> tuple[int, int]:
        """The span of keys [first, last) that queries start … stop − 1 see between them."""
        key = ("rows", start, stop)
        if key not in self.cache:
            self.cache[key] = (
                int(self.low[:, start:stop].min()),
                int(self.high[:, start:stop].max()) + 1,
            )
        return self.cache[key]

    def sees(self, rows: Tensor) -> Tensor:
        """Which keys some queries see: (batch or 1, 1, row, key), bool."""
        position = torch.arange(self.n_keys, device=self.low.device)
        return ((position >= self.low[:, rows, None]) & (position <= self.high[:, rows, None]))[:, None]

    def block(self, start: int, stop: int) -> tuple[Tensor, int, int]:
        """What queries start … stop − 1 see.

        Returns
        -------
        visible : Tensor (batch or 1, 1, row, key), bool
            Over the span of keys that `rows` gives.
        full_from, full_to : int
            Within that span, columns full_from … full_to − 1 are seen by every row.
        """
        key = ("block", start, stop)
        if key not in self.cache:
            first, last = self.rows(start, stop)
            columns = torch.arange(first, last, device=self.low.device)
            low, high = self.low[:, start:stop, None], self.high[:, start:stop, None]
            visible = ((columns >= low) & (columns <= high))[:, None]  # (batch or 1, 1, row, key)
            full_from = int(self.low[:, start:stop].max()) - first
            full_to = int(self.high[:, start:stop].min()) + 1 - first
            self.cache[key] = (visible, full_from, max(full_from, full_to))
        return self.cache[key]

    def seen_by(self) -> tuple[Tensor, Tensor]:
        """The first and the last query that see each key: two (batch or 1, key) int64; first > last where none does."""
        if "seen_by" not in self.cache:
            keys = torch.arange(self.n_keys, device=self.low.device).expand(len(self.low), -1).contiguous()
            first = torch.searchsorted(self.high.contiguous(), keys)  # first t with high[t] >= j
            last = torch.searchsorted(self.low.contiguous(), keys, right=True) - 1  # last t with low[t] <= j
            self.cache["seen_by"] = (first, last)
        return self.cache["seen_by"]

    def uniform_mass(self) -> Tensor:
        """Attention that each key would receive if every row were uniform: (batch or 1, key), float64."""
        if "uniform" not in self.cache:
            weight = 1.0 / self.count.double()
            change = torch.zeros(len(self.low), self.n_keys + 1, dtype=torch.float64, device=self.low.device)
            change.scatter_add_(1, self.low, weight)
            change.scatter_add_(1, self.high + 1, -weight)
            self.cache["uniform"] = change.cumsum(1)[:, :-1]
        return self.cache["uniform"]

    def select(self, item: int, positions: Tensor) -> "Visibility":
        """The visibility among some positions of one batch item (what is left when its padding is cut out)."""
        index = item if len(self.low) > 1 else 0
        # Positions below `low` among those kept shift an interval's ends to the left.
        low = torch.searchsorted(positions, self.low[index, positions])
        high = torch.searchsorted(positions, self.high[index, positions], right=True) - 1
        return Visibility(low[None], high[None], len(positions))


def from_intervals(low: Tensor, high: Tensor, n_keys: int) -> Visibility:
    """A Visibility, after a check that intervals are monotone, which `seen_by` and the suffix sums need."""
    if (low.diff(dim=1) < 0).any() or (high.diff(dim=1) < 0).any():
        raise UnsupportedModel(MOVES_BACK)
    return Visibility(low, high, n_keys)


def causal(n_queries: int, n_keys: int, *, device: torch.device | str = "cpu") -> Visibility:
    """Query t sees keys 0 … t, aligned at the top left as scaled_dot_product_attention's is_causal is."""
    high = torch.arange(n_queries, device=device).clamp(max=n_keys - 1)[None]
    return Visibility(torch.zeros_like(high), high, n_keys)


def everything(n_queries: int, n_keys: int, *, device: torch.device | str = "cpu") -> Visibility:
    """Every query sees every key."""
    low = torch.zeros(1, n_queries, dtype=torch.int64, device=device)
    return Visibility(low, torch.full_like(low, n_keys - 1), n_keys)


def from_dense(visible: Tensor, valid: Tensor | None = None) -> Visibility:
    """Read intervals off a dense mask.

    Parameters
    ----------
    visible : Tensor (batch or 1, query, key), bool
    valid : Tensor (batch, key), bool, optional
        Padding; rows and columns of padding are ignored.

    Raises
    ------
    UnsupportedModel
        Where a valid query's keys are not one interval among the valid keys.
    """
    batch = len(valid) if valid is not None else len(visible)
    n_keys = visible.shape[2]
    visible = visible.expand(batch, -1, -1)
    rank = torch.arange(n_keys, device=visible.device).expand(batch, -1)
    if valid is not None:
        visible = visible & valid[:, None, :] & valid[:, :, None]
        rank = valid.cumsum(1) - 1
    count = visible.sum(-1)
    low = visible.int().argmax(-1)
    high = n_keys - 1 - visible.flip(-1).int().argmax(-1)
    inside = rank.gather(1, high) - rank.gather(1, low) + 1
    alive = torch.ones_like(count, dtype=torch.bool) if valid is None else valid
    if ((count != inside) & alive).any():
        raise UnsupportedModel(
            "A layer's mask lets a query see keys that are not one run of neighbours; "
            "geomprobe reads causal, sliding, chunked, prefix and full masks."
        )
    # A row of padding sees nothing; it takes its neighbours' interval so that the intervals stay monotone.
    low_filled = torch.where(alive, low, 0).cummax(1).values
    high_filled = torch.where(alive, high, n_keys - 1).flip(1).cummin(1).values.flip(1)
    if (((low_filled != low) | (high_filled != high)) & alive).any():
        raise UnsupportedModel(MOVES_BACK)
    return Visibility(low_filled, high_filled, n_keys)

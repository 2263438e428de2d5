"""Massive activations: single entries of the residual stream that dwarf all others (Sun et al. 2024)."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import Tokens
from geomprobe.attention.spec import Spec
from geomprobe.errors import at_least
from geomprobe.labels import FIRST
from geomprobe.probes.base import PROBES, ResidualProbe, State, add_at, counts, zeros

CHANNEL_BITS = 32  # a pair of token and channel is one number, which sorts by the token's place, then by the channel
EMPTY = torch.iinfo(torch.int64).max  # no pair; sorts behind all
FIRST_PLACE = 0  # of what stands at position 0, whatever token it is; token i of the corpus has the place i + 1
_SUMS = ("n", "windows", "sum_abs")
_TOPS = ("max_abs", "ratio")


@PROBES.register("massive")
@dataclass(frozen=True)
class Massive(ResidualProbe):
    """The table `massive` (docs/schema.md): which tokens have massive entries in which channels, by layer.

    Pairs of token and channel are too many to count them all, so a layer has slots for some. Where they do not suffice
    the pairs that sort last go, whatever they count: so the outcome is the same however the stream was cut, what is
    left is exact, and position 0 and the tokens of low ids (special ones, marks, the frequent pieces of a BPE) stay.

    Parameters
    ----------
    above : float
        A massive entry is larger than this …
    over_median : float
        … and at least so many times the median of its window and layer.
    pairs : int
        Rows of the table a layer: the most frequent pairs.
    slots : int
        Pairs that are counted a layer.
    """

    above: float = 100.0
    over_median: float = 1000.0
    pairs: int = 64
    slots: int = 4096

    def __post_init__(self) -> None:
        at_least("above", self.above, 0)
        at_least("over_median", self.over_median, 1)
        at_least("pairs", self.pairs, 1)
        at_least("slots", self.slots, self.pairs)

    def init(self, spec: Spec) -> State:
        """Slots by layer, all empty; how many tokens and massive entries were seen, with a slot or without."""
        layers = spec.model.n_layers
        return {
            "n_seen": counts(layers, 1 + len(spec.corpus.tokens)),
            "n_massive": counts(layers),
            "key": torch.full((layers, self.slots), EMPTY),
            "n": counts(layers, self.slots),
            "windows": counts(layers, self.slots),
            "sum_abs": zeros(layers, self.slots),
            "max_abs": zeros(layers, self.slots),
            "ratio": zeros(layers, self.slots),
        }

    def merge(self, a: State, b: State) -> State:
        """Slots with the same pair become one: sums, and the larger of maxima."""
        merged = {name: value.clone() for name, value in a.items()}
        for name in ("n_seen", "n_massive"):
            merged[name] += b[name]
        for index in range(len(b["key"])):
            _fold(merged, index, [_filled(b, index)])
        return merged

    def look(self, state: State, index: int, hidden: Tensor, tokens: Tokens) -> None:
        """Add what enters one layer of one batch, in place."""
        place = (tokens.token_index + 1).to(state["n_seen"].device)  # (batch, pos); 0 at position 0
        add_at(state["n_seen"][index], place.flatten(), torch.ones_like(place).flatten())
        wide = torch.promote_types(hidden.dtype, torch.float32)
        top = hidden.flatten(1).abs().amax(1).to(wide)  # (batch,)
        large = (top > self.above).nonzero().flatten().tolist()  # most windows of most layers are done with here
        found = [self._massive(hidden[item].to(wide).abs(), place[item]) for item in large]
        state["n_massive"][index] += sum(int(slots["n"].sum()) for slots in found)
        _fold(state, index, [slots for slots in found if len(slots["key"])])

    def _massive(self, size: Tensor, place: Tensor) -> State:
        """The massive entries of one window, pooled: size (pos, channel) of |x|, place (pos,)."""
        position, channel = (size > self.above).nonzero(as_tuple=True)
        value = size[position, channel].cpu().double()
        median = _median(size, float(value.max()) / self.over_median)
        massive = value >= self.over_median * median
        position, channel, value = position.cpu()[massive], channel.cpu()[massive], value[massive]
        one = torch.ones_like(channel)
        pooled = _pooled(
            {
                "key": place[position] << CHANNEL_BITS | channel,
                "n": one,
                "windows": one,
                "sum_abs": value,
                "max_abs": value,
                # 0 stands for a ratio that is not known, as a maximum must begin somewhere.
                "ratio": value / median if median > 0 else torch.zeros_like(value),
            }
        )
        pooled["windows"] = torch.ones_like(pooled["n"])
        return pooled

    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """The most frequent pairs of each layer; no table where no residual stream was seen."""
        if not bool(state["n_seen"].any()):
            return {}
        rows: list[dict[str, object]] = []
        for index, layer in enumerate(spec.model.layers):
            slots = {name: value.numpy() for name, value in _filled(state, index).items()}
            first = np.lexsort((slots["key"], -slots["n"]))[: self.pairs]
            dropped = int(state["n_massive"][index]) - int(slots["n"][first].sum())
            for at in first:
                place, n = int(slots["key"][at]) >> CHANNEL_BITS, int(slots["n"][at])
                at_first = place == FIRST_PLACE
                token_id, token_class, token = (-1, FIRST, "") if at_first else spec.corpus.tokens[place - 1]
                rows.append(
                    {
                        "layer": layer.layer,
                        "token_id": token_id,
                        "token_class": token_class,
                        "token": token,
                        "channel": int(slots["key"][at]) & ((1 << CHANNEL_BITS) - 1),
                        "n": n,
                        "n_first": n if at_first else 0,
                        "n_seen": int(state["n_seen"][index, place]),
                        "windows": int(slots["windows"][at]),
                        "max_abs": slots["max_abs"][at],
                        "mean_abs": slots["sum_abs"][at] / n,
                        "ratio": slots["ratio"][at] or np.nan,
                        "n_dropped": dropped,
                    }
                )
        return {"massive": pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)}


COLUMNS = {
    "layer": "int64",
    "token_id": "int64",
    "token_class": "object",
    "token": "object",
    "channel": "int64",
    "n": "int64",
    "n_first": "int64",
    "n_seen": "int64",
    "windows": "int64",
    "max_abs": "float64",
    "mean_abs": "float64",
    "ratio": "float64",
    "n_dropped": "int64",
}


def _median(size: Tensor, bound: float) -> float:
    """The median, of two in the middle the smaller; infinity where it is above `bound`, which is told far sooner."""
    if 2 * int((size <= bound).sum()) < size.numel():
        return math.inf
    return float(size.flatten().median())


def _filled(state: State, index: int) -> State:
    """The slots of a layer that hold a pair."""
    filled = state["key"][index] != EMPTY
    return {name: state[name][index][filled] for name in ("key", *_SUMS, *_TOPS)}


def _pooled(slots: State) -> State:
    """Each pair once, in the order of the pairs."""
    key, at = slots["key"].unique(return_inverse=True)
    pooled = {"key": key}
    for name in _SUMS:
        pooled[name] = torch.zeros(len(key), dtype=slots[name].dtype).index_add_(0, at, slots[name])
    for name in _TOPS:
        pooled[name] = torch.zeros(len(key), dtype=slots[name].dtype).scatter_reduce_(0, at, slots[name], "amax")
    return pooled


def _fold(state: State, index: int, parts: list[State]) -> None:
    """Add pairs to the slots of a layer, in place; those that sort last fall out where there are too many."""
    if not parts:
        return
    every = [_filled(state, index), *parts]
    pooled = _pooled({name: torch.cat([part[name] for part in every]) for name in every[0]})
    n = min(len(pooled["key"]), state["key"].shape[1])
    for name, value in pooled.items():
        state[name][index, :n] = value[:n]

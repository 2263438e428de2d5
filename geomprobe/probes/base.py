"""The contract of a probe. `geomprobe.testing.check_probe` is its executable form."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import Block, QKBatch, Tokens, blocks
from geomprobe.attention.spec import Spec
from geomprobe.registry import Registry

State = dict[str, Tensor]
Scratch = dict[str, Tensor]
PROBES: Registry[type["Probe"]] = Registry("probe")


class Probe(ABC):
    """A statistic of queries and keys, computed in one pass.

    A probe is a frozen dataclass of parameters. It holds no data: that lives in a State, a plain dict of float64 and
    int64 tensors, which can be moved, saved, merged and resumed without knowing the probe.
    """

    @abstractmethod
    def init(self, spec: Spec) -> State:
        """The state of an empty stream."""

    def merge(self, a: State, b: State) -> State:
        """The state of both streams together; `a` and `b` stay as they were. Sums, unless a probe says otherwise."""
        return {name: value + b[name] for name, value in a.items()}

    @abstractmethod
    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """Tidy tables by name; NaN where nothing was seen. Leaves `state` as it was.

        Tables to which several probes add columns (document_stats, type_stats, class_attention) come in parts that
        share their key columns.
        """


class VectorProbe(Probe):
    """A probe that looks at vectors alone."""

    @abstractmethod
    def update(self, state: State, batch: QKBatch) -> None:
        """Add one layer of one batch, in place."""


class AttentionProbe(Probe):
    """A probe that looks at attention, block of query rows by block."""

    @abstractmethod
    def open(self, batch: QKBatch) -> Scratch:
        """What is gathered over the blocks of one layer of one batch."""

    @abstractmethod
    def add(self, scratch: Scratch, block: Block) -> None:
        """Add one block to the scratch, in place."""

    @abstractmethod
    def close(self, state: State, batch: QKBatch, scratch: Scratch) -> None:
        """Add the finished scratch to the state, in place."""


class HalvedProbe(Probe):
    """A probe that needs half of the windows to fix what it measures the other half in."""

    @abstractmethod
    def begin(self, state: State) -> None:
        """Told before the first window: what comes is the first half."""

    @abstractmethod
    def settle(self, state: State, spec: Spec) -> None:
        """Told after the first half: what comes is the second."""


class OutputProbe(Probe):
    """A probe that looks at what the model predicts."""

    @abstractmethod
    def read(self, state: State, logits: Tensor, ids: Tensor, tokens: Tokens) -> None:
        """Add one batch, in place: logits (batch, pos, vocabulary), ids (batch, pos)."""


class ResidualProbe(Probe):
    """A probe that looks at the residual stream: what enters a layer. Only of a text, and in a model of one stack."""

    @abstractmethod
    def look(self, state: State, index: int, hidden: Tensor, tokens: Tokens) -> None:
        """Add one layer of one batch, in place: hidden (batch, pos, channel); padding is cut out before."""


class StaticProbe(Probe):
    """A probe that needs no text: it reads the specification."""

    def init(self, spec: Spec) -> State:
        """Nothing."""
        return {}


def observe(probes: Sequence[tuple[Probe, State]], batch: QKBatch, *, rows: int | None = None) -> None:
    """Hand one layer of one batch to probes; padding is cut out first, blocks are computed once for all.

    Parameters
    ----------
    probes : sequence of (Probe, State)
    batch : QKBatch
    rows : int, optional
        Query rows a block.
    """
    watchers = [(probe, state) for probe, state in probes if isinstance(probe, AttentionProbe)]
    for part in batch.without_padding():
        for probe, state in probes:
            if isinstance(probe, VectorProbe):
                probe.update(state, part)
        if not watchers:
            continue
        scratches = [probe.open(part) for probe, _ in watchers]
        for block in blocks(part, rows=rows):
            for (probe, _), scratch in zip(watchers, scratches, strict=True):
                probe.add(scratch, block)
        for (probe, state), scratch in zip(watchers, scratches, strict=True):
            probe.close(state, part, scratch)


def show(probes: Sequence[tuple[ResidualProbe, State]], index: int, hidden: Tensor, tokens: Tokens) -> None:
    """Hand what enters one layer of one batch to probes; padding is cut out first.

    Parameters
    ----------
    probes : sequence of (ResidualProbe, State)
    index : int
        Which layer of ModelSpec this is.
    hidden : Tensor (batch, pos, channel)
    tokens : Tokens
    """
    parts = [(hidden, tokens)]
    if not bool(tokens.valid.all()):
        rows = [(item, row.nonzero().flatten()) for item, row in enumerate(tokens.valid)]
        parts = [(hidden[item : item + 1, at], tokens.select(item, at)) for item, at in rows if len(at)]
    for shown, those in parts:
        for probe, state in probes:
            probe.look(state, index, shown, those)


def add_at(total: Tensor, index: Tensor, value: Tensor) -> None:
    """total[..., index[i]] += value[..., i], in place, in total's dtype and on its device.

    Parameters
    ----------
    total : Tensor (…, slot)
    index : Tensor (item,), int64
    value : Tensor (…, item)
    """
    total.index_add_(-1, index.to(total.device), value.to(total.device, total.dtype))


def zeros(*shape: int) -> Tensor:
    """A float64 sum of nothing."""
    return torch.zeros(shape, dtype=torch.float64)


def counts(*shape: int) -> Tensor:
    """An int64 count of nothing."""
    return torch.zeros(shape, dtype=torch.int64)

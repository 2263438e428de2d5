"""The contract of a probe. `geomprobe.testing.check_probe` is its executable form."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import Block, BlockMaker, QKBatch, Tokens
from geomprobe.attention.spec import Spec
from geomprobe.probes.crew import Crew
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
        """What is gathered over the blocks of one layer of one batch: zeros.

        Several workers may each fill a scratch of their own with some of the blocks; the sum of theirs is the whole, so
        a block adds to sums and writes into the places of its own rows, and does nothing else.
        """

    @abstractmethod
    def add(self, scratch: Scratch, block: Block) -> None:
        """Add one block to the scratch, in place."""

    @abstractmethod
    def close(self, state: State, batch: QKBatch, scratch: Scratch) -> None:
        """Add the finished scratch to the state, in place."""


class OutputProbe(Probe):
    """A probe that looks at what the model predicts."""

    @abstractmethod
    def read(self, state: State, logits: Tensor, ids: Tensor, tokens: Tokens) -> None:
        """Add one batch, in place: logits (batch, pos, vocabulary), ids (batch, pos)."""


class StaticProbe(Probe):
    """A probe that needs no text: it reads the specification."""

    def init(self, spec: Spec) -> State:
        """Nothing."""
        return {}


def observe(
    probes: Sequence[tuple[Probe, State]], batch: QKBatch, *, rows: int | None = None, crew: Crew | None = None
) -> None:
    """Hand one layer of one batch to probes; padding is cut out first, blocks are computed once for all.

    Parameters
    ----------
    probes : sequence of (Probe, State)
    batch : QKBatch
    rows : int, optional
        Query rows a block.
    crew : Crew, optional
        Who shares the blocks, on a CPU; without, one after the other.
    """
    crew = crew if crew is not None and batch.q["scored"].device.type == "cpu" else Crew(1)
    watchers = [(probe, state) for probe, state in probes if isinstance(probe, AttentionProbe)]
    for part in batch.without_padding():
        for probe, state in probes:
            if isinstance(probe, VectorProbe):
                probe.update(state, part)
        if not watchers:
            continue
        scratches = _look(watchers, part, rows, crew)
        for (probe, state), scratch in zip(watchers, scratches, strict=True):
            probe.close(state, part, scratch)


def _look(watchers: list[tuple[AttentionProbe, State]], batch: QKBatch, rows: int | None, crew: Crew) -> list[Scratch]:
    """The scratch of each probe after all blocks; the shares are fixed, so the same sums come out each time."""
    maker = BlockMaker(batch, rows=rows)
    shares = crew.share(len(maker.starts))

    def work(worker: int) -> list[Scratch]:
        mine = [probe.open(batch) for probe, _ in watchers]
        for item in shares[worker]:
            block = maker.make(maker.starts[item])
            for (probe, _), scratch in zip(watchers, mine, strict=True):
                probe.add(scratch, block)
        return mine

    first, *others = crew.run(work, len(shares))
    for other in others:
        for scratch, more in zip(first, other, strict=True):
            for name, value in scratch.items():
                value += more[name]
    return first


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

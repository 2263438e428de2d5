"""Every registered probe keeps the contract, and a probe that does not is caught."""

import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch

from geomprobe import testing
from geomprobe.errors import InvalidParameter
from geomprobe.probes.base import PROBES
from geomprobe.probes.class_attention import ClassAttention
from geomprobe.probes.logits import Logits
from geomprobe.probes.norms import Norms
from geomprobe.probes.sinks import Sinks


@pytest.mark.parametrize("check", list(testing.checks()), ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "name", ["norms", "gains", "logits", "sinks", "class_attention", "loss", "split", "values", "order", "massive"]
)
def test_every_probe(name, check):
    check(PROBES[name]())


def test_all_probes_are_named_above():
    assert list(PROBES) == [
        "norms",
        "gains",
        "logits",
        "sinks",
        "class_attention",
        "loss",
        "split",
        "values",
        "order",
        "massive",
    ]


@pytest.mark.parametrize("first", ["massive", "sinks", "base"])
def test_their_order_does_not_hang_on_which_is_imported_first(first):
    script = f"import geomprobe.probes.{first}; from geomprobe.probes.base import PROBES; print(*PROBES)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == list(PROBES)


@dataclass(frozen=True)
class DropsTheOther(Norms):
    def merge(self, a, b):
        return {name: value.clone() for name, value in a.items()}


@dataclass(frozen=True)
class SharesItsInput(Sinks):
    def merge(self, a, b):
        for name in a:
            a[name] += b[name]
        return a


@dataclass(frozen=True)
class LosesPrecision(Norms):
    def update(self, state, batch):
        super().update(state, batch)
        for name in ("length_mean", "log_m2"):
            state[name].copy_(state[name].float().double())


@dataclass(frozen=True)
class ZeroForUnseen(Sinks):
    def summarise(self, state, spec):
        return {name: table.fillna(0) for name, table in super().summarise(state, spec).items()}


@dataclass(frozen=True)
class SummariseWrites(Logits):
    def summarise(self, state, spec):
        tables = super().summarise(state, spec)
        state["entropy"] += 1
        return tables


@dataclass(frozen=True)
class RememberTheLastBatch(ClassAttention):
    def close(self, state, batch, scratch):
        state["mass"][batch.index] = 0
        super().close(state, batch, scratch)


@dataclass(frozen=True)
class WritesIntoVectors(Norms):
    def update(self, state, batch):
        batch.k["scored"] *= 1.0001
        super().update(state, batch)


@dataclass(frozen=True)
class UnknownClass(ClassAttention):
    def summarise(self, state, spec):
        return {n: t.replace("article", "the-words") for n, t in super().summarise(state, spec).items()}


@dataclass(frozen=True)
class CountsBlocks(Logits):
    """Forgets that a statistic of rows must not depend on how rows are cut into blocks."""

    def add(self, scratch, block):
        super().add(scratch, block)
        scratch["sd"] += 0.001


@dataclass(frozen=True)
class SinglePrecisionState(Sinks):
    def init(self, spec):
        return {n: x.float() if x.dtype == torch.float64 else x for n, x in super().init(spec).items()}


BROKEN = [
    DropsTheOther,
    SharesItsInput,
    LosesPrecision,
    ZeroForUnseen,
    SummariseWrites,
    RememberTheLastBatch,
    WritesIntoVectors,
    UnknownClass,
    CountsBlocks,
    SinglePrecisionState,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda cls: cls.__name__)
def test_defects_are_caught(broken):
    with pytest.raises((AssertionError, RuntimeError)):
        testing.check_probe(broken())


def test_leaked_padding_is_caught(monkeypatch):
    monkeypatch.setattr(testing.QKBatch, "without_padding", lambda self: [self])
    with pytest.raises(AssertionError):
        testing.check_padding_is_ignored(Norms())


def test_an_unknown_probe_is_named():
    with pytest.raises(InvalidParameter, match=r"Unknown probe 'sink'\. Did you mean 'sinks'"):
        PROBES["sink"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Sinks(epsilons=()), "epsilons must hold at least one threshold"),
        (lambda: Sinks(epsilons=(2.0,)), "epsilon must be between 0 and 1; got 2.0"),
        (lambda: Logits(one_hot_above=-1), "one_hot_above must be between 0 and 1; got -1"),
        (lambda: ClassAttention(reach=0), "reach must be at least 1; got 0"),
    ],
)
def test_parameters_have_a_domain(make, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        make()

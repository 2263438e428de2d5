"""AUC over draws of types without torch: counted pair by pair, and what the version with torch gives."""

import numpy as np
import pytest

from geomprobe.stats import pairs as module
from geomprobe.stats.pairs import Pairs, auc, draws_of_types, paired_auc
from geomprobe.stats.separation import bootstrap_auc

LABELS = np.array(["a", "a", "a", "b", "b", "c", "c", "c", "c"], dtype=object)


def counted(matrix, labels, often):
    """P(within > between), each pair of different types as often as both together; values are without ties."""
    within, between = [], []
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            kind = within if labels[i] == labels[j] else between
            kind.append((matrix[i][j], float(often[i] * often[j])))
    total = sum(own for _, own in within) * sum(other for _, other in between)
    return sum(own * other for one, own in within for value, other in between if one > value) / total if total else None


@pytest.fixture
def matrix():
    upper = np.triu(np.random.default_rng(0).normal(size=(9, 9)), 1)
    return upper + upper.T


@pytest.mark.parametrize("at_a_time", [1, 100, 1 << 21])
def test_each_draw_is_counted_pair_by_pair(matrix, at_a_time, monkeypatch):
    monkeypatch.setattr(module, "AT_A_TIME", at_a_time)  # 1: a block a draw
    pairs = Pairs.of(LABELS)
    draws = draws_of_types(9, 23, np.random.default_rng(1))
    found = paired_auc(pairs.values(matrix), pairs, draws)
    assert found.shape == (23,)
    assert found.dtype == np.float64
    for often, value in zip(draws, found, strict=True):
        assert value == pytest.approx(counted(matrix, LABELS, often), rel=1e-12)


def test_it_is_what_the_version_with_torch_gives():
    labels = np.repeat(np.arange(6), 7)
    pairs = Pairs.of(labels)
    value = np.random.default_rng(2).normal(size=len(pairs.within))
    draws = draws_of_types(len(labels), 200, np.random.default_rng(3))
    assert paired_auc(value, pairs, draws) == pytest.approx(bootstrap_auc(value, pairs, draws), rel=1e-12)
    tied = value.round(1)  # ties count by their order, in both alike
    assert paired_auc(tied, pairs, draws) == pytest.approx(bootstrap_auc(tied, pairs, draws), rel=1e-12)


def test_everyone_once_is_the_auc(matrix):
    pairs = Pairs.of(LABELS)
    value = pairs.values(matrix)
    assert paired_auc(value, pairs, np.ones((1, 9), np.float32))[0] == pytest.approx(
        auc(value, pairs.within), rel=1e-12
    )


def test_a_draw_without_pairs_of_a_kind_has_no_value(matrix):
    pairs = Pairs.of(LABELS)
    draws = np.array(
        [[3, 3, 3, 0, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0, 0], [3, 0, 0, 3, 0, 3, 0, 0, 0]], np.float32
    )
    assert np.isnan(paired_auc(pairs.values(matrix), pairs, draws)).all()


def test_what_has_no_value_has_none_in_any_draw(matrix):
    pairs = Pairs.of(LABELS)
    value = pairs.values(matrix)
    value[4] = np.nan
    assert np.isnan(paired_auc(value, pairs, np.ones((3, 9), np.float32))).tolist() == [True] * 3


def test_the_same_draws_of_the_same_vectors_differ_by_nothing(matrix):
    pairs = Pairs.of(LABELS)
    draws = draws_of_types(9, 50, np.random.default_rng(4))
    one, other = (paired_auc(pairs.values(scale * matrix), pairs, draws) for scale in (1.0, 4.0))
    assert np.nanmax(np.abs(one - other)) == 0

"""Neighbours against loops, and hubs, which a cone makes and centring undoes."""

import numpy as np
import pytest

from geomprobe.stats.angles import cosines, mean_cosine, type_vectors
from geomprobe.stats.nearest import (
    hub_counts,
    hub_skew,
    jaccard,
    neighbours,
    own_ranks,
    rank_correlation,
    share_found,
)

N, K = 14, 4


def near_figure(values, target, rounding=0.0):
    """Whether the mean of repeated draws is within three standard errors, and a rounding, of a figure."""
    values = np.asarray(values)
    return abs(values.mean() - target) <= 3 * values.std(ddof=1) / len(values) ** 0.5 + rounding


def matrix(seed=0, *, ties=False):
    found = np.random.default_rng(seed).normal(size=(N, N))
    return found.round() if ties else found


def by_loop(similarity, k):
    return [
        sorted((j for j in range(len(row)) if j != i), key=lambda j: (-row[j], j))[:k]
        for i, row in enumerate(similarity.tolist())
    ]


def mean_ranks(values):
    """Ranks from 1, those of equal values averaged."""
    return [sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2 for value in values]


def spearman(a, b):
    x, y = mean_ranks(a), mean_ranks(b)
    dx, dy = [v - sum(x) / len(x) for v in x], [v - sum(y) / len(y) for v in y]
    return sum(p * q for p, q in zip(dx, dy, strict=True)) / (sum(p * p for p in dx) * sum(q * q for q in dy)) ** 0.5


@pytest.mark.parametrize("ties", [False, True])
def test_neighbours_are_the_most_similar_others(ties):
    similarity = matrix(ties=ties)
    np.fill_diagonal(similarity, 99)
    before = similarity.copy()
    assert neighbours(similarity, K).tolist() == by_loop(similarity, K)
    assert (similarity == before).all()


@pytest.mark.parametrize("ties", [False, True])
def test_own_ranks_count_ties_half(ties):
    similarity = matrix(1, ties=ties)
    for i, found in enumerate(own_ranks(similarity)):
        row = similarity[i].tolist()
        others = [row[j] for j in range(N) if j != i]
        assert found == 1 + sum(v > row[i] for v in others) + sum(v == row[i] for v in others) / 2
    assert own_ranks(np.zeros((5, 5))).tolist() == [3] * 5  # all alike: the middle, not the first


def test_jaccard_is_that_of_sets():
    rng = np.random.default_rng(2)
    a, b = (np.stack([rng.permutation(9)[:K] for _ in range(N)]) for _ in range(2))
    expected = [len(set(x) & set(y)) / len(set(x) | set(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert jaccard(a, b).tolist() == pytest.approx(expected)
    assert jaccard(a, a[:, ::-1]).tolist() == [1] * N
    assert jaccard(a, a + 100).tolist() == [0] * N
    assert len(set(expected)) > 2
    assert expected != pytest.approx([len(set(x) & set(y)) / K for x, y in zip(a.tolist(), b.tolist(), strict=True)])


def test_share_found_is_of_those_that_could_be_found():
    rng = np.random.default_rng(3)
    related = rng.random((N, N)) < np.linspace(0, 0.9, N)[:, None]
    np.fill_diagonal(related, val=False)
    near = neighbours(matrix(3), K)
    for i, found in enumerate(share_found(near, related)):
        there = [j for j in range(N) if related[i, j]]
        if not there:
            assert np.isnan(found)
        else:
            assert found == pytest.approx(len(set(there) & set(near[i].tolist())) / min(K, len(there)))
    assert not related[0].any()
    assert (related.sum(axis=1) > K).any()


def test_hub_counts_are_counted():
    near = neighbours(matrix(4), K)
    assert hub_counts(near).tolist() == [sum(j in row for row in near.tolist()) for j in range(N)]
    assert hub_counts(np.array([[1], [0], [0]])).tolist() == [2, 1, 0]


def test_hub_skew_by_its_moments():
    counts = hub_counts(neighbours(matrix(5), K))
    deviation = [value - sum(counts.tolist()) / N for value in counts.tolist()]
    second, third = (sum(value**power for value in deviation) / N for power in (2, 3))
    assert hub_skew(counts) == pytest.approx(third / second**1.5)
    assert hub_skew(np.full(7, 10)) == 0


@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlation_over_what_both_have(ties):
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(2, 30))
    b += a
    if ties:
        a, b = a.round(), b.round()
    expected = spearman(a[5:-4].tolist(), b[5:-4].tolist())
    a[:5], b[-4:] = np.nan, np.nan
    assert rank_correlation(a, b) == pytest.approx(expected, rel=1e-12)


def test_rank_correlation_of_too_little_is_nothing():
    three = np.arange(3.0)
    assert rank_correlation(three, three**3) == pytest.approx(1)
    assert np.isnan(rank_correlation(three[:2], three[:2]))
    assert np.isnan(rank_correlation(three, np.ones(3)))
    assert np.isnan(rank_correlation(three, np.array([1, 2, np.nan])))


@pytest.mark.parametrize("value", [0.1, 3.27, 4.1])
def test_rank_correlation_with_a_constant_whose_mean_is_rounded(value):
    """The standard deviation of equal numbers need not be 0 in floating point."""
    constant = np.full(7, value)
    assert np.isnan(rank_correlation(constant, np.arange(7.0)))
    assert np.isnan(rank_correlation(np.arange(7.0), constant))


@pytest.mark.parametrize(("offset", "cosine", "figure"), [(1, 0.5, 4.5), (2, 0.8, 5.7)])
def test_a_cone_makes_hubs_and_centring_undoes_them(offset, cosine, figure):
    """2000 points in 128 dimensions; the figures are means of 40 draws, single ones reach from 3 to 11."""
    rng = np.random.default_rng(offset)
    raw, seen, mean = [], [], []
    for _ in range(6):
        x = rng.normal(size=(2000, 128))
        x[:, 0] += offset * 128**0.5
        raw.append(hub_skew(hub_counts(neighbours(cosines(x), 10))))
        seen.append(hub_skew(hub_counts(neighbours(cosines(type_vectors(x[:, None])), 10))))
        mean.append(mean_cosine(x))
    assert near_figure(mean, cosine, rounding=0.005)
    assert near_figure(raw, figure, rounding=0.2)
    assert max(seen) < 0.6
    assert min(raw) > 2.5

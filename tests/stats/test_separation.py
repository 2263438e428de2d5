"""AUC, its interval and its null against counted pairs, and what they are where nothing is there to find."""

import numpy as np
import pytest

from geomprobe.stats import separation
from geomprobe.stats.angles import cosines, type_vectors
from geomprobe.stats.pairs import Pairs, auc, draws_of_types
from geomprobe.stats.separation import bootstrap_auc, permutation_p, shuffled_auc, shuffled_pairs

WIDTH = 128
LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])


def near(values, target, rounding=0.0):
    """Whether the mean of repeated draws is within three standard errors, and a rounding, of a figure."""
    values = np.asarray(values)
    return abs(values.mean() - target) <= 3 * values.std(ddof=1) / len(values) ** 0.5 + rounding


def counted(within, between):
    """P(within > between) by looking at every two, ties half."""
    score = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in within for b in between)
    return score / (len(within) * len(between))


def by_hand(matrix, types, labels):
    """The AUC of a list of types, in which one may come again: pairs of different types, as often as they come."""
    within, between = [], []
    for i in range(len(types)):
        for j in range(i + 1, len(types)):
            a, b = types[i], types[j]
            if a != b:
                (within if labels[a] == labels[b] else between).append(matrix[a, b])
    return counted(within, between)


def symmetric(seed=0):
    n = len(LABELS)
    upper = np.triu(np.random.default_rng(seed).normal(size=(n, n)), 1)
    return upper + upper.T + np.eye(n)


def permutations(rng, n, draws):
    return np.stack([rng.permutation(n) for _ in range(draws)])


def test_pairs_are_all_of_different_types():
    pairs = Pairs.of(LABELS)
    seen = {(int(a), int(b)): bool(c) for a, b, c in zip(pairs.first, pairs.second, pairs.within, strict=True)}
    assert seen == {(a, b): LABELS[a] == LABELS[b] for a in range(9) for b in range(a + 1, 9)}
    matrix = symmetric()
    assert pairs.values(matrix).tolist() == [matrix[pair] for pair in seen]


@pytest.mark.parametrize("levels", [None, 4])
def test_auc_counts_pairs(levels):
    rng = np.random.default_rng(1)
    value = rng.normal(size=60) if levels is None else rng.integers(0, levels, size=60).astype(float)
    within = rng.random(60) < 0.3
    expected = counted(value[within], value[~within])
    assert auc(value, within) == pytest.approx(expected, rel=1e-12)
    if levels:  # ties counted not at all would be seen
        strict = np.mean([a > b for a in value[within] for b in value[~within]])
        assert abs(strict - expected) > 0.05


def test_auc_at_its_ends():
    within = np.array([True, True, False, False])
    assert auc(np.array([3.0, 4, 1, 2]), within) == 1
    assert auc(np.array([1.0, 2, 3, 4]), within) == 0
    assert auc(np.ones(4), within) == 0.5
    for none in (np.ones(4, dtype=bool), np.zeros(4, dtype=bool)):
        assert np.isnan(auc(np.arange(4.0), none))
    assert np.isnan(auc(np.array([1.0, np.nan, 3, 4]), within))


def test_draws_take_as_many_types_as_there_are():
    draws = draws_of_types(9, 400, np.random.default_rng(0))
    assert draws.shape == (400, 9)
    assert (draws.sum(axis=1) == 9).all()
    for column in draws.T:
        assert near(column, 1)
    assert near(draws[:, 0] == 0, (8 / 9) ** 9)


@pytest.mark.parametrize("at_a_time", [1, 1 << 19])
def test_bootstrap_resamples_types(monkeypatch, at_a_time):
    monkeypatch.setattr(separation, "AT_A_TIME", at_a_time)  # 1: several blocks of draws
    matrix, pairs = symmetric(2), Pairs.of(LABELS)
    draws = draws_of_types(9, 21, np.random.default_rng(3))
    found = bootstrap_auc(pairs.values(matrix), pairs, draws)
    assert found.dtype == np.float64
    for row, value in zip(draws, found, strict=True):
        types = [index for index, times in enumerate(row) for _ in range(int(times))]
        assert value == pytest.approx(by_hand(matrix, types, LABELS), rel=1e-12)
    everyone = np.ones((1, 9), dtype=np.float32)
    assert bootstrap_auc(pairs.values(matrix), pairs, everyone)[0] == pytest.approx(
        auc(pairs.values(matrix), pairs.within), rel=1e-12
    )


def test_bootstrap_is_exact_with_many_types():
    labels = np.repeat(np.arange(20), 20)
    pairs = Pairs.of(labels)
    value = np.random.default_rng(4).normal(size=len(pairs.within))
    draws = draws_of_types(400, 3, np.random.default_rng(5))
    order = np.argsort(value)
    for row, found in zip(draws.astype(int).tolist(), bootstrap_auc(value, pairs, draws), strict=True):
        below = above = total = 0
        for at in order.tolist():
            weight = row[pairs.first[at]] * row[pairs.second[at]]
            if pairs.within[at]:
                above, total = above + weight * below, total + weight
            else:
                below += weight
        assert found == pytest.approx(above / (total * below), rel=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_shuffles_relabel_types(seed):
    matrix, pairs = symmetric(seed), Pairs.of(LABELS)
    if seed == 2:
        matrix = matrix.round()  # with ties
    shuffles = permutations(np.random.default_rng(seed), 9, 25)
    found = shuffled_auc(pairs.values(matrix), pairs, shuffled_pairs(pairs, shuffles))
    for order, value in zip(shuffles, found, strict=True):
        labels = {int(order[place]): int(LABELS[place]) for place in range(9)}
        assert value == pytest.approx(by_hand(matrix, range(9), labels), rel=1e-12)
    same = shuffled_pairs(pairs, np.arange(9)[None])
    assert shuffled_auc(pairs.values(matrix), pairs, same)[0] == pytest.approx(auc(pairs.values(matrix), pairs.within))


def test_what_has_no_value_has_no_interval_and_no_null():
    pairs = Pairs.of(LABELS)
    value = np.full(len(pairs.within), np.nan)
    assert np.isnan(bootstrap_auc(value, pairs, np.ones((4, 9), dtype=np.float32))).tolist() == [True] * 4
    placed = shuffled_pairs(pairs, permutations(np.random.default_rng(0), 9, 3))
    assert np.isnan(shuffled_auc(value, pairs, placed)).tolist() == [True] * 3


def test_p_counts_the_null_that_reaches_the_value():
    null = np.array([0.1, 0.2, 0.3, 0.4])
    assert permutation_p(0.5, null) == 1 / 5  # the smallest that four can give
    assert permutation_p(0.4, null) == 2 / 5  # as large counts
    assert permutation_p(0.15, null) == 4 / 5
    assert permutation_p(0.0, null) == 1
    assert permutation_p(9.0, np.zeros(999)) == 1 / 1000
    assert np.isnan(permutation_p(float("nan"), null))


def test_random_vectors_are_neither_near_nor_far():
    rng = np.random.default_rng(6)
    labels = np.repeat(np.arange(8), 6)
    pairs = Pairs.of(labels)
    draws, placed = draws_of_types(48, 50, rng), shuffled_pairs(pairs, permutations(rng, 48, 199))
    found, resampled, with_itself, nulls, p = [], [], [], [], []
    for _ in range(40):
        similar = cosines(rng.normal(size=(48, WIDTH)))
        value = pairs.values(similar)
        found.append(auc(value, pairs.within))
        resampled.append(bootstrap_auc(value, pairs, draws).mean())
        null = shuffled_auc(value, pairs, placed)
        nulls.append(null.mean())
        p.append(permutation_p(found[-1], null))
        types = rng.integers(0, 48, size=48)  # the defect: a type drawn twice is its own nearest neighbour
        drawn = Pairs.of(labels[types])
        with_itself.append(auc(drawn.values(similar[np.ix_(types, types)]), drawn.within))
    for values in (found, resampled, nulls, p):
        assert near(values, 0.5)
    assert not near(with_itself, 0.5)
    assert np.mean(with_itself) > 0.53


def test_auc_hardly_moves_with_a_cone_that_halves_the_gap_and_centring_takes_it_out():
    """Clusters with centres of scale .5, seen from a point 0, 1 or 2 times √d away."""
    labels = np.repeat(np.arange(20), 20)
    pairs = Pairs.of(labels)
    found = {}
    for offset in (0, 1, 2):
        rng = np.random.default_rng(8)  # the same clusters each time
        rows = []
        for _ in range(6):
            x = 0.5 * rng.normal(size=(20, WIDTH))[labels] + rng.normal(size=(400, WIDTH))
            x[:, 0] += offset * WIDTH**0.5
            row = []
            for vectors in (x, type_vectors(x[:, None])):
                value = pairs.values(cosines(vectors))
                row += [auc(value, pairs.within), value[pairs.within].mean() - value[~pairs.within].mean()]
            rows.append(row)
        found[offset] = np.mean(rows, axis=0)  # uncentred: AUC, gap; centred: AUC, gap
    assert found[0][:2] == pytest.approx([0.949, 0.201], abs=0.006)
    assert found[1][0] == pytest.approx(found[0][0], rel=0.06)
    assert found[2][0] == pytest.approx(found[0][0], rel=0.07)
    assert found[1][1] == pytest.approx(0.55 * found[0][1], rel=0.1)
    assert found[2][1] == pytest.approx(0.24 * found[0][1], rel=0.1)
    for offset in (1, 2):
        assert found[offset][2:] == pytest.approx(found[0][2:], rel=1e-9)

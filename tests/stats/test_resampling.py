"""Intervals and tests over types and documents against slow loops, enumerations and known answers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from geomprobe.ledger.endpoint import Quantity, Rule
from geomprobe.stats.resampling import (
    Draws,
    holm_levels,
    interval,
    means_of_types,
    permutation_p,
    share_beyond,
    sign_test,
    weighted_means,
)


# ------------------------------------------------------------------ draws
def test_draws_are_with_replacement_and_the_same_every_time():
    drawn, again = Draws.of(7, 5000), Draws.of(7, 5000)
    assert drawn.n == 5000
    for one, other in ((drawn.documents, again.documents), (drawn.types(9, 1), again.types(9, 1))):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(drawn.documents.sum(axis=1), 7)
    np.testing.assert_array_equal(drawn.types(9, 0).sum(axis=1), 9)
    # Each comes once on the mean, with variance 1 − 1/n, as in draws with replacement.
    assert np.abs(drawn.documents.mean(axis=0) - 1).max() < 0.06
    assert np.abs(drawn.documents.var(axis=0) - 6 / 7).max() < 0.08


def test_groups_and_documents_are_drawn_apart():
    drawn = Draws.of(8, 4000)
    every = [drawn.documents, drawn.types(8, 0), drawn.types(8, 1), Draws.of(8, 4000, seed=1).documents]
    for one, other in itertools.combinations(every, 2):
        assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) < 0.06


def test_draws_of_nothing_hold_nothing():
    assert Draws.of(3, 10).types(0, 0).shape == (10, 0)
    assert Draws.of(0, 10).documents.shape == (10, 0)


# ------------------------------------------------------------------ the two-way bootstrap
def by_loops(n, total, documents, types):
    """Mean over the drawn types of their mean over the tokens of the drawn documents, a copy at a time."""
    found = []
    for draw in range(len(documents)):
        values = []
        for kind, times in enumerate(types[draw].astype(int)):
            tokens = summed = 0.0
            for document, copies in enumerate(documents[draw].astype(int)):
                for _ in range(copies):
                    tokens += n[kind, document]
                    summed += total[kind, document]
            if tokens:
                values += [summed / tokens] * times
        found.append(sum(values) / len(values) if values else math.nan)
    return np.array(found)


def test_a_draw_is_the_mean_over_drawn_types_of_their_mean_in_drawn_documents():
    rng = np.random.default_rng(0)
    n = rng.poisson(0.8, size=(6, 5)).astype(float)
    n[:, 0] += n.sum(axis=1) == 0
    total = n * rng.normal(size=n.shape)
    drawn = Draws.of(5, 60)
    types = drawn.types(6, 0)
    each = means_of_types(n, total, drawn.documents)
    assert np.isnan(each).any()  # some draw has no token of some type
    np.testing.assert_allclose(weighted_means(each, types), by_loops(n, total, drawn.documents, types), atol=1e-12)


def test_types_weigh_alike_whatever_their_tokens():
    n, total = np.array([[1000.0], [1.0]]), np.array([[0.0], [1.0]])
    each = means_of_types(n, total, np.array([[1.0]]))
    np.testing.assert_array_equal(each, [[0, 1]])
    np.testing.assert_array_equal(weighted_means(each, np.array([[1.0, 1.0]])), [0.5])
    np.testing.assert_array_equal(weighted_means(each, np.array([[2.0, 0.0]])), [0])


def test_a_mean_of_no_type_is_nan():
    nothing = weighted_means(np.array([[np.nan, 2.0], [1.0, 2.0]]), np.array([[2.0, 0.0], [0.0, 0.0]]))
    assert np.isnan(nothing).all()


# ------------------------------------------------------------------ permutation
def enumerated(values, inside):
    """The two-sided p of all reassignments of types to groups, the observed one among them."""
    places, n = range(len(values)), int(inside.sum())

    def apart(chosen):
        chosen = set(chosen)
        own = [Fraction(float(values[at])) for at in places if at in chosen]
        rest = [Fraction(float(values[at])) for at in places if at not in chosen]
        return abs(sum(own) / len(own) - sum(rest) / len(rest))

    observed = apart(np.flatnonzero(inside))
    null = [apart(chosen) for chosen in itertools.combinations(places, n)]
    return sum(one >= observed for one in null) / len(null)


@pytest.mark.parametrize(("n", "total", "seed"), [(2, 6, 0), (3, 7, 1), (4, 8, 2), (3, 9, 3), (5, 8, 4)])
@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_a_permutation_p_is_that_of_all_reassignments(n, total, seed, shift):
    values = np.random.default_rng(seed).normal(size=total)
    inside = np.arange(total) < n
    values[inside] += shift
    order = np.random.default_rng(seed).permutation(total)
    values, inside = values[order], inside[order]
    exact, many = enumerated(values, inside), 40_000
    assert abs(permutation_p(values, inside, many) - exact) < 4 * math.sqrt(exact * (1 - exact) / many) + 1 / many


def test_ties_count_against_the_difference():
    values = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    inside = values > 0
    # 2 of the 20 reassignments are as far apart.
    assert abs(permutation_p(values, inside, 40_000) - 0.1) < 0.006
    assert permutation_p(np.ones(6), inside, 99) == 1


def test_the_smallest_p_is_that_of_the_observed_order_alone():
    values = np.concatenate([np.arange(20) + 100.0, np.arange(20)])
    inside = np.arange(40) < 20
    assert permutation_p(values, inside, 99) == 1 / 100
    assert permutation_p(values, inside, 4999) == 1 / 5000
    assert permutation_p(-values, inside, 4999) == 1 / 5000  # two-sided


@pytest.mark.parametrize("inside", [[True, True], [False, False], []])
def test_one_group_is_no_test(inside):
    assert math.isnan(permutation_p(np.zeros(len(inside)), np.array(inside, dtype=bool), 99))


def test_the_permutation_test_errs_as_often_as_it_says():
    """No difference: p is uniform."""
    rng = np.random.default_rng(0)
    inside = np.arange(30) < 12
    p = np.array([permutation_p(rng.standard_t(3, size=30), inside, 199, seed) for seed in range(400)])
    for level in (0.05, 0.2, 0.5):
        assert abs((p <= level).mean() - level) < 3.5 * math.sqrt(level * (1 - level) / len(p))


# ------------------------------------------------------------------ shares and intervals
def test_a_share_beyond_counts_what_is_not_beyond():
    draws = np.array([0.1, 0.2, 0.3, 0.4])
    assert share_beyond(draws, 0.0, above=True) == 1 / 5
    assert share_beyond(draws, 0.25, above=True) == 3 / 5
    assert share_beyond(draws, 0.25, above=False) == 3 / 5
    assert share_beyond(draws, 0.2, above=True) == 3 / 5  # at the bound is not beyond it
    assert share_beyond(draws, 0.4, above=False) == 2 / 5


@pytest.mark.parametrize("above", [True, False])
def test_a_draw_without_a_value_is_on_the_wrong_side(above):
    draws = np.array([0.5, np.nan, 0.5, np.nan])
    assert share_beyond(draws, 0.0 if above else 1.0, above=above) == 3 / 5
    assert share_beyond(np.zeros(0), 0.0, above=above) == 1


def test_an_interval_leaves_as_much_out_at_either_end():
    draws = np.random.default_rng(0).permutation(np.arange(2001.0))
    np.testing.assert_allclose(interval(draws, 0.05), (50, 1950), atol=1e-9)
    np.testing.assert_allclose(interval(draws, 0.1), (100, 1900), atol=1e-9)
    low, high = interval(np.random.default_rng(0).normal(size=200_000), 0.05)
    np.testing.assert_allclose((low, high), (-1.96, 1.96), atol=0.02)


@pytest.mark.parametrize("draws", [[], [1.0, np.nan, 2.0], [1.0, np.inf, 2.0]])
def test_there_is_no_interval_where_a_draw_has_no_value(draws):
    assert all(math.isnan(end) for end in interval(np.array(draws), 0.05))


# ------------------------------------------------------------------ equivalence
EQUAL = Rule("within ±.005", within=0.005)


def spread_between(low, high, share):
    """10,001 draws whose interval that errs by `share` is from low to high."""
    reach = (high - low) / (1 - share)
    return np.linspace((low + high) / 2 - reach / 2, (low + high) / 2 + reach / 2, 10_001)


def test_equivalence_is_by_the_90_per_cent_interval():
    """TOST at 5 % holds where the 90 % interval lies inside, though the 95 % one does not."""
    inside = Quantity("cost", 0.0, spread_between(-0.0049, 0.0049, 0.1), EQUAL)
    assert max(np.abs(inside.interval(0.05))) > 0.005
    assert inside.speaks(0.05) == "supported"
    assert inside.p_for() < 0.05
    outside = Quantity("cost", 0.0, spread_between(-0.0051, 0.0049, 0.1), EQUAL)
    assert outside.speaks(0.05) == "inconclusive"
    assert outside.p_for() > 0.05
    assert outside.p_against() == 1  # what is not equivalent is not thereby different


@pytest.mark.parametrize("side", [-1, 1])
def test_equivalence_is_as_sure_as_its_worse_side(side):
    draws = side * np.linspace(-0.001, 0.0055, 1000)
    worse = np.mean(np.abs(draws) > 0.005)
    assert abs(Quantity("cost", side * 0.002, draws, EQUAL).p_for() - worse) < 0.002


# ------------------------------------------------------------------ several at once
def holm_by_hand(p, level):
    """Which of several hypotheses Holm's procedure rejects: the adjusted p, the running maximum of (m − i)·p."""
    adjusted, worst = {}, 0.0
    for place, (own, at) in enumerate(sorted((own, at) for at, own in enumerate(p))):
        worst = max(worst, (len(p) - place) * own)
        adjusted[at] = min(1.0, worst)
    return np.array([adjusted[at] <= level for at in range(len(p))], dtype=bool)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_level_rejects_is_what_holm_rejects(seed):
    rng = np.random.default_rng(seed)
    p = rng.uniform(size=rng.integers(1, 12)) ** rng.integers(1, 6)
    levels = holm_levels(p, 0.05)
    np.testing.assert_array_equal(p <= levels, holm_by_hand(p, 0.05))
    assert (levels >= 0.05 / len(p) - 1e-15).all()
    assert (levels <= 0.05).all()


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.05 / 3, 0.05 / 2, 0.05 / 2, 0.05 / 4]),  # stops at .03
        ([0.001, 0.002, 0.003], [0.05 / 3, 0.05 / 2, 0.05]),  # all are rejected: each its own
        ([0.2, 0.3, 0.4], [0.05 / 3] * 3),  # none is: all keep the first
        ([0.02, 0.024, 0.9], [0.05 / 3, 0.05 / 3, 0.05 / 3]),  # what would pass later is not asked
        ([0.01, 0.01], [0.05 / 2, 0.05]),
        ([0.04], [0.05]),
        ([], []),
    ],
)
def test_levels_of_known_examples(p, expected):
    np.testing.assert_allclose(holm_levels(np.array(p), 0.05), expected, rtol=1e-12)


def test_all_together_err_by_the_level_at_most():
    rng = np.random.default_rng(0)
    erred = [(p <= holm_levels(p, 0.05)).any() for p in rng.uniform(size=(2000, 8))]
    assert 0.03 < np.mean(erred) < 0.065


# ------------------------------------------------------------------ signs
@pytest.mark.parametrize(
    ("positive", "n", "p"),
    [
        *((5, 5, 0.0625), (0, 5, 0.0625), (6, 6, 0.03125), (9, 9, 1 / 256)),
        *((4, 5, 0.375), (5, 6, 7 / 32), (3, 6, 1.0), (1, 1, 1.0)),
    ],
)
def test_a_sign_test_is_exact(positive, n, p):
    assert math.isclose(sign_test(positive, n), p, rel_tol=1e-12)


@pytest.mark.parametrize("n", range(1, 9))
def test_a_sign_test_is_that_of_all_signs(n):
    for positive in range(n + 1):
        as_far = [
            signs for signs in itertools.product((0, 1), repeat=n) if abs(2 * sum(signs) - n) >= abs(2 * positive - n)
        ]
        assert math.isclose(sign_test(positive, n), len(as_far) / 2**n, rel_tol=1e-12)


def test_no_signs_are_no_test():
    assert math.isnan(sign_test(0, 0))

"""Contrasts of seeds: intervals and tests against scipy and by hand, rules, and Holm under its null."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from geomprobe.evidence.contrasts import (
    LEVEL,
    Contrast,
    Decision,
    Rule,
    all_for,
    any_for,
    both_all,
    holm,
    p_beyond,
    seeds_needed,
    sign_flip_p,
    t_interval,
)

BOTH = Rule("above or below 0", above=0, below=0)


def spread(middle, sd, n=6):
    """Values of exactly this mean and standard deviation."""
    base = np.linspace(-1, 1, n)
    return middle + sd * base / base.std(ddof=1)


# ---------------------------------------------------------------------- intervals and tests
@pytest.mark.parametrize("n", [2, 3, 6, 9])
@pytest.mark.parametrize("level", [0.05, 0.01, 0.1])
def test_intervals_are_those_of_scipy(n, level):
    values = np.random.default_rng(n).normal(0.3, 1, n)
    expected = ttest_1samp(values, 0).confidence_interval(1 - level)
    assert t_interval(values, level) == pytest.approx((expected.low, expected.high), rel=1e-12)


@pytest.mark.parametrize("bound", [-0.4, 0.0, 0.7])
@pytest.mark.parametrize("above", [True, False])
def test_one_sided_p_is_that_of_scipy(bound, above):
    values = np.random.default_rng(1).normal(0.3, 1, 7)
    expected = ttest_1samp(values, bound, alternative="greater" if above else "less").pvalue
    assert p_beyond(values, bound, above=above) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [0, 1])
def test_one_seed_tells_nothing(n):
    values = np.ones(n)
    assert all(math.isnan(x) for x in t_interval(values, 0.05))
    assert p_beyond(values, 0, above=True) == 1
    assert Contrast("x", "A", values, BOTH).speaks(0.05) == "not_tested"


def test_seeds_without_any_spread_are_on_their_side():
    assert p_beyond(np.full(3, 2.0), 1, above=True) == 0
    assert p_beyond(np.full(3, 2.0), 2, above=True) == 1
    assert t_interval(np.full(3, 2.0), 0.05) == (2, 2)


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_sign_flips_are_counted_one_by_one(n):
    values = np.random.default_rng(n).normal(0.5, 1, n)
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in itertools.product((1, -1), repeat=n)
    ]
    count = sum(one >= abs(values.sum()) - 1e-12 for one in sums)
    assert sign_flip_p(values) == (count / 2**n, 2.0 ** (1 - n))


@pytest.mark.parametrize(("n", "smallest"), [(5, 0.0625), (6, 0.03125), (9, 0.00390625)])
def test_the_smallest_p_that_so_many_signs_can_give(n, smallest):
    assert sign_flip_p(np.arange(1.0, n + 1)) == (smallest, smallest)
    assert sign_flip_p(-np.arange(1.0, n + 1))[0] == smallest


def test_no_values_have_no_sign_flip():
    assert all(math.isnan(x) for x in sign_flip_p(np.zeros(0)))


# ---------------------------------------------------------------------- rules
@pytest.mark.parametrize(
    ("rule", "values", "verdict"),
    [
        (BOTH, spread(1, 0.5), "supported"),
        (BOTH, spread(-1, 0.5), "refuted"),
        (BOTH, spread(0.1, 0.5), "inconclusive"),
        (Rule("", above=0, least=2), spread(1, 0.5), "inconclusive"),  # the interval alone is not enough
        (Rule("", above=0, least=1), spread(1, 0.5), "supported"),
        (Rule("", above=0, below=0, turned=True), spread(-1, 0.5), "supported"),
        (Rule("", above=0, below=0, turned=True), spread(1, 0.5), "refuted"),
        (Rule("", above=0.02, below=0.1, turned=True), spread(0.01, 0.001), "supported"),
        (Rule("", above=0.02, below=0.1, turned=True), spread(0.06, 0.001), "inconclusive"),
        (Rule("", above=0.02, below=0.1, turned=True), spread(0.2, 0.001), "refuted"),
        (Rule("", above=-0.05, below=0, none_within=0.05, turned=True), spread(-0.2, 0.01), "supported"),
        (Rule("", above=-0.05, below=0, none_within=0.05, turned=True), spread(-0.02, 0.01), "refuted"),
        (Rule("", above=-0.05, below=0, none_within=0.05, turned=True), spread(0.2, 0.01), "refuted"),
        (Rule("", above=-0.05, below=0, none_within=0.05, turned=True), spread(-0.06, 0.05), "inconclusive"),
        (Rule("", above=0, least=-0.3, turned=True), spread(-0.2, 0.01), "inconclusive"),
        (Rule("", within=0.1), spread(0.05, 0.02), "supported"),
        (Rule("", within=0.1), spread(0.5, 0.02), "inconclusive"),  # it never speaks against
        (Rule("", within=0.1, below=0.1, turned=True), spread(0.5, 0.02), "refuted"),  # unless it says so
        (Rule("", within=0.1, below=0.1, turned=True), spread(-0.5, 0.02), "inconclusive"),
    ],
)
def test_what_a_rule_makes_of_seeds(rule, values, verdict):
    assert Contrast("x", "A − B", values, rule).speaks(0.05) == verdict


def test_equivalence_is_two_one_sided_tests():
    rule = Rule("", above=0, none_within=0.1)
    for values in (spread(0.03, 0.05), spread(0.06, 0.05), spread(0, 0.13)):
        low, high = t_interval(values, 0.10)  # the interval that errs by twice the level
        inside = max(-low, high) < 0.1
        assert (Contrast("x", "A", values, rule).p_against() < 0.05) == inside


def test_a_mere_lack_of_significance_never_refutes():
    wide = Contrast("x", "A", spread(0, 1), Rule("", above=0, below=0, none_within=0.1))
    assert wide.speaks(0.05) == "inconclusive"


def test_where_both_rules_hold_the_one_against_wins():
    small = Contrast("x", "A − B", spread(0.01, 0.002), Rule("", above=0, none_within=0.02))
    assert small.p_for() < 0.001
    assert small.speaks(0.05) == "refuted"


def test_what_is_no_number_is_not_tested():
    assert Contrast("x", "A", np.array([1, 2, np.inf]), BOTH).speaks(0.05) == "not_tested"


def test_without_a_rule_nothing_is_said():
    shown = Contrast("x", "A", spread(3, 0.1))
    assert (shown.p_for(), shown.p_against(), shown.speaks(0.05)) == (1, 1, "not_tested")


# ---------------------------------------------------------------------- several contrasts
F, A, U, N = "supported", "refuted", "inconclusive", "not_tested"


@pytest.mark.parametrize(
    ("said", "all_", "any_", "both"),
    [
        ((F, F), F, F, F),
        ((F, U), U, F, U),
        ((F, A), A, F, U),
        ((U, A), A, U, U),
        ((A, A), A, A, A),
        ((U, U), U, U, U),
        ((F, N), N, N, N),
        ((), N, N, N),
    ],
)
def test_how_contrasts_agree(said, all_, any_, both):
    assert (all_for(said), any_for(said), both_all(said)) == (all_, any_, both)


def decision(*values, agree=all_for, rule=BOTH, **others):
    return Decision("C", "T", tuple(Contrast("x", "A − B", own, rule) for own in values), agree, **others)


def test_several_of_which_one_suffices_pay_for_it():
    weak, none = spread(1, 0.8), spread(0, 1)
    alone = decision(weak, agree=any_for)
    beside = decision(weak, none, agree=any_for)
    assert beside.p == pytest.approx(2 * alone.p)
    assert decision(weak, none).p > 0.5  # all are needed for it, and nothing speaks against it
    assert decision(-weak, none).p == pytest.approx(2 * alone.p)  # one is enough against it
    assert decision(-weak, none, agree=both_all).p > 0.5


def test_a_verdict_needs_seeds_for_each_contrast():
    assert decision(spread(1, 0.1), np.ones(1)).verdict(0.05) == N
    assert decision(spread(1, 0.1), missing="No runs.").verdict(0.05) == N
    assert decision().verdict(0.05) == N
    assert decision(spread(1, 0.1)).verdict(0.05) == F
    assert Decision("C", "T", (Contrast("x", "A", spread(1, 0.1)),)).tested is False


# ---------------------------------------------------------------------- Holm
def test_levels_step_down_and_stop():
    decisions = [decision(spread(1, sd)) for sd in (0.02, 0.1, 2, 5)]
    decisions.insert(1, decision(np.ones(1)))
    levels = holm(decisions)
    assert levels[0] == LEVEL / 4  # untested claims take no part
    assert math.isnan(levels[1])
    assert levels[2:] == [LEVEL / 3, LEVEL / 2, LEVEL / 2]


def test_claims_at_which_nothing_is_true_err_together_by_their_level():
    rng = np.random.default_rng(0)
    n = 400
    wrong = 0
    for _ in range(n):
        decisions = [decision(rng.standard_normal(6)) for _ in range(8)]
        wrong += any(one.verdict(level) in (F, A) for one, level in zip(decisions, holm(decisions), strict=True))
    assert wrong / n <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / n)
    assert wrong / n >= 0.02  # and not by never saying anything


@pytest.mark.parametrize("agree", [all_for, any_for])
def test_claims_of_several_contrasts_do_so_too(agree):
    rng = np.random.default_rng(1)
    n = 200
    wrong = 0
    for _ in range(n):
        decisions = [decision(*rng.standard_normal((3, 6)), agree=agree) for _ in range(4)]
        wrong += any(one.verdict(level) in (F, A) for one, level in zip(decisions, holm(decisions), strict=True))
    assert wrong / n <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / n)


def test_what_is_planted_is_found_among_others():
    rng = np.random.default_rng(2)
    found, n = 0, 50
    for _ in range(n):
        decisions = [decision(rng.standard_normal(6) + 6 * (place == 3)) for place in range(8)]
        found += decisions[3].verdict(holm(decisions)[3]) == F
    assert found / n > 0.9


@pytest.mark.parametrize(("m", "n"), [(1, 6), (2, 7), (6, 8), (7, 9), (8, 9), (12, 9), (13, 10), (25, 10), (26, 11)])
def test_seeds_that_a_sign_flip_needs(m, n):
    assert seeds_needed(m) == n

"""Draws that belong together, differences, effect sizes, intervals and what holds for all of them at once."""

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, t

from geomprobe.comparison.measured import (
    Measured,
    differences,
    expanded,
    interval,
    joint_bound,
    of_documents,
    values,
)
from geomprobe.comparison.quantities import QUANTITIES
from geomprobe.comparison.sides import WHOLE, Sides
from geomprobe.stats.resampling import Draws
from tests.comparison import oracle
from tests.comparison.made import DOCUMENTS, changed, made_run
from tests.comparison.test_quantities import expected, key

N_DRAWS = 40
LAYERS = {WHOLE: ([0, 1, 2, 3, 4, 5], [0, 1, 2]), "early": ([0, 1], [0]), "late": ([4, 5], [2])}


@pytest.fixture(scope="module")
def sides():
    """The second run has documents in another order, one that the first has not, and not one that it has."""
    other = (*DOCUMENTS[5:], "of the other alone", *DOCUMENTS[:4])
    return Sides.of([made_run("one", layers=6, seed=1), made_run("other", layers=3, heads=3, seed=2, documents=other)])


def measured(draws, estimates=(0.0, 0.0), n=20, **more):
    """A quantity of two sides, whose draws of the first are 0."""
    both = np.stack([np.zeros(len(draws)), np.asarray(draws, dtype=float)])
    return Measured("x", "x", "nats", WHOLE, np.array(estimates), both, n_documents=n, **more)


# ------------------------------------------------------------------ of documents
@pytest.mark.parametrize("place", LAYERS)
@pytest.mark.parametrize("quantity", QUANTITIES, ids=key)
def test_a_quantity_of_all_sides_is_of_their_common_documents(quantity, place, sides):
    if quantity.whole and place != WHOLE:
        return
    common = [name for name in DOCUMENTS if name != DOCUMENTS[4]]
    assert sides.documents == tuple(common)
    one = of_documents(sides, quantity, place, draws=N_DRAWS)
    assert (one.n_documents, one.n_types, one.effect, one.gauge) == (11, 0, "documents", quantity.gauge)
    assert one.key == (quantity.name, quantity.gauge, "", place)
    times = Draws.of(11, N_DRAWS).documents
    for side, (run, layers) in enumerate(zip(sides.runs, LAYERS[place], strict=True)):
        assert one.estimates[side] == pytest.approx(expected(quantity, run, layers, oracle.once(common)), rel=1e-12)
        for index in (0, 3, 39):
            drawn = oracle.drawn(common, times[index])  # the same documents on both sides
            assert one.draws[side, index] == pytest.approx(expected(quantity, run, layers, drawn), rel=1e-10)
    single = [
        [expected(quantity, run, layers, oracle.once([name])) for name in common]
        for run, layers in zip(sides.runs, LAYERS[place], strict=True)
    ]
    row = differences([one], sides).iloc[0]
    assert row["difference"] == pytest.approx(one.estimates[1] - one.estimates[0], abs=1e-12)
    assert row["effect"] == pytest.approx(oracle.paired_d(*single, row["difference"]), rel=1e-9)
    drawn = one.draws[1] - one.draws[0]
    level = 2 * norm.cdf(-math.sqrt(11 / 10) * t.ppf(0.975, 10))
    assert [row["low"], row["high"]] == pytest.approx(np.quantile(drawn, [level / 2, 1 - level / 2]), rel=1e-12)


def test_what_one_side_does_not_say_is_not_compared():
    one = made_run("one")
    silent = changed(one, split=one.tables["split"].iloc[:0])
    made = Sides.of([one, silent])
    found = {key(quantity): of_documents(made, quantity, WHOLE, draws=5) for quantity in QUANTITIES}
    assert {name for name, found in found.items() if found is None} == {key(one) for one in QUANTITIES if one.gauge}


def test_documents_that_one_side_says_nothing_of_are_left_out_of_all():
    one, other = made_run("one"), made_run("other", seed=1)
    table = other.tables["document_stats"]
    table = table.assign(entropy=table["entropy"].where(table["document"] > 2))
    made = Sides.of([one, changed(other, document_stats=table)])
    quantity = next(one for one in QUANTITIES if one.name == "entropy")
    found = of_documents(made, quantity, WHOLE, draws=5)
    assert found.n_documents == 9
    times = oracle.once(DOCUMENTS[3:])
    assert found.estimates[0] == pytest.approx(oracle.mean_of_rows(one, "entropy", [0, 1, 2], times), rel=1e-12)


def test_one_document_has_no_effect_size():
    made = Sides.of([made_run("one", documents=("a",)), made_run("other", documents=("a",), seed=1)])
    row = differences([of_documents(made, QUANTITIES[0], WHOLE, draws=5)], made).iloc[0]
    assert row["difference"] != 0
    assert np.isnan(row[["low", "high", "effect"]].to_numpy(float)).all()
    assert not row["beyond"]


@pytest.mark.parametrize("same", [True, False])
def test_means_over_tokens_of_other_tokens_say_so(same):
    one, other = made_run("one"), made_run("other")
    other = other if same else changed(other, corpus={"tokens_sha256": "3" * 64})
    made = Sides.of([one, other])
    notes = {quantity.name: of_documents(made, quantity, WHOLE, draws=5).note for quantity in QUANTITIES}
    assert notes.pop("loss_per_character") == ""
    assert set(notes.values()) == ({""} if same else {"over each model's own tokens"})


# ------------------------------------------------------------------ intervals
def test_the_level_of_eight_documents_by_hand():
    """t(.975, 7) = 2.3646; times √(8/7) = 2.5279; the normal tails beyond it hold 1.15 %."""
    assert expanded(8) == pytest.approx(0.01148, abs=5e-6)
    assert expanded(8) == pytest.approx(math.erfc(math.sqrt(8 / 7) * 2.364624 / math.sqrt(2)), rel=1e-5)


@pytest.mark.parametrize(("n", "level"), [(5, 0.05), (12, 0.05), (32, 0.05), (100, 0.1)])
def test_the_level_comes_of_quantiles_of_t_and_normal(n, level):
    """Φ by the error function, t's quantile by the share that its density has below it."""
    bound = norm.ppf(1 - expanded(n, level) / 2) / math.sqrt(n / (n - 1))
    grid = np.linspace(0, bound, 200_001)
    density = (1 + grid**2 / (n - 1)) ** (-n / 2)
    density *= math.gamma(n / 2) / (math.sqrt((n - 1) * math.pi) * math.gamma((n - 1) / 2))
    inside = float(((density[1:] + density[:-1]) / 2 * np.diff(grid)).sum())
    assert 2 * inside == pytest.approx(1 - level, abs=1e-8)


def test_the_level_tends_to_the_usual_one():
    found = [expanded(n) for n in (5, 8, 12, 32, 100, 10_000)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(0.05, rel=1e-3)
    assert math.isnan(expanded(1))


@pytest.mark.parametrize("n", [5, 8, 40])
def test_an_interval_holds_the_draws_but_those_of_the_level(n):
    draws = np.random.default_rng(0).permutation(20_001) / 20_000.0
    low, high = interval(draws, n)
    assert (low, 1 - high) == pytest.approx((expanded(n) / 2, expanded(n) / 2), abs=1e-9)


def test_no_interval_of_few_units_or_of_draws_without_value():
    draws = np.linspace(0, 1, 100)
    assert np.isnan(interval(draws, 4)).all()
    assert np.isfinite(interval(draws, 5)).all()
    assert np.isnan(interval(np.where(draws > 0.9, np.nan, draws), 20)).all()


# ------------------------------------------------------------------ all together
def brute_bound(drawn, level=0.05):
    """The quantile of the largest standardised deviation, draw by draw."""
    known = [(list(map(float, one)), statistics.fmean(one), statistics.pstdev(one)) for one in drawn]
    largest = [max(abs(one[at] - mean) / sd for one, mean, sd in known) for at in range(len(drawn[0]))]
    ordered = sorted(largest)
    place = (1 - level) * (len(ordered) - 1)
    below = math.floor(place)
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])


def test_the_joint_bound_is_the_quantile_of_the_largest_deviation():
    rng = np.random.default_rng(0)
    drawn = [scale * rng.normal(size=101) + 3 for scale in (0.1, 2.0, 30.0)]
    units = [12, 20, 9]
    assert joint_bound(drawn, units) == pytest.approx(brute_bound(drawn), rel=1e-10)
    assert joint_bound(drawn, units) > joint_bound(drawn[:1], units[:1])


def test_the_joint_bound_of_many_apart_is_that_of_sidak():
    """Of one it is 1.96; of 20 that hang together not at all, each at 1 − .95^(1/20)."""
    drawn = np.random.default_rng(0).normal(size=(20, 20_000))
    assert joint_bound(drawn[:1], [8]) == pytest.approx(1.96, rel=0.02)
    assert joint_bound([drawn[0]] * 5, [8] * 5) == joint_bound(drawn[:1], [8])
    assert joint_bound(list(drawn), [8] * 20) == pytest.approx(norm.ppf(1 - (1 - 0.95 ** (1 / 20)) / 2), rel=0.02)


def test_the_joint_bound_leaves_out_what_has_no_interval():
    rng = np.random.default_rng(1)
    good, few, none = rng.normal(size=50), 9 * rng.standard_cauchy(size=50), np.full(50, np.nan)
    constant = np.zeros(50)
    assert joint_bound([good, few, none, constant], [12, 4, 12, 12]) == joint_bound([good], [12])
    assert joint_bound([few, none, constant], [4, 12, 12]) == math.inf


def test_fewer_draws_are_gone_through_again():
    rng = np.random.default_rng(2)
    many, few = rng.normal(size=60), rng.normal(size=20)
    assert joint_bound([many, few], [12, 12]) == pytest.approx(brute_bound([many, np.tile(few, 3)]))


@pytest.mark.parametrize("n", [8, 40])
def test_beyond_is_past_the_joint_bound_with_the_tails_of_t(n):
    """A single difference is beyond where a t test at 5 % rejects, up to the draws: 2.3646 at eight documents."""
    base = np.random.default_rng(3).normal(size=20_000)
    sides = Sides.of([made_run("one"), made_run("other")])
    error = base.std() * math.sqrt(n / (n - 1))
    for times, beyond in ((0.0, False), (0.97, False), (1.03, True), (9.0, True), (1e6, True)):
        shift = times * error * t.ppf(0.975, n - 1)
        assert differences([measured(base + shift, (0.0, shift), n=n)], sides)["beyond"].tolist() == [beyond]


def test_each_of_many_is_held_against_the_bound_of_all():
    drawn = np.random.default_rng(3).normal(size=(4, 2000))
    units = (8, 12, 40, 40)
    sides = Sides.of([made_run("one"), made_run("other")])
    bound = brute_bound(drawn)
    for near, beyond in ((0.999, False), (1.001, True)):
        many = []
        for one, n in zip(drawn, units, strict=True):
            shift = near * one.std() * math.sqrt(n / (n - 1)) * t.isf(norm.sf(bound), n - 1)
            many.append(measured(one + shift, (0.0, shift), n=n))
        assert differences(many, sides)["beyond"].tolist() == [beyond] * 4


def test_what_has_no_draws_apart_is_beyond_where_it_differs():
    """A difference that is the same whatever is drawn."""
    noise = np.random.default_rng(4).normal(size=200)
    table = differences(
        [measured(np.full(200, 0.5), (0.0, 0.5)), measured(np.zeros(200)), measured(noise)],
        Sides.of([made_run("one"), made_run("other")]),
    )
    assert table["beyond"].tolist() == [True, False, False]


def test_effect_is_over_the_spread_of_that_side():
    spread = np.array([0.0, 0.5])
    table = differences(
        [
            measured(np.zeros(9), (0.0, 0.25), spread=spread),
            measured(np.zeros(9), (0.0, 0.25), spread=np.zeros(2)),
            measured(np.zeros(9), (0.0, 0.25)),
        ],
        Sides.of([made_run("one"), made_run("other")]),
    )
    assert table["effect"].iloc[0] == 0.5
    assert table["effect"].iloc[1:].isna().all()


def test_units_are_the_fewer_of_documents_and_types():
    assert measured([0.0], n=12, n_types=7).n == 7
    assert measured([0.0], n=12, n_types=30).n == 12
    assert measured([0.0], n=0, n_types=30).n == 30
    assert measured([0.0], n=0).n == 0


# ------------------------------------------------------------------ values
def test_values_are_each_run_by_itself_with_ranks_from_the_largest():
    draws = np.stack([np.linspace(k, k + 1, 50) for k in range(4)])
    one = Measured("x", "x", "nats", WHOLE, np.array([0.5, 2.0, 2.0, np.nan]), draws, n_documents=10)
    sides = Sides.of([made_run(name) for name in "abcd"])
    table = values([one], sides)
    assert table["run"].tolist() == list("abcd")
    assert table["rank"].tolist()[:3] == [3, 1, 1]
    assert pd.isna(table["rank"].iloc[3])
    assert table["low"].tolist() == pytest.approx([interval(row, 10)[0] for row in draws])
    assert (table["n_documents"] == 10).all()

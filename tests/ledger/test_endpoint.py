"""What a quantity says at a level, what several say together, and at which level each is asked."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from geomprobe.ledger.endpoint import VERDICTS, Endpoint, Quantity, Rule, all_agree, first_of, levels
from geomprobe.ledger.study import somewhere

EDGE = Rule("above .5", above=0.5, below=0.5)
SINK = Rule("at least .2, above 0", above=0.0, least=0.2, below=0.1)
SPREAD = Rule("at most .02", above=0.02, below=0.1, turned=True)
N = 10_001


def between(low, high, level=0.05, **given):
    """A quantity whose interval that errs by `level` is from low to high."""
    reach = (high - low) / (1 - level) / 2
    middle = (low + high) / 2
    estimate = given.pop("estimate", middle)
    return Quantity("x", estimate, np.linspace(middle - reach, middle + reach, N), **given)


# ------------------------------------------------------------------ one quantity
@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.51, 0.9, "supported"), (0.1, 0.49, "refuted"), (0.1, 0.51, "inconclusive"), (0.49, 0.9, "inconclusive")],
)
def test_the_whole_interval_must_lie_beyond_the_edge(low, high, expected):
    assert between(low, high, rule=EDGE).speaks(0.05) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.15, 0.3, "supported"),
        (0.05, 0.34, "inconclusive"),  # above 0, but the estimate is less than .2
        (-0.01, 0.6, "inconclusive"),
        (-0.3, 0.099, "refuted"),
        (-0.3, 0.101, "inconclusive"),
    ],
)
def test_an_estimate_must_reach_what_a_rule_asks(low, high, expected):
    assert between(low, high, rule=SINK).speaks(0.05) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 0.019, "supported"),
        (0.0, 0.021, "inconclusive"),
        (0.05, 0.2, "inconclusive"),
        (0.11, 0.2, "refuted"),
        (0.09, 0.2, "inconclusive"),
    ],
)
def test_a_rule_may_ask_for_little(low, high, expected):
    assert between(low, high, rule=SPREAD).speaks(0.05) == expected


def test_where_both_rules_hold_refuted_wins():
    """An interval between 0 and .1 around .05, where a sink of .05 is enough: above 0, and below .1."""
    both = between(0.01, 0.09, rule=Rule("", above=0.0, least=0.05, below=0.1))
    assert both.speaks(0.05) == "refuted"
    turned = between(0.12, 0.18, rule=Rule("", above=0.2, below=0.1, turned=True))
    assert turned.speaks(0.05) == "refuted"


def test_the_interval_has_two_ends():
    """Each side has half of the level."""
    quantity = between(0.499, 0.9, level=0.06, rule=EDGE)  # 3 % lie below
    assert quantity.speaks(0.05) == "inconclusive"
    assert quantity.speaks(0.07) == "supported"
    assert 0.055 < quantity.p_for() < 0.065
    assert quantity.p_against() == 1


def test_a_smaller_level_asks_more():
    quantity = between(0.501, 0.9, level=0.05, rule=EDGE)
    assert quantity.speaks(0.05) == "supported"
    assert quantity.speaks(0.02) == "inconclusive"


def test_the_permutation_test_must_agree():
    assert between(0.1, 0.4, rule=SINK, p=0.04).speaks(0.05) == "supported"
    assert between(0.1, 0.4, rule=SINK, p=0.06).speaks(0.05) == "inconclusive"
    assert between(0.1, 0.4, rule=SINK, p=0.06).p_for() == 0.06
    assert between(-0.1, 0.4, rule=SINK, p=0.0001).p_for() > 0.1  # the larger of both counts
    assert between(-0.4, 0.05, rule=SINK, p=0.9).speaks(0.05) == "refuted"  # it is a test of there being something


def test_p_and_interval_say_the_same():
    """p < level just where the interval at that level lies beyond the edge, to a draw."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        quantity = Quantity("x", 0.5, rng.normal(0.5 + rng.normal(0, 0.3), 0.15, 2000), EDGE)
        for p, said in ((quantity.p_for(), "supported"), (quantity.p_against(), "refuted")):
            for level in (0.001, 0.01, 0.05, 0.2):
                if abs(p - level) > 3 / 2000:
                    assert (p < level) == (quantity.speaks(level) == said)


@pytest.mark.parametrize(
    "quantity",
    [
        Quantity("x", 0.9, rule=EDGE),  # no interval
        Quantity("x", math.nan, np.linspace(0.8, 1, 100), EDGE),
        Quantity("x", 0.9, np.linspace(0.8, 1, 100)),  # no rule
    ],
)
def test_what_has_no_interval_or_rule_says_nothing(quantity):
    assert quantity.speaks(0.05) == "not_tested"


def test_a_draw_without_a_value_leaves_it_open():
    draws = np.linspace(0.8, 1, 1000)
    draws[3] = np.nan
    quantity = Quantity("x", 0.9, draws, EDGE)
    assert quantity.speaks(0.05) == "inconclusive"
    assert all(math.isnan(end) for end in quantity.interval(0.05))


def test_a_quantity_without_draws_has_no_p():
    assert Quantity("x", 0.9, rule=EDGE).p_for() == 1
    assert Quantity("x", 0.9, rule=EDGE).p_against() == 1
    assert Quantity("x", 0.9, np.ones(9)).p_for() == 1


# ------------------------------------------------------------------ endpoints
YES, NO, OPEN = (0.6, 0.9), (0.1, 0.4), (0.3, 0.7)


def endpoint(**by_gauge):
    """An endpoint with a quantity a gauge and pair of ends."""
    made = [
        replace(between(*ends, rule=EDGE, gauge=gauge), name=f"x{at}")
        for gauge, several in by_gauge.items()
        for at, ends in enumerate(several)
    ]
    return Endpoint((*made, Quantity("beside", 0.1, gauge="raw")), all_agree)


@pytest.mark.parametrize(
    ("raw", "balanced", "expected"),
    [
        ([YES], [YES], "supported"),
        ([NO], [NO], "refuted"),
        ([OPEN], [OPEN], "inconclusive"),
        ([YES], [NO], "not_identified"),
        ([NO], [YES], "not_identified"),
        ([YES], [OPEN], "not_identified"),
        ([OPEN], [NO], "not_identified"),
        ([YES, YES], [YES, YES], "supported"),
        ([YES, NO], [YES, NO], "inconclusive"),
        ([YES, OPEN], [YES, OPEN], "inconclusive"),
        ([YES, YES], [YES, OPEN], "not_identified"),
    ],
)
def test_gauges_must_agree(raw, balanced, expected):
    assert endpoint(raw=raw, balanced=balanced).verdict(0.05) == expected


def test_one_gauge_decides_where_there_is_one():
    assert endpoint(raw=[YES]).verdict(0.05) == "supported"
    assert endpoint(raw=[YES]).gauges == ["raw"]
    plain = Endpoint((between(*NO, rule=EDGE),), all_agree)
    assert (plain.gauges, plain.verdict(0.05)) == ([""], "refuted")


def test_what_has_no_gauge_is_asked_in_both():
    quantities = (
        *endpoint(raw=[YES], balanced=[YES]).quantities,
        Quantity("cost", 0.3, np.linspace(*OPEN, 99), EDGE),
    )
    assert Endpoint(quantities, all_agree).verdict(0.05) == "inconclusive"


def test_an_endpoint_is_as_sure_as_its_least_sure_quantity():
    raw, balanced = between(0.55, 0.9, rule=EDGE, gauge="raw"), between(0.45, 0.9, rule=EDGE, gauge="balanced")
    both = Endpoint((raw, balanced), all_agree)
    assert both.p == balanced.p_for() > raw.p_for()
    against = Endpoint((between(*NO, rule=EDGE), between(0.3, 0.55, rule=EDGE)), all_agree)
    assert against.p == against.quantities[1].p_against()
    assert Endpoint((Quantity("x", 1.0),), all_agree).p == 1


@pytest.mark.parametrize("verdicts", list(itertools.product(VERDICTS, repeat=2)))
def test_all_must_say_so(verdicts):
    one, other = verdicts
    agreed = one if one == other and one in ("supported", "refuted") else "inconclusive"
    assert all_agree("raw", {"a": one, "b": other}) == agreed


@pytest.mark.parametrize("verdicts", list(itertools.product(VERDICTS[:4], repeat=3)))
def test_somewhere_is_enough_for_and_everywhere_against(verdicts):
    said = somewhere(verdicts)
    if "supported" in verdicts:
        assert said == "supported"
    elif set(verdicts) == {"refuted"}:
        assert said == "refuted"
    else:
        assert said == ("not_identified" if "not_identified" in verdicts else "inconclusive")


def test_the_first_of_the_wanted_is_found():
    assert first_of(["refuted", "supported"], "supported", "refuted") == "supported"
    assert first_of(["refuted"], "supported") is None


# ------------------------------------------------------------------ several endpoints
def test_endpoints_share_their_level_by_holm():
    """The surest is asked at a third of the level, the next at half; where one fails, the rest keep its level."""
    sure = Endpoint((between(0.6, 0.9, rule=EDGE),), all_agree)
    nearly = Endpoint((between(0.505, 0.9, rule=EDGE),), all_agree)  # p of .05
    open_ = Endpoint((between(*OPEN, rule=EDGE),), all_agree)
    assert np.allclose(levels([nearly, open_, sure], 0.05), [0.025, 0.025, 0.05 / 3])
    assert nearly.verdict(0.05) == "supported"
    assert nearly.verdict(levels([nearly, open_, sure], 0.05)[0]) == "inconclusive"
    assert np.allclose(levels([sure, sure, sure], 0.05), [0.05 / 3, 0.025, 0.05])
    assert levels([], 0.05) == []

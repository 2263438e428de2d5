"""Sentences of a comparison: shares as percentages, differences in points, what an interval is of."""

import math

import numpy as np
import pytest

from geomprobe.comparison.comparison import Comparison
from geomprobe.comparison.measured import Measured
from geomprobe.comparison.sides import WHOLE, Sides
from geomprobe.pages.side_findings import amount, between, gap, side_findings
from tests.comparison.made import made_run


def made(estimates, *, name="first_mass", unit="share", half=0.02, n=20, **more):
    """A comparison of one quantity whose intervals are as wide as that."""
    drawn = [np.linspace(-half, half, 401) * at + value for at, value in enumerate(estimates)]
    one = Measured(name, name, unit, WHOLE, np.array(estimates), np.stack(drawn), n_documents=n, **more)
    return Comparison(Sides.of([made_run(f"run-{at}") for at in range(len(estimates))]), (one,))


def said(comparison, topic):
    """The text of a topic."""
    return " ".join(finding.text for finding in side_findings(comparison) if finding.topic == topic)


def test_shares_are_told_as_percentages():
    text = said(made([0.25, 0.355]), "Sinks")
    assert "position 0 takes 25.0% in" in text
    assert "35.5% in" in text
    assert "difference +10.5 points, +8.56 to +12.4;" in text
    assert "n = 20 documents" in text


def test_what_is_no_share_is_told_in_its_unit():
    text = said(made([1.25, 1.0], name="entropy", unit="nats"), "Logits")
    assert "1.25 in" in text
    assert "difference −0.250, −0.2" in text
    assert "points" not in text
    assert "%" not in text


def test_auc_is_a_share_and_told_as_it_is():
    text = said(made([0.7, 0.9], name="cluster_auc", unit="AUC", token_class="content", n_types=30, n=0), "Words")
    assert "an AUC of 0.700 in" in text
    assert "n = 30 types" in text


@pytest.mark.parametrize(("second", "doubt"), [(0.251, True), (0.35, False), (0.25, False)])
def test_an_interval_with_0_may_be_nothing(second, doubt):
    assert ("that may be nothing" in said(made([0.25, second]), "Sinks")) == doubt


def test_without_an_interval_it_says_so():
    assert "points, without an interval; n = 3 documents" in said(made([0.25, 0.35], n=3), "Sinks")


def test_of_three_the_lowest_and_the_highest_are_told():
    text = said(made([0.25, 0.1, 0.5]), "Sinks")
    assert text.index("10.0%") < text.index("run-1") < text.index("50.0%") < text.index("run-2")


def test_numbers_are_those_of_the_table():
    comparison = made([0.25, 0.355])
    (finding,) = (one for one in side_findings(comparison) if one.topic == "Sinks")
    row = comparison.differences.iloc[0]
    assert finding.table == "differences"
    assert finding.values == {name: row[name] for name in ("estimate_a", "estimate_b", "difference", "low", "high")}


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [(0.105, "share", "+10.5"), (-0.105, "nats", "−0.105"), (0.0, "share", "0"), (math.nan, "share", "–")],
)
def test_gaps(value, unit, told):
    assert gap(value, unit) == told


def test_amounts_and_intervals():
    assert (amount(0.105, "share"), amount(0.105, "nats")) == ("10.5%", "0.105")
    assert between({"low": -0.01, "high": 0.02, "unit": "share"}) == "−1.00 to +2.00"
    assert between({"low": math.nan, "high": math.nan, "unit": "share"}) == "–"


def test_how_many_differ_is_counted():
    text = said(made([0.25, 0.35]), "How much differs")
    assert "Of 1 difference with a 95% interval, 1 have an interval without 0" in text
    assert "1 are beyond" in text

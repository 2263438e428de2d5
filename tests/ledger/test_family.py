"""What sizes of a family say of C7a, and signs over families."""

import math

import numpy as np
import pytest
from scipy.stats import theilslopes

from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.family import SIGNS, growth, pooled, told
from geomprobe.ledger.ledger import make_ledger
from geomprobe.pages.ledgers import claims
from tests.ledger.made import edits, made_run, made_trial

pytestmark = pytest.mark.usefixtures("fast")
SIZES = (125_000_000, 250_000_000, 500_000_000, 1_000_000_000, 2_000_000_000)
TABLES = ("type_stats", "type_split", "type_places", "document_stats")


def sized(n, slope, *, wobble=0.0, family="llama", norm=False, p999_slope=None, sizes=SIZES):
    """Checkpoints of a family whose logits grow by `slope` a doubling."""
    other = slope if p999_slope is None else p999_slope
    made = []
    for at in range(n):
        off = wobble * (-1) ** at
        run = made_run(
            f"{family}-{at}",
            family=family,
            parameters=sizes[at],
            norm=norm,
            row_sd=2 * math.exp(slope * math.log2(sizes[at] / sizes[0]) + off),
            p999=6 * math.exp(other * math.log2(sizes[at] / sizes[0]) - off),
            without=TABLES,
            log_sd=0.2,
        )
        made.append(Checkpoint(run))
    return made


# ------------------------------------------------------------------ growth
@pytest.mark.parametrize(
    ("n", "slope", "wobble", "expected"),
    [
        (4, 0.1, 0.001, "supported"),
        (5, 0.1, 0.001, "supported"),
        (4, 0.0, 0.001, "refuted"),
        (4, -0.1, 0.001, "refuted"),
        (4, 0.02, 0.001, "inconclusive"),
        (4, 0.1, 0.2, "inconclusive"),
        (3, 0.1, 0.0, "inconclusive"),  # however clear the slope
        (3, -0.1, 0.0, "inconclusive"),
        (2, 0.5, 0.0, "inconclusive"),
    ],
)
def test_four_sizes_can_decide(n, slope, wobble, expected):
    found = growth(sized(n, slope, wobble=wobble))
    assert [one.quantity for one in found] == ["log row_sd", "log p999"]
    assert [one.verdict for one in found] == [expected] * 2
    claim, _, verdict, sentence = told(found)
    assert (claim, verdict) == ("C7a", expected)
    assert f"llama, {n} sizes" in sentence
    assert ("cannot decide" in sentence) == (n < 4)


def test_a_slope_is_that_of_log_spread_on_doublings_with_its_t_interval():
    (found, _) = growth(sized(5, 0.08, wobble=0.01))
    x = np.log2(np.array(SIZES) / 1e6)
    y = np.array([math.log(2) + 0.08 * at + 0.01 * (-1) ** at for at in range(5)])
    np.testing.assert_allclose(found.values, y, rtol=1e-9)
    assert found.sizes == SIZES
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    rest = y - y.mean() - slope * (x - x.mean())
    error = math.sqrt((rest**2).sum() / 3 / ((x - x.mean()) ** 2).sum())
    reach = 3.182446305 * error  # t of three degrees of freedom
    np.testing.assert_allclose((found.slope, found.low, found.high), (slope, slope - reach, slope + reach), rtol=1e-6)
    assert abs(theilslopes(y, x).slope - slope) < 0.01


def test_two_sizes_have_no_slope_and_one_is_no_family():
    (one, _) = growth(sized(2, 0.1))
    assert math.isnan(one.slope)
    assert math.isnan(one.low)
    assert growth(sized(1, 0.1)) == []


@pytest.mark.parametrize(("n", "p"), [(2, 1.0), (3, 1 / 3), (4, 1 / 12), (5, 1 / 60)])
def test_the_smallest_p_is_that_of_one_order_of_the_sizes_and_its_reverse(n, p):
    assert math.isclose(growth(sized(n, 0.1))[0].p_smallest, p)


def test_families_are_told_apart_and_those_with_a_norm_are_left_out():
    every = (
        sized(4, 0.1, wobble=0.001)
        + sized(4, 0.0, wobble=0.001, family="gpt2")
        + sized(4, 0.1, family="qwen3", norm=True)
    )
    found = growth(every)
    assert [(one.family, one.verdict) for one in found] == [
        *(("llama", "supported"),) * 2,
        *(("gpt2", "refuted"),) * 2,
    ]


def test_what_two_spreads_disagree_on_is_not_decided():
    found = growth(sized(4, 0.1, wobble=0.001, p999_slope=-0.1))
    assert [one.verdict for one in found] == ["supported", "refuted"]
    assert told(found)[2] == "not_identified"
    found = growth(sized(4, 0.1, wobble=0.001, p999_slope=0.02))
    assert told(found)[2] == "inconclusive"
    assert told([])[2] == "not_tested"


def test_one_size_counts_once():
    """Two runs of a size do not make a fourth."""
    assert growth(sized(4, 0.1, sizes=(1, 2, 2, 4)))[0].sizes == (1, 2, 4)


def test_growth_stands_in_the_ledgers_of_its_family():
    runs = [one.run for one in (*sized(4, 0.1, wobble=0.001), *sized(1, 0.0, family="gpt2"))]
    runs += [one.run for one in sized(1, 0.1, family="llama", norm=True, sizes=(77,))]
    runs[-1].manifest["model"].update(id="else", name="else")
    made = claims(runs)
    assert [ledger.verdict("C7a") for ledger in made.ledgers] == ["supported"] * 4 + ["not_tested"] * 2
    assert len(made.growth) == 2
    assert make_ledger(Checkpoint(runs[0])).verdict("C7a") == "not_tested"  # alone


# ------------------------------------------------------------------ signs
def ledgers_of(families, **planted):
    """A ledger a (family, share of lengths)."""
    made = []
    for at, (family, share) in enumerate(families):
        run = made_run(f"m{at}", family=family, share=share, without=("type_stats", "type_split", "logits"), **planted)
        made.append(make_ledger(Checkpoint(run)))
    return made


def signs(ledgers, claim="C1"):
    return pooled(ledgers).set_index("claim").loc[claim]


@pytest.mark.parametrize(
    ("shares", "n", "positive", "p"),
    [
        ((0.8, 0.9, 0.7, 0.8, 0.6, 0.9), 6, 6, 2 / 64),
        ((0.2, 0.1, 0.3, 0.2, 0.4), 5, 0, 2 / 32),
        ((0.8, 0.2, 0.8), 3, 2, 1.0),
    ],
)
def test_signs_are_counted_over_families(shares, n, positive, p):
    row = signs(ledgers_of([(f"family{at}", share) for at, share in enumerate(shares)]))
    assert (row["n_checkpoints"], row["n_families"], row["n_for"]) == (n, n, positive)
    assert math.isclose(row["p"], p)
    assert math.isclose(row["p_smallest"], 2.0 ** (1 - n))
    assert ("cannot decide" in row["sentence"]) == (n < 6)


def test_a_family_counts_once():
    row = signs(ledgers_of([("llama", 0.8), ("llama", 0.9), ("llama", 0.7), ("gpt2", 0.2)]))
    assert (row["n_checkpoints"], row["n_families"], row["n_for"]) == (4, 2, 1)
    assert row["p"] == 1


def test_a_family_whose_gauges_disagree_is_on_no_side():
    row = signs(ledgers_of([("llama", {"raw": 0.8, "balanced": 0.2}), ("gpt2", 0.8)]))
    assert (row["n_checkpoints"], row["n_families"], row["n_for"]) == (2, 1, 1)


def test_of_cosines_only_models_with_a_norm_are_counted_and_little_is_for_the_claim():
    plain = ledgers_of([("a", 0.5), ("b", 0.5)], tv=0.3)
    assert signs(plain, "C3")["n_families"] == 0
    assert math.isnan(signs(plain, "C3")["p"])
    normed = ledgers_of([("a", 0.5), ("b", 0.5)], tv=0.05, norm=True) + ledgers_of([("c", 0.5)], tv=0.3, norm=True)
    row = signs(normed, "C3")
    assert (row["n_families"], row["n_for"]) == (3, 2)


def test_the_lift_is_held_against_its_log():
    """5 % longer, and not 1.05 in logs."""
    made = [
        make_ledger(Checkpoint(made_run(f"m{at}", family=family, lift=lift, without=("logits",))))
        for at, (family, lift) in enumerate((("a", 0.08), ("b", 0.03)))
    ]
    row = signs(made, "C2a")
    assert (row["n_families"], row["n_for"]) == (2, 1)


def test_each_counted_claim_has_a_row_and_untested_ones_are_counted_by_their_numbers():
    """The share is known without edits, though C1 is then not tested."""
    made = ledgers_of([("a", 0.8)])
    assert made[0].verdict("C1") == "not_tested"
    table = pooled(made)
    assert table["claim"].tolist() == list(SIGNS)
    assert signs(made)["n_families"] == 1
    assert signs(made, "C2a")["n_families"] == 0
    assert signs(made, "C2a")["sentence"] == "No family has this number."


def test_ledgers_of_several_runs_and_edits_come_in_order():
    one, other = made_run("one", share=0.8), made_run("other", share=0.2, family="gpt2")
    made = claims([other, made_trial(one, edits(0.09, 0.01)), one, made_trial(other, edits(0.01, 0.09))], family=True)
    assert [ledger.name for ledger in made.ledgers] == ["other", "one"]
    assert [ledger.verdict("C1") for ledger in made.ledgers] == ["refuted", "supported"]
    assert made.pooled.set_index("claim").loc["C1", "n_for"] == 1
    assert made.files == ()
    assert claims(one).pooled is None

"""Layers meet at equal relative depth, heads by rank: interpolated by hand."""

import numpy as np
import pytest

from geomprobe.comparison.depths import ALONG, by_depth, by_rank, interpolated
from geomprobe.comparison.measured import interval
from geomprobe.comparison.quantities import QUANTITIES
from geomprobe.comparison.sides import Sides, common_depths, depth
from geomprobe.stats.resampling import Draws
from tests.comparison import oracle
from tests.comparison.made import DOCUMENTS, FAR, changed, made_run
from tests.comparison.test_quantities import expected

N_DRAWS = 30


@pytest.fixture(scope="module")
def sides():
    return Sides.of([made_run("deep", layers=6, seed=1), made_run("flat", layers=3, heads=3, seed=2)])


def test_a_layer_is_in_the_middle_of_its_part_of_the_depth():
    assert depth(made_run(layers=4)).to_dict() == {0: 0.125, 1: 0.375, 2: 0.625, 3: 0.875}
    run = made_run(layers=2)
    run.manifest["model"]["anatomy"][1]["layer"] = 5  # layers without attention lie between
    assert depth(run).to_dict() == {0: 0.25, 5: 0.75}


def test_six_layers_meet_three_between_two_of_them(sides):
    """Three at 1/6, 3/6, 5/6; six at 1/12, 3/12, …: the first lies midway between the six's first two."""
    assert common_depths(sides) == pytest.approx([1 / 6, 1 / 2, 5 / 6])
    assert common_depths(Sides.of(sides.runs[::-1])) == pytest.approx([1 / 6, 1 / 2, 5 / 6])
    table = by_depth(sides, draws=N_DRAWS)
    times = Draws.of(len(DOCUMENTS), N_DRAWS).documents
    for quantity in (one for one in QUANTITIES if one.name in ALONG):
        own = table[(table["quantity"] == quantity.name) & (table["gauge"] == quantity.gauge)].to_dict("records")
        assert len(own) == 3
        for place, row in enumerate(own):

            def at(drawn, place=place, quantity=quantity):
                deep, flat = sides.runs
                two = [expected(quantity, deep, [layer], drawn) for layer in (2 * place, 2 * place + 1)]
                return sum(two) / 2, expected(quantity, flat, [place], drawn)

            first, second = at(oracle.once(DOCUMENTS))
            assert (row["estimate_a"], row["estimate_b"]) == pytest.approx((first, second), rel=1e-10)
            assert row["difference"] == pytest.approx(second - first, abs=1e-10)
            assert (row["a"], row["b"], row["n_documents"]) == ("deep", "flat", 12)
            if place == 1 and quantity.name in ("entropy", "tv"):
                both = [at(oracle.drawn(DOCUMENTS, one)) for one in times]
                low, high = interval(np.array([b - a for a, b in both]), 12)
                assert (row["low"], row["high"]) == pytest.approx((low, high), rel=1e-8)


def test_values_between_layers_are_on_the_line_and_past_the_ends_those_of_the_ends():
    places, drawn = np.array([0.25, 0.75]), np.array([[1.0, 10.0], [3.0, 30.0]])
    grid = np.array([0.0, 0.25, 0.5, 0.7, 0.75, 1.0])
    found = interpolated(grid, places, drawn)
    assert found[:, 0] == pytest.approx([1, 1, 2, 2.8, 3, 3])
    assert found[:, 1] == pytest.approx([10, 10, 20, 28, 30, 30])
    for column in range(2):
        assert found[:, column] == pytest.approx(np.interp(grid, places, drawn[:, column]))
    assert interpolated(grid, np.array([0.5]), drawn[:1]).tolist() == [[1.0, 10.0]] * 6


def test_a_run_with_itself_differs_nowhere_along_the_depth():
    run = made_run("one", layers=5)
    table = by_depth(Sides.of([run, run]), draws=N_DRAWS)
    assert len(table) == 5 * 10
    assert (table[["difference", "low", "high"]] == 0).all(axis=None)


def test_a_quantity_that_a_layer_does_not_say_has_no_depth(sides):
    deep, flat = sides.runs
    table = flat.tables["document_stats"]
    table = table.assign(entropy=table["entropy"].where(table["layer"] != 1))
    found = set(by_depth(Sides.of([deep, changed(flat, document_stats=table)]), draws=5)["quantity"])
    assert found == set(ALONG) - {"entropy"}


# ------------------------------------------------------------------ heads
def test_heads_are_ranked_within_their_layer_from_the_largest(sides):
    table = by_rank(sides)
    assert set(table["quantity"]) == {"first_mass", "entropy_no_first", "tv"}
    for run, label, heads in zip(sides.runs, sides.labels, (2, 3), strict=True):
        own = table[(table["run"] == label) & (table["quantity"] == "first_mass")]
        assert (own["n_heads"] == heads).all()
        said = oracle.rows(run.tables["sinks"])
        for row in oracle.rows(own):
            layer = [one for one in said if one["layer"] == row["layer"]]
            larger = sum(one["first_mass"] > row["value"] for one in layer)
            assert row["rank"] == larger
            assert row["value"] == next(one["first_mass"] for one in layer if one["q_head"] == row["head"])
            assert row["depth"] == pytest.approx((row["layer"] + 0.5) / len(depth(run)))


def test_heads_are_read_where_they_should_be(sides):
    """After a soft-cap, over all documents, position 0 out, raw gauge."""
    table = by_rank(sides)
    assert (table["value"] < FAR - 1).all()
    raw = sides.runs[0].tables["split"]
    raw = raw[(raw["gauge"] == "raw") & (raw["first"] == "out") & (raw["document"] == -1)]
    own = table[(table["run"] == "deep") & (table["quantity"] == "tv")]
    found = own.set_index(["layer", "head"])["value"].sort_index()
    assert found.to_numpy() == pytest.approx(raw.set_index(["layer", "q_head"])["tv"].sort_index().to_numpy())


def test_a_head_without_value_comes_last(sides):
    deep, flat = sides.runs
    table = deep.tables["sinks"].copy()
    table.loc[(table["layer"] == 2) & (table["q_head"] == 0), "first_mass"] = np.nan
    found = by_rank(Sides.of([changed(deep, sinks=table), flat]))
    own = found[(found["run"] == "deep") & (found["quantity"] == "first_mass") & (found["layer"] == 2)]
    assert own.set_index("head")["rank"].to_dict() == {0: 1, 1: 0}


def test_runs_without_heads_have_no_ranks():
    one = made_run("one", without=("sinks", "logits", "split"))
    table = by_rank(Sides.of([one, one]))
    assert len(table) == 0
    assert "quantity" in table

"""Known answers: a run with itself, a planted difference, documents in other order, an axis of many runs."""

import math

import numpy as np
import pandas as pd
import pytest

from geomprobe.comparison.comparison import compare_runs
from geomprobe.comparison.sides import WHOLE
from geomprobe.pages.side_findings import side_findings
from tests.comparison.made import DOCUMENTS, changed, made_run, nouns, trained, with_words

NUMBERS = ["estimate_a", "estimate_b", "difference", "low", "high", "effect"]
KEYS = ["quantity", "where", "gauge", "token_class"]


def keyed(table, *more):
    """Rows by what they are about."""
    return table.set_index([*KEYS, *more])


def same_numbers(one, other, rtol=1e-9):
    """Whether two tables of differences say the same, row by row."""
    pd.testing.assert_frame_equal(keyed(one)[NUMBERS], keyed(other)[NUMBERS], rtol=rtol, atol=1e-12)
    assert one["beyond"].tolist() == other["beyond"].tolist()


# ------------------------------------------------------------------ nothing
def test_a_run_with_itself_differs_by_exactly_nothing(tmp_path, fast):
    run = with_words(made_run("one", layers=6), tmp_path)
    comparison = compare_runs([run, run])
    table = comparison.differences
    assert set(table["quantity"]) >= {"first_mass", "norm_share", "loss", "class_sink", "cluster_auc"}
    assert (table["difference"] == 0).all()
    assert (table["low"] <= 0).all()
    assert (table["high"] >= 0).all()
    assert not table["beyond"].any()
    assert table["effect"].dropna().eq(0).all()
    texts = {finding.topic: finding.text for finding in side_findings(comparison)}
    assert "0 have an interval without 0" in texts["How much differs"]
    assert texts["How much differs"].endswith(
        "0 are beyond the band that holds all of them together at 95%. As it should be: nothing differs."
    )
    assert texts["What else differs"] == "These are runs of one checkpoint on the same tokens."
    assert "that may be nothing" not in " ".join(texts.values())


def shuffled():
    order = np.random.default_rng(0).permutation(len(DOCUMENTS))
    return [DOCUMENTS[place] for place in order]


@pytest.mark.parametrize(
    "documents",
    [shuffled(), [*DOCUMENTS, "one more", "and another"], ["one more", *shuffled()]],
    ids=["other order", "more", "both"],
)
def test_the_same_of_the_same_documents_differs_by_nothing(documents, fast):
    """Rounding may differ, where other documents were added up beside them."""
    table = compare_runs([made_run("one"), made_run("other", documents=documents)]).differences
    assert (table["n_documents"] == 12).all()
    assert table["difference"].abs().max() < 1e-12
    assert not table["beyond"].any()


@pytest.mark.parametrize("documents", [shuffled(), [*DOCUMENTS, "one more"]], ids=["other order", "more"])
def test_order_and_number_of_the_others_documents_change_nothing(documents, fast):
    one = made_run("one", seed=1)
    expected = compare_runs([one, made_run("other", seed=2)])
    found = compare_runs([one, made_run("other", seed=2, documents=documents)])
    same_numbers(found.differences, expected.differences)
    pd.testing.assert_frame_equal(found.by_depth, expected.by_depth, rtol=1e-9, atol=1e-12)


def test_more_documents_of_the_first_change_nothing(fast):
    other = made_run("other", seed=2)
    expected = compare_runs([made_run("one", seed=1), other])
    found = compare_runs([made_run("one", seed=1, documents=[*DOCUMENTS[:6], "one more", *DOCUMENTS[6:]]), other])
    same_numbers(found.differences, expected.differences)


def test_the_other_way_round_signs_turn(fast):
    one, other = made_run("one", seed=1), made_run("other", seed=2)
    there, back = compare_runs([one, other]).differences, compare_runs([other, one]).differences
    there, back = (table[table["quantity"] != "class_sink"] for table in (there, back))
    for name, turned in (("difference", "difference"), ("effect", "effect"), ("low", "high")):
        assert keyed(there)[name].to_numpy() == pytest.approx(-keyed(back)[turned].to_numpy(), abs=1e-12)


# ------------------------------------------------------------------ a planted difference
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("column", ["first_mass", "entropy", "loss", "lift_function"])
def test_a_planted_difference_is_found(column, sign, fast):
    """One column of one run is shifted, with some noise a document; all else is the same."""
    one = made_run("one")
    table = one.tables["document_stats"]
    noise = np.random.default_rng(0).normal(0, 0.01, len(DOCUMENTS))[table["document"]]
    planted = changed(made_run("other"), document_stats=table.assign(**{column: table[column] + sign * 0.1 + noise}))
    found = compare_runs([one, planted]).differences
    hit = found["quantity"] == column
    hit |= found["quantity"].eq("loss_per_character") & (column == "loss")
    assert found[hit]["beyond"].all()
    whole = found[found["quantity"].eq(column) & found["where"].eq(WHOLE)].iloc[0]
    assert whole["difference"] == pytest.approx(sign * 0.1, abs=0.01)
    assert (whole["low"], whole["high"]) == pytest.approx((sign * 0.1,) * 2, abs=0.02)
    assert sign * whole["low"] > 0
    assert sign * whole["effect"] > 5
    assert not found[~hit]["beyond"].any()
    assert (found[~hit]["difference"] == 0).all()


def test_a_planted_sink_of_a_class_is_found(fast):
    one = made_run("one")
    table = one.tables["type_stats"]
    noise = np.random.default_rng(1).normal(0, 0.1, len(table))
    shift = 0.8 * table["token_class"].isin(["article", "preposition"]) + noise
    planted = changed(made_run("other"), type_stats=table.assign(**{"lambda": table["lambda"] + shift}))
    found = keyed(compare_runs([one, planted]).differences)
    function = found.loc["class_sink", WHOLE, "", "function"]
    assert function["difference"] == pytest.approx(0.8, abs=0.1)
    assert function["beyond"]
    assert not found.loc["class_sink", WHOLE, "", "punctuation"]["beyond"]


@pytest.mark.parametrize("part", ["middle", "late"])
def test_a_difference_in_a_part_of_the_depth_is_found_there(part, fast):
    one = made_run("one", layers=6)
    table = one.tables["document_stats"]
    layers = {"middle": (2, 3), "late": (4, 5)}[part]
    planted = table.assign(entropy=table["entropy"] + 0.1 * table["layer"].isin(layers))
    comparison = compare_runs([one, changed(made_run("other", layers=6), document_stats=planted)])
    rows = keyed(comparison.differences).loc["entropy"]["difference"].droplevel(["gauge", "token_class"])
    assert rows.to_dict() == pytest.approx(
        {WHOLE: 0.1 / 3, **{place: 0.1 * (place == part) for place in ("early", "middle", "late")}}, abs=1e-12
    )
    depths = comparison.by_depth
    own = depths[depths["quantity"] == "entropy"].set_index("depth")["difference"]
    assert own.to_numpy() == pytest.approx([0.1 * (layer in layers) for layer in range(6)], abs=1e-12)


# ------------------------------------------------------------------ the whole
def test_the_tables_of_a_pair(pair):
    assert set(pair.tables) == {"differences", "values", "by_depth", "by_rank", "differing", "claims"}
    assert pair.tables["claims"].columns.tolist() == ["claim", "title", "one", "other"]
    assert pair.tables["claims"]["one"].tolist() == [
        pair.ledgers[0].verdict(one) for one in pair.tables["claims"]["claim"]
    ]
    assert repr(pair) == "Comparison(one, other: 12 documents)"
    assert not keyed(pair.differences).index.has_duplicates
    assert set(pair.values["run"]) == {"one", "other"}
    assert len(pair.values) == 2 * len(pair.differences)
    assert pair.whole("first_mass")["estimate_a"] == pair.differences["estimate_a"].iloc[0]
    assert pair.whole("class_sink", token_class="function")["n_types"] == 8
    assert pair.whole("nothing") is None


def test_three_runs_are_each_held_against_the_first(fast):
    runs = [made_run(name, layers=3 + at, seed=at) for at, name in enumerate("abc")]
    table = compare_runs(runs).differences
    assert set(table["a"]) == {"a"}
    for other, run in zip("bc", runs[1:], strict=True):
        own = table[table["b"] == other].reset_index(drop=True)
        pairwise = compare_runs([runs[0], run]).differences
        same_numbers(own, pairwise)


def test_ranks_of_three(fast):
    """Planted: the second gives position 0 most of its attention, then the third."""
    runs = [made_run(name) for name in "abc"]
    shifted = [
        changed(run, document_stats=run.tables["document_stats"].assign(first_mass=value))
        for run, value in zip(runs, (0.1, 0.9, 0.4), strict=True)
    ]
    values = compare_runs(shifted).values
    own = values[(values["quantity"] == "first_mass") & (values["where"] == WHOLE)]
    assert own.set_index("run")["rank"].to_dict() == {"a": 3, "b": 1, "c": 2}


def test_other_tokens_have_a_loss_a_character_alone(fast):
    one = made_run("one")
    other = changed(made_run("other", seed=1), corpus={"tokens_sha256": "3" * 64})
    quantities = set(compare_runs([one, other]).differences["quantity"])
    assert "loss_per_character" in quantities
    assert "loss" not in quantities
    assert "loss" in set(compare_runs([one, made_run("other", seed=1)]).differences["quantity"])


def test_fewer_than_five_documents_have_no_interval(fast):
    few = DOCUMENTS[:4]
    comparison = compare_runs([made_run("one", documents=few), made_run("other", documents=few, seed=1)])
    table = comparison.differences
    assert table["low"].isna().all()
    assert not table["beyond"].any()
    assert table["difference"].notna().all()
    texts = {finding.topic: finding.text for finding in side_findings(comparison)}
    assert texts["How much differs"].startswith(
        "There is no interval: five documents are needed, and these runs share 4 documents."
    )
    assert "without an interval" in texts["Sinks"]


def test_words_have_an_interval_even_where_documents_are_few(tmp_path, fast):
    few = DOCUMENTS[:3]
    one = with_words(made_run("one", documents=few), tmp_path / "one")
    other = with_words(made_run("other", documents=few), tmp_path / "other", seed=1)
    table = compare_runs([one, other]).differences
    assert set(table[table["low"].notna()]["quantity"]) == {"cluster_auc"}
    assert (table[table["quantity"] == "cluster_auc"]["n_types"] == len(nouns())).all()


def test_runs_that_say_nothing_by_document_can_still_be_looked_at(fast):
    """Those of a single probe, for instance: maps of heads are all that there is."""
    one, other = (made_run(name, without=("document_stats", "split", "type_stats")) for name in ("one", "other"))
    comparison = compare_runs([one, other])
    assert len(comparison.differences) == len(comparison.values) == len(comparison.by_depth) == 0
    assert comparison.whole("first_mass") is None
    assert len(comparison.by_rank)
    assert side_findings(comparison)


# ------------------------------------------------------------------ along an axis
def test_runs_are_strung_along_their_steps(fast):
    runs = [made_run(f"at {step}", seed=step, **trained(step)) for step in (300, 100, 200)]
    comparison = compare_runs(runs, over="step")
    assert comparison.labels == ("at 100", "at 200", "at 300")
    assert comparison.along == {"at 100": 100.0, "at 200": 200.0, "at 300": 300.0}
    assert set(comparison.differences["a"]) == {"at 100"}
    assert (comparison.values["x"] == comparison.values["run"].map(comparison.along)).all()


def test_runs_are_strung_along_their_size(fast):
    runs = [made_run(f"of {n}", parameters=n) for n in (3000, 1000)]
    assert compare_runs(runs, over="params").along == {"of 1000": 1000.0, "of 3000": 3000.0}
    assert math.isnan(compare_runs(runs).values.get("x", pd.Series([math.nan])).iloc[0])

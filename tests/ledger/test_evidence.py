"""Estimates and their draws against loops over the rows of the tables."""

import math
from statistics import median
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from geomprobe.labels import CLOSED_CLASSES, GAUGES
from geomprobe.ledger import evidence
from geomprobe.ledger.evidence import Checkpoint, cells_of, checkpoints
from geomprobe.ledger.length_claims import evidence_of_edits
from geomprobe.stats.lift import norm_lift
from geomprobe.stats.resampling import Draws
from tests.ledger.made import DOCUMENTS, edits, made_run, made_trial

pytestmark = pytest.mark.usefixtures("fast")
SHARES = {"raw": 0.35, "balanced": 0.6}
SOME = (0, 1, 17)  # draws that loops look at


@pytest.fixture(scope="module")
def run():
    return made_run(share=SHARES, log_sd={"raw": 0.2, "balanced": 0.1}, tv={"raw": 0.3, "balanced": 0.4}, noise=0.2)


def rows_of(run, gauge):
    """The rows of `split` that count, as dicts."""
    table = run.tables["split"].to_dict("records")
    return [row for row in table if row["gauge"] == gauge and row["first"] == "out" and row["document"] >= 0]


def times(documents=DOCUMENTS):
    """How often each document counts: once, and as in some draws."""
    drawn = Draws.of(documents, evidence.n_draws()).documents
    return [np.ones(documents), *(drawn[draw] for draw in SOME)]


def said(found):
    """The estimate and some draws, beside `times`."""
    estimate, draws, n = found
    assert n == DOCUMENTS
    assert draws.shape == (evidence.n_draws(),)
    return [estimate, *(draws[draw] for draw in SOME)]


# ------------------------------------------------------------------ quantities of documents
@pytest.mark.parametrize("gauge", GAUGES)
def test_norm_share_is_of_sums_over_rows_without_position_0(run, gauge):
    expected = []
    for weight in times():
        norm = sum(weight[r["document"]] * r["n_rows"] * r["phi_norm"] for r in rows_of(run, gauge))
        angle = sum(weight[r["document"]] * r["n_rows"] * r["phi_angle"] for r in rows_of(run, gauge))
        expected.append(norm / (norm + angle))
    np.testing.assert_allclose(said(evidence.share_of_lengths(run, gauge)), expected, rtol=1e-12)
    assert abs(expected[0] - SHARES[gauge]) < 0.05


@pytest.mark.parametrize("gauge", GAUGES)
def test_spread_of_lengths_is_that_of_the_median_heads_keys(run, gauge):
    rows = [{**row, "k_log_mean": 2.5 + 0.1 * row["document"] + row["layer"]} for row in rows_of(run, gauge)]
    changed = SimpleNamespace(tables={"split": pd.DataFrame(rows)})
    expected = []
    for weight in times():
        spreads = []
        for head in {(row["layer"], row["q_head"]) for row in rows}:
            own = [row for row in rows if (row["layer"], row["q_head"]) == head]
            n = sum(weight[row["document"]] * row["n_keys"] for row in own)
            mean = sum(weight[row["document"]] * row["n_keys"] * row["k_log_mean"] for row in own) / n
            square = sum(
                weight[row["document"]] * row["n_keys"] * (row["k_log_sd"] ** 2 + (row["k_log_mean"] - mean) ** 2)
                for row in own
            )
            spreads.append(math.sqrt(square / n))
        expected.append(median(spreads))
    np.testing.assert_allclose(said(evidence.spread_of_lengths(changed, gauge)), expected, rtol=1e-9)


@pytest.mark.parametrize("gauge", GAUGES)
def test_distance_from_cosines_is_that_of_the_median_head(run, gauge):
    expected = []
    for weight in times():
        heads = {}
        for row in rows_of(run, gauge):
            heads.setdefault((row["layer"], row["q_head"]), []).append(
                (weight[row["document"]] * row["n_rows"], row["tv"])
            )
        expected.append(median(sum(n * tv for n, tv in own) / sum(n for n, _ in own) for own in heads.values()))
    np.testing.assert_allclose(said(evidence.distance_from_cosines(run, gauge)), expected, rtol=1e-12)


def test_one_hot_rate_is_weighed_by_what_goes_past_position_0(run):
    heads = {entry["layer"]: entry["q_heads"] for entry in run.manifest["model"]["anatomy"]}
    expected = []
    for weight in times():
        hot = past = 0.0
        for row in run.tables["document_stats"].to_dict("records"):
            if row["layer"] >= 0:
                mass = weight[row["document"]] * row["n_rows"] * row["rest_mass"] * heads[row["layer"]]
                hot, past = hot + mass * row["one_hot_rate_weighted"], past + mass
        expected.append(hot / past)
    np.testing.assert_allclose(said(evidence.one_hot(run)), expected, rtol=1e-12)


@pytest.mark.parametrize("gauge", GAUGES)
def test_edit_ratio_is_of_costs_over_the_same_documents(run, gauge):
    costs = edits({"raw": 0.02, "balanced": 0.05}, {"raw": 0.06, "balanced": 0.03}, neutral_norm=1.0)
    trial = made_trial(run, costs, noise=0.01)
    found = evidence_of_edits(Checkpoint(run, (trial,)), gauge)
    at = "" if gauge == "raw" else "@balanced"
    cost = {}
    for row in trial.tables["interventions"].to_dict("records"):
        if row["layers"] == "all" and row["document"] >= 0:
            cost[row["setting"], row["document"]] = row["delta_ce"] * row["n_tokens"]
    expected = []
    for weight in times():
        length = sum(weight[d] * cost[f"permute_norm{at}", d] for d in range(DOCUMENTS))
        angle = sum(weight[d] * cost[f"swap_angle(permute_norm){at}", d] for d in range(DOCUMENTS))
        expected.append(length / (length + angle))
    np.testing.assert_allclose(said((found.estimate, found.draws, found.n_documents)), expected, rtol=1e-12)
    assert abs(expected[0] - {"raw": 0.25, "balanced": 0.625}[gauge]) < 0.05


def test_a_cost_below_nothing_is_none_and_two_of_them_have_no_ratio(run):
    ratio = evidence_of_edits(Checkpoint(run, (made_trial(run, edits(-0.02, 0.05)),)), "raw")
    assert ratio.estimate == 0
    assert (ratio.draws == 0).all()
    ratio = evidence_of_edits(Checkpoint(run, (made_trial(run, edits(-0.02, -0.05)),)), "raw")
    assert math.isnan(ratio.estimate)
    assert np.isnan(ratio.draws).all()


def test_edits_of_some_layers_are_no_evidence(run):
    trial = made_trial(run, edits(0.02, 0.06))
    table = trial.tables["interventions"]
    trial.tables["interventions"] = table[table["layers"] != "all"]
    assert evidence_of_edits(Checkpoint(run, (trial,)), "raw") is None


# ------------------------------------------------------------------ cells
def frame_of(rows):
    return pd.DataFrame(rows, columns=["layer", "type", "token_class", "document", "zipf", "n", "x"])


def test_cells_are_sums_over_layers_of_types_with_tokens_enough():
    frame = frame_of(
        [
            (0, "the", "article", 3, 7.7, 4, 1.0),
            (1, "the", "article", 3, 7.7, 4, 2.0),
            (0, "the", "article", 9, np.nan, 6, 3.0),
            (1, "the", "article", 9, 7.7, 6, 5.0),
            (0, "that", "pronoun", 3, 7.0, 5, 1.0),
            (1, "that", "pronoun", 3, 7.0, 5, 1.0),
            (0, "that", "determiner", 9, 7.0, 4, 1.0),  # another type: 4 tokens in a layer are too few
            (1, "that", "determiner", 9, 7.0, 4, 1.0),
            (0, "whale", "content", 5, 4.0, 0, np.nan),  # no token, nor a document
            (0, "sea", "content", 9, 5.0, 10, 0.5),  # as many in one layer as 5 in each
        ]
    )
    cells = cells_of(frame, "n", ("x",), 5)
    assert cells.kinds["type"].tolist() == ["the", "that", "sea"]
    assert cells.kinds["token_class"].tolist() == ["article", "pronoun", "content"]
    np.testing.assert_array_equal(cells.kinds["zipf"], [7.7, 7.0, 5.0])
    np.testing.assert_array_equal(cells.documents, [3, 9])
    np.testing.assert_array_equal(cells.n, [[8, 12], [10, 0], [0, 10]])
    np.testing.assert_array_equal(cells.total["x"], [[12, 48], [10, 0], [0, 5]])
    np.testing.assert_allclose(cells.values["x"], [3, 1, 0.5])
    np.testing.assert_array_equal(cells.of_class(["article", "content"]), [True, False, True])


def some_cells(seed=0, function=12, content=18, documents=7):
    rng = np.random.default_rng(seed)
    kinds = [(f"f{i}", "preposition") for i in range(function)] + [(f"c{i}", "content") for i in range(content)]
    rows = []
    for place, (name, token_class) in enumerate(kinds):
        own = rng.normal(0.3 * (token_class != "content"), 0.3)
        for document in range(documents):
            n = rng.poisson(40 / (1 + place % 12))
            rows.append((0, name, token_class, document, 3 + place % 5, n, own + rng.normal(0, 0.2)))
    return cells_of(frame_of(rows), "n", ("x",), 5)


def test_a_contrast_is_of_types_that_weigh_alike():
    cells = some_cells()
    inside = np.flatnonzero(cells.of_class(["preposition"]))
    content = np.flatnonzero(cells.of_class(["content"]))
    found = evidence.contrast(cells, CLOSED_CLASSES)
    values = [cells.total["x"][at].sum() / cells.n[at].sum() for at in range(len(cells.kinds))]
    expected = sum(values[at] for at in inside) / len(inside) - sum(values[at] for at in content) / len(content)
    assert math.isclose(found.estimate["x"], expected, rel_tol=1e-12)
    assert (found.n_types, found.n_documents) == (len(inside), 7)
    pooled = cells.total["x"][inside].sum() / cells.n[inside].sum()
    pooled -= cells.total["x"][content].sum() / cells.n[content].sum()
    assert abs(pooled - expected) > 0.02  # tokens would say something else


def test_each_draw_of_a_contrast_draws_documents_and_both_groups_of_types():
    cells = some_cells()
    found = evidence.contrast(cells, CLOSED_CLASSES)
    drawn = Draws.of(7, evidence.n_draws())
    for draw in SOME:
        means = []
        for group, names in enumerate((["preposition"], ["content"])):
            members = np.flatnonzero(cells.of_class(names))
            weights = drawn.types(len(members), group)[draw]
            values = []
            for weight, at in zip(weights, members, strict=True):
                n = sum(drawn.documents[draw] * cells.n[at])
                values += [sum(drawn.documents[draw] * cells.total["x"][at]) / n] * int(weight) if n else []
            means.append(np.mean(values))
        np.testing.assert_allclose(found.draws["x"][draw], means[0] - means[1], rtol=1e-10)


def test_a_contrast_has_its_permutation_test_unless_it_is_not_asked_for():
    cells = some_cells()
    assert 0.001 <= evidence.contrast(cells, CLOSED_CLASSES).p["x"] < 0.05
    assert math.isnan(evidence.contrast(cells, CLOSED_CLASSES, test=False).p["x"])


def test_a_contrast_needs_both_groups():
    assert evidence.contrast(some_cells(function=0), CLOSED_CLASSES) is None
    assert evidence.contrast(some_cells(content=0), CLOSED_CLASSES) is None


def test_the_types_of_a_small_class_are_drawn_over_documents_alone():
    cells = some_cells(function=3)
    found = evidence.single_types(cells, ["preposition"], "x")
    assert [name for name, *_ in found] == ["f0", "f1", "f2"]
    content = np.flatnonzero(cells.of_class(["content"]))
    drawn = Draws.of(7, evidence.n_draws()).documents
    for at, (_, estimate, draws) in enumerate(found):
        usual = np.mean([cells.total["x"][c].sum() / cells.n[c].sum() for c in content])
        assert math.isclose(estimate, cells.total["x"][at].sum() / cells.n[at].sum() - usual, rel_tol=1e-12)
        for draw in SOME:
            mean = [drawn[draw] @ cells.total["x"][c] / (drawn[draw] @ cells.n[c]) for c in (at, *content)]
            np.testing.assert_allclose(draws[draw], mean[0] - np.mean(mean[1:]), rtol=1e-10)


# ------------------------------------------------------------------ norm_lift
def test_places_are_those_of_the_cells_types_and_documents():
    frame = frame_of([(0, "a", "content", 2, 4.0, 9, 1.0), (0, "b", "content", 5, 4.0, 9, 1.0)])
    table = pd.DataFrame(
        [
            *(("b", "content", 5, 1, 7), ("b", "content", 5, 0, 2), ("a", "content", 2, 2, 9)),
            *(("b", "pronoun", 5, 1, 99), ("gone", "content", 5, 1, 99), ("a", "content", 3, 1, 99)),
            ("a", "content", 77, 1, 99),  # another type, or a document without any cell
        ],
        columns=["type", "token_class", "document", "bucket", "n"],
    )
    found = evidence.places_of(SimpleNamespace(tables={"type_places": table}), cells_of(frame, "n", ("x",), 5))
    np.testing.assert_array_equal(found, [[[0, 0, 9], [0, 0, 0]], [[0, 0, 0], [2, 7, 0]]])


def test_a_lift_is_that_of_the_class_and_its_draws_make_the_fit_anew():
    run = made_run(lift=0.08, spread=0.3)
    frame = run.tables["type_split"]
    cells = cells_of(frame[frame["gauge"] == "raw"], "n", ("k_log_mean",), 5)
    asked = {"function": CLOSED_CLASSES, "article": ("article",), "particle": ("particle",)}
    found = evidence.lifts_of(run, cells, asked)
    assert list(found) == ["function", "article"]
    known = np.isfinite(cells.kinds["zipf"]).to_numpy()
    content = cells.of_class(["content"])[known]
    places, zipf = evidence.places_of(run, cells)[known], cells.kinds["zipf"].to_numpy()[known]
    n, total = cells.n[known], cells.total["k_log_mean"][known]
    drawn = Draws.of(DOCUMENTS, evidence.n_draws())
    for name, (result, _) in found.items():
        own = cells.of_class(asked[name])[known]
        log = total.sum(1) / n.sum(1)
        whole = norm_lift(log[None], zipf, places.sum(1), content).value[0, own].mean()
        assert math.isclose(result.estimate["norm_lift"], whole, rel_tol=1e-9)
        assert result.n_types == own.sum()
        for draw in SOME:
            documents, weights = drawn.documents[draw], np.ones(len(zipf))
            weights[content] = drawn.types(int(content.sum()), 1)[draw]
            log = (total @ documents) / (n @ documents)
            buckets = np.einsum("d,tdb->tb", documents, places)
            values = norm_lift(log[None], zipf, buckets, content, weight=weights).value[0, own]
            expected = np.average(values, weights=drawn.types(int(own.sum()), 0)[draw])
            np.testing.assert_allclose(result.draws["norm_lift"][draw], expected, rtol=1e-7)


def test_types_more_frequent_than_any_content_type_are_counted():
    run = made_run()
    frame = run.tables["type_split"]
    frame = frame[frame["gauge"] == "raw"]
    more = frame["type"].isin(["article0", "preposition2"])
    cells = cells_of(frame.assign(zipf=frame["zipf"] + 3 * more), "n", ("k_log_mean",), 5)
    found = evidence.lifts_of(run, cells, {"function": CLOSED_CLASSES, "article": ("article",)})
    assert {name: extrapolated for name, (_, extrapolated) in found.items()} == {"function": 2, "article": 1}


# ------------------------------------------------------------------ checkpoints
def test_runs_of_one_checkpoint_belong_together():
    one, other = made_run("one"), made_run("other")
    trial = made_trial(one, edits(0.1, 0.1))
    found = checkpoints([trial, other, one])
    assert [(each.analysis, each.trials) for each in found] == [(one, (trial,)), (other, ())]
    assert [each.name for each in found] == ["one", "other"]


@pytest.mark.parametrize("changed", [{"dtype": "bfloat16"}, {"revision": "v2"}, {"sha256": "1" * 64}, {"id": "else"}])
def test_another_dtype_revision_or_weights_are_another_checkpoint(changed):
    run = made_run()
    found = checkpoints([run, made_trial(run, edits(0.1, 0.1), **changed)])
    assert [len(each.runs) for each in found] == [1, 1]
    assert found[1].analysis is None


def test_two_analyses_of_one_checkpoint_are_two_reports_on_the_same_edits():
    one, again = made_run(), made_run(seed=1)
    trial = made_trial(one, edits(0.1, 0.1))
    found = checkpoints([one, again, trial])
    assert len(found) == 2
    for each, run in zip(found, (one, again), strict=True):
        assert each.analysis is run
        assert each.trials == (trial,)

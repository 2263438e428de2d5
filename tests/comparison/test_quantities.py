"""Every quantity over documents against loops over the rows: over all documents, in single draws, of chosen layers."""

import math

import numpy as np
import pandas as pd
import pytest

from geomprobe import pooling
from geomprobe.comparison.quantities import QUANTITIES
from geomprobe.labels import GAUGES
from geomprobe.pooling import ByDocument, Pooled, ratio
from geomprobe.stats.resampling import Draws
from tests.comparison import oracle
from tests.comparison.made import COLUMNS, DOCUMENTS, changed, made_run

NAMES = sorted({one.name for one in QUANTITIES})
GAUGED = {"norm_share": oracle.share, "k_log_sd": oracle.spread, "tv": oracle.distance}
CHOICES = ([0, 1, 2, 3], [2], [1, 3])


def expected(quantity, run, layers, times):
    """What the loops say of it."""
    if quantity.gauge:
        return GAUGED[quantity.name](run, quantity.gauge, layers, times)
    if quantity.name == "loss":
        return oracle.mean_of_rows(run, "loss", [-1], times)
    if quantity.name == "loss_per_character":
        return oracle.loss_of_characters(run, times)
    return oracle.mean_of_rows(run, quantity.name, layers, times)


def key(quantity):
    """Its name, for a test's."""
    return f"{quantity.name}-{quantity.gauge}".rstrip("-")


@pytest.fixture(scope="module")
def run():
    return made_run(layers=4, seed=3)


@pytest.mark.parametrize("quantity", QUANTITIES, ids=key)
@pytest.mark.parametrize("layers", CHOICES, ids=str)
def test_a_quantity_is_what_loops_over_rows_say(quantity, layers, run):
    pooled = quantity.pooled(run, layers)
    assert pooled.data.documents.tolist() == list(range(len(DOCUMENTS)))
    assert pooled.estimate == pytest.approx(expected(quantity, run, layers, oracle.once(DOCUMENTS)), rel=1e-12)
    draws, times = pooled.draws(25), Draws.of(len(DOCUMENTS), 25).documents
    assert draws.shape == (25,)
    for index in (0, 1, 11, 24):
        drawn = oracle.drawn(DOCUMENTS, times[index])
        assert draws[index] == pytest.approx(expected(quantity, run, layers, drawn), rel=1e-10), index


@pytest.mark.parametrize("quantity", QUANTITIES, ids=key)
def test_a_quantity_of_some_documents_in_another_order(quantity, run):
    chosen = [7, 2, 9, 0]
    pooled = quantity.pooled(run, [0, 1, 2, 3]).only(chosen)
    assert pooled.data.documents.tolist() == chosen
    names = [DOCUMENTS[place] for place in chosen]
    assert pooled.estimate == pytest.approx(expected(quantity, run, range(4), oracle.once(names)), rel=1e-12)
    alone = pooled.weighed(np.eye(4))
    for name, value in zip(names, alone, strict=True):
        assert value == pytest.approx(expected(quantity, run, range(4), oracle.once([name])), rel=1e-10)


def test_every_column_and_gauge_is_compared_once():
    keys = [(one.name, one.gauge) for one in QUANTITIES]
    assert len(keys) == len(set(keys))
    assert {name for name, gauge in keys if not gauge} == {*COLUMNS, "loss", "loss_per_character"}
    assert {(name, gauge) for name, gauge in keys if gauge} == {(name, gauge) for name in GAUGED for gauge in GAUGES}
    assert {one.unit for one in QUANTITIES} == {"share", "nats", "logits", "times", "log length"}


def test_a_layer_weighs_as_much_as_another_however_much_it_says(run):
    """Means over layers are of layers: one that says nothing of most documents counts as much."""
    table = run.tables["document_stats"].copy()
    table.loc[(table["layer"] == 1) & (table["document"] > 3), "entropy"] = np.nan
    partly = changed(run, document_stats=table)
    pooled = pooling.mean_over_rows(partly, "entropy", [0, 1, 2])
    times = oracle.once(DOCUMENTS)
    assert pooled.estimate == pytest.approx(oracle.mean_of_rows(partly, "entropy", [0, 1, 2], times), rel=1e-12)


def test_what_a_document_does_not_say_is_left_out(run):
    table = run.tables["document_stats"].copy()
    table.loc[table["document"] == 4, "entropy"] = np.nan
    table.loc[table["document"] == 6, "n_rows"] = 0
    pooled = pooling.mean_over_rows(changed(run, document_stats=table), "entropy", [0, 1])
    assert pooled.data.documents.tolist() == [number for number in range(len(DOCUMENTS)) if number not in (4, 6)]


@pytest.mark.parametrize("quantity", QUANTITIES, ids=key)
def test_a_run_that_does_not_say_it_has_none(quantity, run):
    none = changed(run, document_stats=run.tables["document_stats"].iloc[:0], split=run.tables["split"].iloc[:0])
    assert quantity.pooled(none, [0, 1]) is None
    silent = run.tables["document_stats"].assign(**dict.fromkeys((*COLUMNS, "loss"), np.nan))
    spoken = run.tables["split"].assign(phi_norm=np.nan, tv=np.nan, k_log_sd=np.nan)
    assert quantity.pooled(changed(run, document_stats=silent, split=spoken), [0, 1]) is None


@pytest.mark.parametrize("gauge", GAUGES)
def test_quantities_of_a_gauge_without_rows_are_none(gauge, run):
    table = run.tables["split"]
    other = changed(run, split=table[table["gauge"] != gauge])
    found = {key(one): one.pooled(other, [0, 1, 2]) is None for one in QUANTITIES if one.gauge}
    assert found == {key(one): one.gauge == gauge for one in QUANTITIES if one.gauge}


@pytest.mark.parametrize("bos", [False, True])
def test_characters_are_of_the_tokens_of_the_text(bos):
    """Four tokens of text a window, eight characters: two a token, and BOS is none of them."""
    run = made_run(documents=("a", "b"))
    windows = [{"document": number, "char_start": 0, "char_end": 8} for number in (0, 1)]
    table = run.tables["document_stats"]
    told = table.assign(loss=table["loss"].where(table["layer"] >= 0, 3.0))
    run = changed(run, corpus={"window": 4 + bos, "windows": windows, "bos": bos}, document_stats=told)
    (quantity,) = (one for one in QUANTITIES if one.name == "loss_per_character")
    assert quantity.pooled(run, []).estimate == pytest.approx(1.5, rel=1e-12)


# ------------------------------------------------------------------ pooling
def test_one_hot_rows_weigh_by_what_they_look_at_past_position_0(run):
    hot = mass = 0.0
    for row in oracle.rows(run.tables["document_stats"]):
        if row["layer"] >= 0:
            weight = 2 * row["rest_mass"] * row["n_rows"]
            hot += weight * row["one_hot_rate_weighted"]
            mass += weight
    assert pooling.one_hot(run).estimate == pytest.approx(hot / mass, rel=1e-12)


def test_a_ratio_to_nothing_is_none():
    data = ByDocument({"above": np.array([1.0, 2.0]), "below": np.array([0.0, 4.0])})
    pooled = Pooled(data, ratio("above", "below"))
    assert pooled.estimate == 0.75
    assert math.isnan(pooled.weighed(np.array([[2.0, 0.0]]))[0])
    assert pooled.weighed(np.array([[0.0, 2.0], [1.0, 1.0]])).tolist() == [0.5, 0.75]


def test_documents_need_not_be_numbered_from_0():
    frame = pd.DataFrame({"document": [9, 4, 9], "layer": [0, 0, 1], "x": [1.0, 2.0, 3.0]})
    made = pooling._by_document(frame, ("x",), ("layer",))
    assert made.documents.tolist() == [4, 9]
    assert made.sums["x"].tolist() == [[2.0, 1.0], [0.0, 3.0]]
    assert pooling._totals(frame, ("x",)).sums["x"].tolist() == [2.0, 4.0]

"""Each claim decided each way, on checkpoints made up for it."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from geomprobe.labels import GAUGES
from geomprobe.ledger.endpoint import VERDICTS
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.ledger import _whole, make_ledger
from geomprobe.ledger.thresholds import thresholds
from tests.ledger.made import LAYERS, checkpoint, edits, made_run, made_trial

pytestmark = pytest.mark.usefixtures("fast")
TYPES = ("type_stats", "type_split", "type_places")
# The tables that a claim has no need of.
OTHERS = {
    "C1": (*TYPES, "document_stats", "logits"),
    "C2a": ("document_stats", "logits"),
    "C2b": ("type_split", "type_places", "document_stats", "logits", "split"),
    "C2c": ("type_places", "document_stats", "logits"),
    "C2": ("document_stats", "logits"),
    "C3": (*TYPES, "document_stats", "logits"),
    "C6s": (*TYPES, "document_stats", "logits", "split"),
    "C7c": (*TYPES, "split"),
    "C8": (*TYPES, "document_stats", "logits", "split"),
}
LONG, TURNED = edits(0.09, 0.01), edits(0.01, 0.09)  # shuffled lengths cost most; moved angles do


def decided(claim, costs=None, **planted):
    """The row of a claim: verdict, sentence; and the evidence for it."""
    ledger = make_ledger(checkpoint(costs, without=OTHERS[claim], **planted))
    row = ledger.claims.set_index("claim").loc[claim]
    assert ledger.verdict(claim) == row["verdict"]
    return row["verdict"], row["sentence"], ledger.evidence[ledger.evidence["claim"] == claim]


def verdict(claim, costs=None, **planted):
    return decided(claim, costs, **planted)[0]


def at(raw, balanced):
    return {"raw": raw, "balanced": balanced}


# ------------------------------------------------------------------ C1
@pytest.mark.parametrize(
    ("costs", "planted", "expected"),
    [
        (LONG, {"share": 0.8}, "supported"),
        (TURNED, {"share": 0.2}, "refuted"),
        (TURNED, {"share": 0.2, "rho": -0.3}, "refuted"),  # the sign is asked of support alone
        (LONG, {"share": 0.8, "rho": -0.3}, "inconclusive"),
        (LONG, {"share": 0.8, "rho": np.nan}, "inconclusive"),
        (TURNED, {"share": 0.8}, "inconclusive"),  # share and edits say different things
        (LONG, {"share": 0.2}, "inconclusive"),
        (LONG, {"share": 0.5, "noise": 0.2}, "inconclusive"),
        (edits(0.05, 0.05), {"share": 0.8}, "inconclusive"),
        (edits(-0.05, -0.05), {"share": 0.8}, "inconclusive"),  # no edit costs anything
        (edits(0.05, -0.05), {"share": 0.8}, "supported"),
        ({**LONG, **edits(at(0.09, 0.01), at(0.01, 0.09))}, {"share": at(0.8, 0.2)}, "not_identified"),
        (LONG, {"share": at(0.8, 0.5), "noise": 0.2}, "not_identified"),  # one gauge says it, the other nothing
        (LONG, {"share": 0.8, "rho": at(0.3, -0.3)}, "not_identified"),
        (TURNED, {"share": at(0.2, 0.5), "noise": 0.2}, "not_identified"),
    ],
)
def test_length_or_angle(costs, planted, expected):
    assert verdict("C1", costs, **planted) == expected


@pytest.mark.parametrize("documents", [4, 5])
def test_length_or_angle_needs_five_documents(documents):
    found = verdict("C1", TURNED, documents=documents)
    assert found == ("not_tested" if documents < 5 else "refuted")
    run = made_run(without=OTHERS["C1"])
    ledger = make_ledger(Checkpoint(run, (made_trial(run, TURNED, documents=documents),)))
    assert ledger.verdict("C1") == ("not_tested" if documents < 5 else "refuted")


def test_length_or_angle_without_edits_says_which_to_make():
    said, sentence, rows = decided("C1")
    assert said == "not_tested"
    wanted = "--edit permute_norm --edit swap_angle:permute_norm --edit permute_norm@balanced"
    assert f"{wanted} --edit swap_angle:permute_norm@balanced" in sentence
    assert not rows["primary"].any()
    assert set(rows["quantity"]) == {"norm_share", "norm_attention_rho"}  # shown all the same
    raw = {name: cost for name, cost in TURNED.items() if "@" not in name}
    said, sentence, _ = decided("C1", raw)
    assert said == "not_tested"
    assert "--edit permute_norm@balanced --edit swap_angle:permute_norm@balanced" in sentence
    assert "--edit permute_norm " not in sentence


def test_edits_of_one_layer_decide_nothing():
    run = made_run(without=OTHERS["C1"])
    trial = made_trial(run, TURNED)
    table = trial.tables["interventions"]
    trial.tables["interventions"] = table.assign(layers=table["layers"].replace("all", "1"))
    assert make_ledger(Checkpoint(run, (trial,))).verdict("C1") == "not_tested"


def test_edits_of_several_trials_come_together():
    """A trial in each gauge."""
    run = made_run(without=OTHERS["C1"])
    trials = [
        made_trial(run, {n: c for n, c in TURNED.items() if ("@" in n) == balanced}) for balanced in (True, False)
    ]
    assert make_ledger(Checkpoint(run, tuple(trials))).verdict("C1") == "refuted"


@pytest.mark.parametrize("claim", ["C1", "C3"])
def test_without_the_probe_split_nothing_is_said_of_lengths(claim):
    run = made_run(norm=True, without=(*OTHERS[claim], "split"))
    ledger = make_ledger(Checkpoint(run, (made_trial(run, TURNED),)))
    assert ledger.verdict(claim) == "not_tested"
    assert "split was not run" in ledger.claims.set_index("claim").loc[claim, "sentence"]


# ------------------------------------------------------------------ C2a
@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ({"lift": 0.1}, "supported"),
        ({"lift": 0.0}, "refuted"),
        ({"lift": -0.1}, "refuted"),
        ({"lift": 0.034}, "inconclusive"),  # above nothing, but less than 5 %
        ({"lift": 0.1, "spread": 3.0}, "inconclusive"),
        ({"lift": at(0.1, 0.0)}, "not_identified"),
        ({"lift": at(0.0, 0.1)}, "not_identified"),
        ({"lift": at(0.1, 0.034)}, "not_identified"),
        ({"lift": at(0.1, 0.0), "norm": True, "gain_cv": 0.0}, "supported"),  # lengths are identified
        ({"lift": at(0.1, 0.0), "norm": True, "gain_cv": 0.3}, "not_identified"),
        ({"lift": 0.1, "function": 9}, "not_tested"),
        ({"lift": 0.1, "function": 10}, "supported"),
        ({"lift": 0.1, "documents": 4}, "not_tested"),
        ({"lift": 0.1, "content": 0}, "not_tested"),
        ({"lift": 0.1, "function": 0}, "not_tested"),
    ],
)
def test_inflated_lengths(planted, expected):
    assert verdict("C2a", **planted) == expected


@pytest.mark.parametrize("table", ["type_split", "type_places"])
def test_inflated_lengths_need_their_tables(table):
    ledger = make_ledger(Checkpoint(made_run(lift=0.1, without=(*OTHERS["C2a"], table))))
    assert ledger.verdict("C2a") == "not_tested"


def test_of_a_class_of_few_types_a_lift_is_shown_and_not_decided():
    said, sentence, rows = decided("C2a", lift=0.1, function=8)
    assert said == "not_tested"
    assert "needs 10 types; this text has 8" in sentence
    assert not rows["primary"].any()
    assert (rows["rule"] == "").all()
    assert rows["estimate"].between(0.08, 0.12).all()


# ------------------------------------------------------------------ C2b
@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ({"sink": 0.5}, "supported"),
        ({"sink": (0.0, 0.5, -0.5)}, "supported"),  # a third is enough
        ({"sink": 0.0}, "refuted"),
        ({"sink": -0.5}, "refuted"),
        ({"sink": 0.14}, "inconclusive"),
        ({"sink": (0.14, 0.0, 0.0)}, "inconclusive"),  # all thirds are needed against it
        ({"sink": 0.5, "spread": 6.0}, "inconclusive"),
        ({"sink": 0.5, "function": 9}, "not_tested"),
        ({"sink": 0.5, "documents": 4}, "not_tested"),
        ({"sink": 0.5, "content": 0}, "not_tested"),
        ({"sink": 0.5, "function": 0}, "not_tested"),
    ],
)
def test_function_sinks(planted, expected):
    assert verdict("C2b", **planted) == expected


def test_function_sinks_need_a_text_and_its_table():
    run = made_run(sink=0.5, without=OTHERS["C2b"])
    assert make_ledger(Checkpoint(run)).verdict("C2b") == "supported"
    places = replace(run, manifest={**run.manifest, "corpus": {**run.manifest["corpus"], "kind": "images"}})
    assert make_ledger(Checkpoint(places)).verdict("C2b") == "not_tested"
    gone = replace(run, tables={key: table for key, table in run.tables.items() if key != "type_stats"})
    assert make_ledger(Checkpoint(gone)).verdict("C2b") == "not_tested"


def test_each_third_of_the_depth_is_an_endpoint_and_small_classes_are_told_type_by_type():
    _, _, rows = decided("C2b", sink=(0.5, 0.0, -0.5))
    primary = rows[rows["primary"]]
    assert primary["where"].tolist() == [f"layer {layer}" for layer in range(LAYERS)]
    assert primary["verdict"].tolist() == ["supported", "refuted", "refuted"]
    np.testing.assert_allclose(primary["estimate"], (0.5, 0, -0.5), atol=0.02)
    small = rows[rows["token_class"].str.startswith("article")]
    assert len(small) == 3 * LAYERS
    assert (small["n_types"] == 1).all()
    assert (small["verdict"] == "").all()
    assert (rows.loc[rows["token_class"] == "preposition", "n_types"] == 11).all()


# ------------------------------------------------------------------ C2c
@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ({"part": 0.8}, "supported"),
        ({"part": 0.1}, "refuted"),
        ({"part": -0.5}, "refuted"),  # lengths work against it
        ({"part": 0.4}, "inconclusive"),
        ({"part": at(0.8, 0.1)}, "not_identified"),
        ({"part": at(0.8, 0.4)}, "not_identified"),
        ({"part": at(0.8, 0.1), "norm": True, "gain_cv": 0.0}, "supported"),
        ({"part": 0.8, "sink": 0.0}, "not_tested"),  # nothing to explain
        ({"part": 0.8, "sink": -0.5}, "not_tested"),
        ({"part": 0.8, "lift": -0.1}, "not_tested"),  # its keys are shorter
        ({"part": 0.8, "lift": at(0.1, -0.1)}, "not_tested"),
        ({"part": 0.8, "sink": (0.5, 0.0, 0.0)}, "supported"),
        ({"part": 0.1, "sink": (0.5, 0.0, 0.0)}, "refuted"),
    ],
)
def test_because_of_length(planted, expected):
    assert verdict("C2c", **{"sink": 0.5, "lift": 0.1, **planted}) == expected


def test_because_of_length_needs_its_table():
    run = made_run(sink=0.5, lift=0.1, part=0.8, without=(*OTHERS["C2c"], "type_split"))
    assert make_ledger(Checkpoint(run)).verdict("C2c") == "not_tested"


def test_because_of_length_is_asked_only_where_there_is_a_sink():
    _, _, rows = decided("C2c", sink=(0.5, 0.0, 0.5), lift=0.1, part=0.8)
    primary = rows[rows["primary"]]
    assert list(zip(primary["where"], primary["gauge"], strict=True)) == [
        *(("layer 0", gauge) for gauge in GAUGES),
        *(("layer 2", gauge) for gauge in GAUGES),
    ]


def test_what_longer_keys_do_is_shown_beside_it():
    costs = {"scale_class(function, 0.5)": 0.1, "scale_class(function, 0.5)@balanced": 0.1}
    _, _, rows = decided("C2c", costs, sink=0.5, lift=0.1, part=0.8)
    doses = rows[rows["quantity"] == "delta_class_sink"]
    assert doses["gauge"].tolist() == list(GAUGES)
    assert (doses["estimate"] == 0.25).all()
    assert not doses["primary"].any()


# ------------------------------------------------------------------ C2 as a whole
@pytest.mark.parametrize(
    ("planted", "expected", "sentence"),
    [
        ({"lift": 0.1, "sink": 0.5, "part": 0.8}, "supported", "are so because of it"),
        ({"lift": 0.0, "sink": 0.5, "part": 0.8}, "refuted", "but not through length"),
        ({"lift": 0.1, "sink": 0.5, "part": 0.1}, "refuted", "but not through length"),
        ({"lift": 0.0, "sink": 0.0}, "refuted", "Length does not make sinks"),
        ({"lift": 0.1, "sink": 0.0}, "inconclusive", "are no sinks here"),
        ({"lift": 0.034, "sink": 0.5, "part": 0.4}, "inconclusive", "is not shown"),
        ({"lift": at(0.1, 0.0), "sink": 0.14, "part": 0.4}, "not_identified", "could be decided"),
        ({"lift": 0.034, "sink": 0.14, "part": 0.4}, "inconclusive", "could be decided"),
    ],
)
def test_sinks_because_of_length_as_a_whole(planted, expected, sentence):
    said, told, rows = decided("C2", **planted)
    assert said == expected
    assert sentence in told
    assert not len(rows)  # all evidence is of its parts


@pytest.mark.parametrize("parts", list(itertools.product(VERDICTS, repeat=3)))
def test_the_whole_is_supported_by_all_parts_and_refuted_by_length_alone(parts):
    lengths, sinks, why = parts
    said, sentence = _whole(dict(zip(("C2a", "C2b", "C2c"), parts, strict=True)))
    assert (said == "supported") == (set(parts) == {"supported"})
    assert (said == "refuted") == (lengths == "refuted" or why == "refuted")
    if set(parts) == {"not_tested"}:
        assert said == "not_tested"
    assert ("are sinks here, but not through length" in sentence) == (said == "refuted" and sinks == "supported")
    assert sentence.endswith(".")


# ------------------------------------------------------------------ C3
LEVEL = {"neutral_norm": 0.001, "scalar_gain": -0.001}
CONSTANT = {"norm": True, "gain_cv": 0.2, "log_sd": 0.01, "tv": 0.01}


@pytest.mark.parametrize(
    ("costs", "planted", "expected"),
    [
        (LEVEL, {}, "supported"),
        (LEVEL, {"log_sd": 0.2}, "refuted"),
        (LEVEL, {"tv": 0.2}, "refuted"),
        (None, {"log_sd": 0.2}, "refuted"),  # needs no edit
        (LEVEL, {"log_sd": 0.05}, "inconclusive"),
        (LEVEL, {"tv": 0.05}, "inconclusive"),
        (None, {}, "inconclusive"),
        ({"neutral_norm": 0.001}, {}, "inconclusive"),
        ({"scalar_gain": 0.001}, {}, "inconclusive"),
        ({**LEVEL, "neutral_norm": 0.0049}, {}, "inconclusive"),  # TOST: the interval reaches over the margin
        ({**LEVEL, "neutral_norm": 0.02}, {}, "inconclusive"),  # a cost alone never refutes
        ({**LEVEL, "scalar_gain": -0.02}, {}, "inconclusive"),  # nor is a gain no change
        (LEVEL, {"log_sd": at(0.01, 0.2)}, "not_identified"),
        (LEVEL, {"log_sd": at(0.2, 0.01)}, "not_identified"),
        (LEVEL, {"tv": at(0.01, 0.05)}, "not_identified"),
        (LEVEL, {"log_sd": at(0.01, 0.2), "gain_cv": 0.0}, "supported"),  # the raw gauge alone counts
        (LEVEL, {"log_sd": at(0.2, 0.01), "gain_cv": 0.0}, "refuted"),
        ({"neutral_norm": 0.001}, {"gain_cv": 0.0}, "supported"),  # there is no gain to level
        (LEVEL, {"norm": False}, "not_tested"),
        (LEVEL, {"documents": 4}, "not_tested"),
    ],
)
def test_constant_lengths(costs, planted, expected):
    assert verdict("C3", costs, **{**CONSTANT, **planted}) == expected


def test_without_a_norm_the_numbers_are_shown_for_comparison():
    said, sentence, rows = decided("C3", log_sd=0.123, tv=0.234)
    assert said == "not_tested"
    assert "has no QK norm" in sentence
    assert "0.12" in sentence
    assert "0.23" in sentence
    assert {"k_log_sd", "tv", "r2"} == set(rows["quantity"])
    assert not rows["primary"].any()


def test_the_interval_of_a_cost_is_that_of_two_one_sided_tests():
    _, _, rows = decided("C3", LEVEL, **CONSTANT)
    levels = rows[rows["primary"]].set_index("quantity")["level"]
    assert np.allclose(levels[["neutral_norm", "scalar_gain"]], 4 * levels["tv"].iloc[0])


# ------------------------------------------------------------------ C6s, C7, C8
@pytest.mark.parametrize(
    ("shift", "apart", "expected"),
    [
        (0.3, 0.4, "supported"),
        (0.011, 0.0, "supported"),
        (0.005, 0.4, "inconclusive"),
        (0.00005, 0.4, "inconclusive"),
        (0.00005, 0.00009, "refuted"),
        (0.0, 0.0, "refuted"),
    ],
)
def test_before_the_rotation(shift, apart, expected):
    errors = {"commutation_error": apart, "shift_error": shift, "folding_error": 1e-7}
    said, sentence, rows = decided("C6s", norm=True, errors=errors)
    assert said == expected
    assert not rows["primary"].any()  # by algebra: it takes no share of the level
    assert rows["low"].isna().all()
    assert rows["estimate"].tolist() == [apart, shift]
    assert sentence.endswith(".")


def test_before_the_rotation_every_head_must_commute_and_the_median_head_must_not():
    run = made_run(norm=True, errors={"commutation_error": 0.0, "shift_error": 0.0, "folding_error": 0.0})
    table = run.tables["order"].copy()
    table.loc[0, "shift_error"] = 0.4
    one = replace(run, tables={"order": table})
    assert make_ledger(Checkpoint(one)).verdict("C6s") == "inconclusive"
    table.loc[:3, "shift_error"] = 0.4
    assert make_ledger(Checkpoint(one)).verdict("C6s") == "supported"


@pytest.mark.parametrize("claim", ["C6s", "C8"])
def test_what_algebra_tells_needs_a_norm_of_known_algebra(claim):
    nan = dict.fromkeys(("commutation_error", "shift_error", "folding_error"), np.nan)
    assert verdict(claim) == "not_tested"
    assert verdict(claim, norm=True, errors=nan) == "not_tested"
    run = made_run(norm=True, errors=nan)
    empty = replace(run, tables={"order": run.tables["order"].iloc[:0]})
    assert make_ledger(Checkpoint(empty)).verdict(claim) == "not_tested"


@pytest.mark.parametrize(("error", "word"), [(1e-7, "exactly"), (1e-3, "not exactly")])
def test_whether_the_scale_can_go_is_never_decided_by_a_run_alone(error, word):
    errors = {"commutation_error": 0.3, "shift_error": 0.3, "folding_error": error}
    said, sentence, rows = decided("C8", norm=True, errors=errors)
    assert said == "not_tested"
    assert f"query norm {word} here" in sentence
    assert rows["estimate"].tolist() == [error]


@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ({"one_hot": 0.1}, "supported"),
        ({"one_hot": 0.03}, "inconclusive"),
        ({"one_hot": 0.045}, "inconclusive"),
        ({"one_hot": 0.005}, "refuted"),
        ({"one_hot": 0.0}, "refuted"),
        ({"one_hot": 0.1, "documents": 4}, "not_tested"),
    ],
)
def test_one_hot_rows(planted, expected):
    assert verdict("C7c", **planted) == expected


def test_one_hot_rows_need_tables_of_this_version():
    run = made_run(one_hot=0.1)
    for tables in (
        {key: table for key, table in run.tables.items() if key != "logits"},
        {key: table for key, table in run.tables.items() if key != "document_stats"},
        {**run.tables, "document_stats": run.tables["document_stats"].drop(columns="one_hot_rate_weighted")},
    ):
        assert make_ledger(Checkpoint(replace(run, tables=tables))).verdict("C7c") == "not_tested"


def test_growth_is_not_decided_by_one_size():
    assert make_ledger(checkpoint(without=TYPES)).verdict("C7a") == "not_tested"


# ------------------------------------------------------------------ the ledger
IDS = ["C1", "C2", "C2a", "C2b", "C2c", "C3", "C6s", "C7a", "C7c", "C8"]


def test_a_ledger_has_a_row_for_every_claim_and_says_what_is_behind_it():
    errors = {"commutation_error": 0.3, "shift_error": 0.3, "folding_error": 1e-7}
    one = checkpoint(edits(0.01, 0.09, **LEVEL), norm=True, gain_cv=0.2, sink=0.5, lift=0.1, errors=errors)
    ledger = make_ledger(one)
    assert ledger.claims["claim"].tolist() == IDS
    assert ledger.name == "made"
    assert ledger.commands == ("geomprobe analyze --model made --out runs/made", "geomprobe intervene --model made")
    assert ledger.dated == thresholds()["dated"]
    # C1, C2a, C3, C7c, and C2b and C2c in each third.
    assert ledger.n_primary == 4 + 2 * LAYERS
    assert set(ledger.claims["verdict"]) <= set(VERDICTS)
    assert ledger.claims["sentence"].str.endswith(".").all()
    assert not ledger.claims["sentence"].str.contains("nan").any()
    assert not ledger.evidence[["claim", "quantity", "gauge", "where", "token_class", "rule"]].isna().any(axis=None)
    primary = ledger.evidence[ledger.evidence["primary"]]
    assert (primary["rule"] != "").all()
    assert primary[["estimate", "low", "high", "level"]].notna().all(axis=None)
    assert (primary["n_documents"] == 12).all()


def test_a_run_without_any_table_tests_nothing():
    run = made_run()
    ledger = make_ledger(Checkpoint(replace(run, tables={"parity": pd.DataFrame({"layer": [0]})})))
    assert ledger.claims["claim"].tolist() == IDS
    assert set(ledger.claims["verdict"]) == {"not_tested"}
    assert ledger.n_primary == 0
    assert not len(ledger.evidence)

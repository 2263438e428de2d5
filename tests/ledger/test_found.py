"""What the ledger once got wrong."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest

from geomprobe.errors import RunError
from geomprobe.ledger import evidence
from geomprobe.ledger.endpoint import INCONCLUSIVE, REFUTED, Endpoint, Quantity, Rule
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.ledger import make_ledger
from geomprobe.pages.ledgers import claims
from tests.ledger.made import checkpoint, edits, made_run, made_trial, written
from tests.ledger.test_family import ledgers_of, signs
from tests.ledger.test_verdicts import CONSTANT, LEVEL, LONG, OTHERS, TURNED, at, verdict

pytestmark = pytest.mark.usefixtures("fast")


# ------------------------------------------------------------------ C3: one of several may refute
def either(_gauge, said):
    return REFUTED if REFUTED in said.values() else INCONCLUSIVE


def beyond(share, name):
    """A quantity of which a share of the draws is not above .1."""
    draws = np.linspace(0.1 - share, 0.1 - share + 1, 10_001)
    return Quantity(name, 0.5, draws, Rule("", above=0.02, below=0.1, turned=True), gauge="raw")


def test_where_one_of_two_refutes_it_pays_for_both():
    """3.2 % at 5 %: refuted if it were alone, but there are two that could have refuted."""
    one = Endpoint((beyond(0.016, "k_log_sd"), beyond(0.3, "tv")), either, one_refutes=True)
    assert 0.06 < one.p < 0.07
    assert one.verdict(0.05) == "inconclusive"
    assert one.verdict(0.07) == "refuted"


def test_it_pays_however_far_off_the_other_one_is():
    """The number that could have refuted is that of the rules, and not of those that look like it afterwards."""
    one = Endpoint((beyond(0.016, "k_log_sd"), beyond(0.9, "tv")), either, one_refutes=True)
    assert 0.06 < one.p < 0.07


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_two_that_may_refute_err_by_the_level_together(share):
    rng = np.random.default_rng(0)
    rule = Rule("", above=0.02, below=0.1, turned=True)
    erred = []
    for _ in range(1500):
        both = [
            Quantity(name, mean, rng.normal(mean, 0.01, 400), rule, gauge="raw")
            for name, mean in zip(("k_log_sd", "tv"), rng.normal(0.1, 0.01, 2), strict=True)
        ]
        erred.append(Endpoint(tuple(both), either, one_refutes=True).verdict(share) == "refuted")
    assert np.mean(erred) < share / 2 + 3.5 * math.sqrt(share / 2 / 1500)


# ------------------------------------------------------------------ gauges
def test_length_or_angle_of_a_gainless_norm_is_decided_in_the_raw_gauge_alone():
    costs = edits(at(0.01, 0.09), at(0.09, 0.01))
    assert verdict("C1", costs, norm=True, gain_cv=0.0, share=at(0.2, 0.8)) == "refuted"
    raw = {name: cost for name, cost in TURNED.items() if "@" not in name}
    assert verdict("C1", raw, norm=True, gain_cv=0.0, share=0.2) == "refuted"


def test_where_a_layer_has_no_norm_lengths_are_not_identified():
    run = made_run(norm=True, gain_cv=0.0)
    assert Checkpoint(run).gainless
    manifest = copy.deepcopy(run.manifest)
    manifest["model"]["anatomy"][1].update(q_norm=None, k_norm=None)
    assert not Checkpoint(replace(run, manifest=manifest)).gainless


@pytest.mark.parametrize("claim", ["C1", "C2a", "C2c", "C3"])
@pytest.mark.parametrize("gain_cv", [0.2, 0.0])
def test_the_raw_gauge_alone_decides_only_where_lengths_are_identified(claim, gain_cv):
    """As in a model whose rotation is not known in pairs."""
    planted = {**CONSTANT, "gain_cv": gain_cv, "share": 0.2, "lift": 0.1, "sink": 0.5, "part": 0.8}
    run = made_run(**planted, without=OTHERS[claim])
    raw = {name: t[t["gauge"] == "raw"] if "gauge" in t else t for name, t in run.tables.items()}
    one = Checkpoint(replace(run, tables=raw), (made_trial(run, {**TURNED, **LEVEL}),))
    assert (make_ledger(one).verdict(claim) == "not_tested") == (gain_cv > 0)


# ------------------------------------------------------------------ too little behind it
@pytest.mark.parametrize("planted", [{"function": 9}, {"documents": 4}])
def test_because_of_length_needs_types_and_documents(planted):
    assert verdict("C2c", sink=0.5, lift=0.1, part=0.8, **planted) == "not_tested"


@pytest.mark.parametrize(("documents", "expected"), [(1, "inconclusive"), (4, "inconclusive"), (5, "supported")])
def test_what_levelling_costs_needs_documents(documents, expected):
    """Of one document all draws are the same, and the interval is a point."""
    run = made_run(**CONSTANT, without=OTHERS["C3"])
    trial = made_trial(run, LEVEL, documents=documents)
    assert make_ledger(Checkpoint(run, (trial,))).verdict("C3") == expected


def test_a_share_of_nothing_explained_is_none():
    """Both parts below 0: a description by lengths or angles is worse than none."""
    run = made_run(without=OTHERS["C1"])
    run.tables["split"] = run.tables["split"].assign(phi_norm=-1.0, phi_angle=-0.5)
    estimate, draws, _ = evidence.share_of_lengths(run, "raw")
    assert math.isnan(estimate)
    assert np.isnan(draws).all()
    assert make_ledger(Checkpoint(run, (made_trial(run, LONG),))).verdict("C1") == "inconclusive"


def test_parts_of_sinks_without_the_sinks_are_not_tested(tmp_path):
    """A run of --probes split has no type_stats."""
    run = written(made_run(sink=0.5, lift=0.1, part=0.8, without=("type_stats",)), tmp_path)
    assert make_ledger(Checkpoint(run)).verdict("C2c") == "not_tested"


# ------------------------------------------------------------------ families, names, folders
def test_a_family_lies_where_its_checkpoints_lie_on_average():
    row = signs(ledgers_of([("llama", 0.9), ("llama", 0.45), ("gpt2", 0.2)]))
    assert (row["n_checkpoints"], row["n_families"], row["n_for"]) == (3, 2, 1)


def test_a_file_is_no_folder_for_ledgers(tmp_path):
    (tmp_path / "there").write_text("x", encoding="utf-8")
    with pytest.raises(RunError, match="is a file; --out must name a folder"):
        claims(checkpoint().run, out=tmp_path / "there")


def test_a_name_is_printed_as_it_is(tmp_path, monkeypatch, capsys):
    from geomprobe.cli.app import run as run_app

    written(made_run("a[/b][red]c", without=("type_stats", "type_split", "type_places")), tmp_path / "run")
    monkeypatch.setattr("sys.argv", ["geomprobe", "claims", str(tmp_path / "run")])
    assert run_app() == 0
    assert "a[/b][red]c: which claims hold" in capsys.readouterr().out

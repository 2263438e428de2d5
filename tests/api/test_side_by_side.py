"""`compare` with models: they are analyzed first, once, and as the runs beside them were."""

import numpy as np
import pytest

import geomprobe
from geomprobe.comparison import depths, kinds, measured
from geomprobe.errors import RunError
from geomprobe.run.reading import Run
from tests.comparison.made import made_run

PAIR = {"window": 64, "windows": 2, "probes": ("sinks", "logits", "loss"), "quiet": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(autouse=True)
def fast(monkeypatch, folder):
    """Few draws, in one folder for all tests of this file."""
    for function in (measured.of_documents, kinds.class_sinks, depths.by_depth):
        monkeypatch.setitem(function.__kwdefaults__, "draws", 50)
    monkeypatch.chdir(folder)


@pytest.fixture
def analyzed(monkeypatch):
    """What was handed to `analyze`, and the runs that came back."""
    told = []
    original = geomprobe.api.analyze

    def analyze(model, **settings):
        run = original(model, **settings)
        told.append((model, settings, run))
        return run

    monkeypatch.setattr("geomprobe.api.analyze", analyze)
    return told


def test_both_are_analyzed_and_the_second_time_taken_up(analyzed, folder):
    first = geomprobe.compare("plain", "qknorm", formats="csv", **PAIR)
    assert [model for model, _, _ in analyzed] == ["plain", "qknorm"]
    assert first.labels == ("plain", "qknorm")
    assert {file.suffix for file in first.files} == {".csv"}
    assert first.files[0].parent.parent.name == "comparisons"
    assert len(list((folder / "runs").iterdir())) == 2
    assert {run.manifest["corpus"]["window"] for run in first.sides.runs} == {64}
    assert first.caveat.startswith("Twins: the arms A0 and A1")
    made = {run.path: run.manifest["created"] for run in first.sides.runs}
    again = geomprobe.compare("plain", "qknorm", formats="csv", **PAIR)
    assert {run.path: run.manifest["created"] for run in again.sides.runs} == made  # taken up
    assert again.files == first.files
    assert again.differences.equals(first.differences)


def test_the_packaged_pair_is_what_is_compared_by_default(analyzed):
    assert geomprobe.compare(formats="csv", **PAIR).labels == ("plain", "qknorm")
    assert [model for model, _, _ in analyzed] == ["plain", "qknorm"]


def test_a_model_beside_a_run_is_analyzed_like_it(analyzed):
    run = geomprobe.compare("plain", "qknorm", formats="csv", **PAIR).sides.runs[0]
    analyzed.clear()
    comparison = geomprobe.compare(run.path, "qknorm", formats="csv", quiet=True)
    (model, settings, _), *more = analyzed
    assert (model, more) == ("qknorm", [])
    assert (settings["window"], settings["windows"]) == (64, 2)
    assert set(settings["probes"]) == set(run.manifest["probes"])
    assert len(comparison.sides.documents) == 2
    assert comparison.sides.same_tokens
    assert np.isfinite(comparison.whole("first_mass")["difference"])


def test_what_is_given_goes_before_what_the_run_has(monkeypatch):
    given = {}

    def analyze(_model, **settings):
        given.update(settings)
        raise RunError("stop here.")

    monkeypatch.setattr("geomprobe.api.analyze", analyze)
    with pytest.raises(RunError, match="stop here"):
        geomprobe.compare(made_run("one"), "plain", window=32, quiet=True)
    assert given["window"] == 32
    assert given["windows"] == made_run("one").manifest["corpus"]["n_windows"]
    assert given["page"] is False


def test_runs_in_hand_need_no_folder(tmp_path):
    runs = [made_run(name, seed=at) for at, name in enumerate(("one", "other"))]
    assert all(isinstance(run, Run) for run in runs)
    comparison = geomprobe.compare(*runs, formats=["csv"], out=tmp_path, quiet=True)
    assert comparison.sides.runs == tuple(runs)
    assert comparison.files[0].parent == tmp_path


def test_a_bad_folder_is_told_before_a_model_is_loaded(analyzed, tmp_path):
    (tmp_path / "state").mkdir()
    with pytest.raises(RunError, match="is not a finished run"):
        geomprobe.compare("plain", tmp_path, quiet=True)
    assert analyzed == []

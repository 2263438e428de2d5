"""A run folder that geomprobe 0.1.0 wrote stays here for ever: what reads runs must go on reading it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from geomprobe.comparison.comparison import compare_runs
from geomprobe.figures.catalogue import FIGURES, figures_of
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.ledger import make_ledger
from geomprobe.pages.page import write_page
from geomprobe.run.manifest import sha256_of
from geomprobe.run.reading import Run, open_run

FOLDER = Path(__file__).parents[1] / "data" / "schema-1"
TABLES = {
    *("class_attention", "class_split", "clusters", "contexts", "document_stats", "gains", "hubs", "length_attention"),
    *("logits", "map", "massive", "neighbours", "norm_histograms", "norm_lift", "norms", "order", "parity"),
    *("sink_rates", "sink_tokens", "sinks", "split", "type_places", "type_split", "type_stats", "types", "values"),
    "word_neighbours",
}
NOTHING_THERE = {"norm_stages", "gains"}  # of a model without a norm on queries and keys
FIRST_MASS, LOSS = 0.0117298190188893, 4.66290123106826


@pytest.fixture(scope="module")
def run() -> Run:
    return open_run(FOLDER)


def test_the_folder_is_as_it_was_written(run):
    """Nobody mends it: a reader that cannot read it is to be mended."""
    assert run.manifest["schema"] == 1
    assert {path: sha256_of(FOLDER / path) for path in run.manifest["files"]} == run.manifest["files"]
    assert set(run.tables) == TABLES


def test_its_numbers_are_read_as_they_were(run):
    assert run.name == "plain"
    sinks = run.tables["sinks"]
    assert len(sinks) == 36
    np.testing.assert_allclose(sinks["first_mass"].mean(), FIRST_MASS, rtol=1e-12)
    whole = run.tables["document_stats"].query("layer == -1")
    np.testing.assert_allclose(whole["loss"].mean(), LOSS, rtol=1e-12)


def test_its_page_is_drawn(run, tmp_path):
    copy = open_run(shutil.copytree(FOLDER, tmp_path / "run"))
    page = write_page(copy).read_text(encoding="utf-8")
    for name in figures_of(copy):
        assert f'id="{name}"' in page
    missing = {name for name in figures_of(run) if FIGURES[name].missing(run)}
    assert missing <= NOTHING_THERE, missing


def test_its_claims_are_decided(run):
    verdicts = make_ledger(Checkpoint(run)).claims
    assert len(verdicts) >= 10
    assert verdicts["verdict"].notna().all()


def test_it_is_compared_with_itself(run):
    table = compare_runs([run, run]).differences
    assert {"first_mass", "norm_share", "cluster_auc", "loss"} <= set(table["quantity"])
    assert (table["difference"] == 0).all()

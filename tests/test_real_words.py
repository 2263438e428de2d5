"""Clusters of real checkpoints: embeddings know what nouns mean; the same model with random weights does not."""

import pytest
import torch
import transformers

import geomprobe
from geomprobe.labels import ALL_HEADS
from geomprobe.models.load import load
from geomprobe.models.resolve import resolve

pytestmark = pytest.mark.real

SMALL = {"probes": "clusters", "window": 64, "windows": 1, "max_types": 120, "context": 20, "quiet": True}


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    def run(model, **options):
        out = tmp_path_factory.mktemp("words") / "run"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")
            patch.setattr("geomprobe.words.flat_map", lambda vectors: vectors[:, :2])
            return geomprobe.analyze(model, out=out, **SMALL, **options)

    return run


def by_layer(run):
    """The rows that stand for a layer, or for the embedding."""
    table = run.tables["clusters"]
    return table[table["head"] == ALL_HEADS]


@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_nouns_of_a_category_point_alike(studied, name):
    run = studied(name, dtype="float32", device="cpu")
    rows = by_layer(run)
    assert rows["n_types"].min() >= 100
    assert rows["n_categories"].min() >= 12
    embedding = rows[rows["space"] == "embedding"].iloc[0]
    assert embedding["auc_low"] > 0.8
    assert embedding["auc"] > 0.85
    assert (rows["auc_shuffled"] - 0.5).abs().max() <= 0.02
    residual = rows[rows["space"] == "residual"].set_index("layer")["auc"]
    assert residual.min() > 0.65  # in Gemma the first layers blur what the embedding separates
    alone = rows[rows["space"] == "context"]["auc"].iloc[0]
    assert 0.5 < alone < residual.min()  # what the contexts tell without a model


def test_random_weights_know_no_meaning(studied):
    loaded = load(resolve("smollm2-135m"), dtype="float32", device="cpu")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(loaded.model.config).eval()
    rows = by_layer(studied(model, tokenizer=loaded.tokenizer))
    of_model = rows["space"] != "context"
    holds = (rows["auc_low"] <= 0.5) & (rows["auc_high"] >= 0.5)
    assert holds[of_model].all()
    assert (rows["auc"][of_model] - 0.5).abs().max() < 0.06

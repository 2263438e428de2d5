"""Two real checkpoints, from the package index to the tables: what they are known to be is what is found."""

import numpy as np
import pytest
import torch

import geomprobe
from geomprobe.models.load import load
from geomprobe.models.resolve import resolve

pytestmark = pytest.mark.real

WINDOW, WINDOWS = 128, 3
STAGES = ["projected", "content", "scored"]
SENTENCE = (
    "The house stood at the end of the lane, and in the winter of that year nobody came to it. When the bell rang "
    "they were all in the garden; she did not hear it, for the wind had been loud since noon."
)


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory):
    def run(name):
        out = tmp_path_factory.mktemp("real") / name
        shape = {"window": WINDOW, "windows": WINDOWS, "dtype": "float32", "device": "cpu"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")
            return geomprobe.analyze(name, out=out, quiet=True, **shape)

    return run


@pytest.fixture(scope="module")
def smollm2(analyzed):
    return analyzed("smollm2-135m")


@pytest.fixture(scope="module")
def gemma3(analyzed):
    return analyzed("gemma3-270m")


def rows(run, table, **where):
    """The rows of a table with these values."""
    frame = run.tables[table]
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


def by_layer(run, table, column, **where):
    """Mean over heads of a column, by layer."""
    return rows(run, table, **where).groupby("layer")[column].mean().sort_index()


# ------------------------------------------------------------------ what they are
def test_smollm2_is_what_it_is_known_to_be(smollm2):
    model = smollm2.manifest["model"]
    assert (model["family"], model["dtype"], model["layers"]) == ("llama", "float32", 30)
    assert (model["source"], model["device"]) == ("index", "cpu")
    assert [entry["layer"] for entry in model["anatomy"]] == list(range(30))
    for entry in model["anatomy"]:
        assert (entry["q_heads"], entry["kv_heads"], entry["head_dim"]) == (9, 3, 64)
        assert (entry["q_norm"], entry["k_norm"]) == (None, None)
        assert (entry["window"], entry["softcap"], entry["learned_sinks"]) == (None, None, False)
        assert entry["scale"] == pytest.approx(64**-0.5)
        assert entry["stages"]["q"] == entry["stages"]["k"] == STAGES
    assert len(smollm2.tables["gains"]) == 0


def test_gemma3_is_what_it_is_known_to_be(gemma3):
    model = gemma3.manifest["model"]
    assert (model["family"], model["dtype"], model["layers"]) == ("gemma3_text", "float32", 18)
    for entry in model["anatomy"]:
        assert (entry["q_heads"], entry["kv_heads"], entry["head_dim"]) == (4, 1, 256)
        assert entry["scale"] == pytest.approx(256**-0.5)
        assert entry["window"] == (None if entry["layer"] % 6 == 5 else 512)
        for vector in ("q", "k"):
            norm = entry[f"{vector}_norm"]
            assert (norm["axis"], norm["order"]) == ("head", "before_rope")
            assert norm["module"] == f"{entry['module']}.{vector}_norm"
            assert entry["stages"][vector] == STAGES
    gains = gemma3.tables["gains"]
    assert len(gains) == 2 * 18
    assert set(gains["n"]) == {256}


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_what_was_captured_is_what_the_model_computes(name, request):
    run = request.getfixturevalue(name)
    parity = run.manifest["parity"]
    assert parity["ok"]
    assert parity["max_abs_attention"] <= 1e-5
    assert parity["max_abs_output"] == 0
    assert run.tables["parity"]["ok"].all()


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_they_can_read(name, request):
    """A loss above 5 nats a token would be a model that was loaded wrongly."""
    run = request.getfixturevalue(name)
    loss = rows(run, "document_stats", layer=-1)["loss"]
    assert np.isfinite(loss).all()
    assert (loss > 1).all()
    assert (loss < 5).all()
    assert rows(run, "document_stats", layer=0)["n_tokens"].sum() == WINDOW * WINDOWS


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_nothing_is_missing_or_out_of_range(name, request):
    run = request.getfixturevalue(name)
    lengths = rows(run, "norms", stage="scored", token_class="all")
    assert set(lengths["n"]) == {WINDOWS * (WINDOW - 1)}
    assert (lengths["min"] > 0).all()
    assert ((lengths["min"] <= lengths["p50"]) & (lengths["p50"] <= lengths["max"])).all()
    sinks = run.tables["sinks"]
    assert sinks["first_mass"].between(0, 1).all()
    assert (sinks["begin_mass"] <= 1 + 1e-9).all()
    entropy = rows(run, "logits", capped="after")["entropy"]
    assert entropy.between(0, np.log(WINDOW)).all()


# ------------------------------------------------------------------ what they do
def test_smollm2_attends_to_a_short_first_key(smollm2):
    """Its attention sinks to position 0, whose key is shorter than the others."""
    mass = by_layer(smollm2, "sinks", "first_mass")
    assert mass[12:30].mean() > 0.3
    first = by_layer(smollm2, "norms", "p50", vector="k", stage="scored", token_class="first")
    rest = by_layer(smollm2, "norms", "p50", vector="k", stage="scored", token_class="all")
    assert (first[12:30] < rest[12:30]).all()


@pytest.mark.parametrize("vector", ["q", "k"])
def test_gemma3s_norm_evens_lengths_out(gemma3, vector):
    spread = [
        by_layer(gemma3, "norms", "log_sd", vector=vector, stage=stage, token_class="all")
        for stage in ("projected", "content")
    ]
    assert (spread[1] < spread[0]).mean() > 0.5
    assert len(spread[0]) == 18


@pytest.mark.parametrize(("name", "normed"), [("smollm2", False), ("gemma3", True)])
def test_a_rotation_keeps_lengths(name, normed, request):
    run = request.getfixturevalue(name)
    for vector in ("q", "k"):
        stages = [
            rows(run, "norms", vector=vector, stage=stage, token_class="all").set_index(["layer", "head"])["mean"]
            for stage in STAGES
        ]
        assert (stages[1] / stages[2] - 1).abs().max() < 1e-4
        assert ((stages[0] / stages[1] - 1).abs().max() < 1e-6) is not normed


# ------------------------------------------------------------------ capture
@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_records_hold_the_models_attention(name):
    loaded = load(resolve(name), dtype="float32", device="cpu")
    model = loaded.model
    inputs = {**loaded.tokenizer(SENTENCE, return_tensors="pt"), "use_cache": False}
    inputs.pop("token_type_ids", None)
    with torch.no_grad():
        before = model(**inputs).logits
        with geomprobe.capture(model, stages=("content", "scored")) as seen:
            during = model(**inputs).logits
        model.set_attn_implementation("eager")
        own = model(**inputs, output_attentions=True).attentions
    assert torch.equal(before, during)
    assert len(seen) == len(own) == model.config.num_hidden_layers
    for record, weights in zip(seen, own, strict=True):
        assert (record.attention() - weights).abs().max() <= 1e-5
        turned = record.k["content"].norm(dim=-1) / record.k["scored"].norm(dim=-1)
        assert (turned - 1).abs().max() < 1e-4

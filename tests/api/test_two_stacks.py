"""analyze on a model with an encoder and a decoder: parts are told apart, numbers are those of its attention."""

import numpy as np
import pytest
import torch
import transformers

import geomprobe
from geomprobe import tables

TEXT = "the house stood at the end of the lane, and nobody came to it in the winter. " * 60
LENGTH, WINDOWS, START = 48, 3, 2


def t5(vocabulary):
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=vocabulary,
            d_model=32,
            d_kv=8,
            d_ff=32,
            num_layers=2,
            num_heads=4,
            relative_attention_num_buckets=8,
            decoder_start_token_id=START,
        )
    )


def bart(vocabulary):
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=vocabulary,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=64,
            decoder_start_token_id=START,
        )
    )


@pytest.fixture(scope="module", params=[t5, bart], ids=["t5", "bart"])
def model(request, tokenizer):
    torch.manual_seed(0)
    model = request.param(len(tokenizer)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def run(model, tokenizer, tmp_path_factory):
    """From a folder, so that the class is chosen as for a checkpoint."""
    folder = tmp_path_factory.mktemp("two")
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "tale.txt").write_text(TEXT)
    shape = {"window": LENGTH, "windows": WINDOWS, "quiet": True, "bos": "never", "batch_size": 2}
    return geomprobe.analyze(folder / "model", text=folder / "tale.txt", out=folder / "run", **shape)


def test_parts_are_told_apart(run):
    assert tables.parts(run) == {"encoder": [0, 1], "decoder": [2, 3], "cross-attention": [4, 5]}
    anatomy = run.manifest["model"]["anatomy"]
    assert [layer["causal"] for layer in anatomy] == [False, False, True, True, False, False]
    assert all(("encoder" in layer["module"].split(".")[:2]) == (layer["part"] == "encoder") for layer in anatomy)
    assert run.manifest["model"]["skipped"] == []


def test_the_numbers_are_those_of_the_models_attention(run, model, tokenizer):
    ids = torch.tensor(tokenizer(TEXT, add_special_tokens=False)["input_ids"])[: WINDOWS * LENGTH]
    ids = ids.view(WINDOWS, LENGTH)
    decoded = ids.clone()
    decoded[:, 0] = START
    model.set_attn_implementation("eager")
    with torch.no_grad():
        made = model(input_ids=ids, decoder_input_ids=decoded, output_attentions=True, use_cache=False)
    own = [*made.encoder_attentions, *made.decoder_attentions, *made.cross_attentions]
    sinks, lift = run.tables["sinks"], run.tables["class_attention"]
    for layer, weights in enumerate(own):
        due = weights.double()[:, :, 1:, 0].mean((0, 2)).numpy()
        found = sinks[sinks["layer"] == layer].sort_values("q_head")["first_mass"].to_numpy()
        assert np.abs(found - due).max() <= 1e-5
        # The rows over which shares are taken are all of them, the keys all but the first.
        rest = weights.double()[..., 1:].sum(-1).mean((0, 2)).numpy()
        rows = lift[(lift["layer"] == layer) & (lift["token_class"] == "all")].sort_values("q_head")
        assert np.abs(rows["share"].to_numpy() - rest).max() <= 1e-5


def test_what_looks_ahead_has_no_sink_rate(run):
    rates = run.tables["sink_rates"].groupby("layer")["n"].sum()
    assert [bool(rates.get(layer, 0)) for layer in range(6)] == [False, False, True, True, False, False]
    assert run.tables["document_stats"]["loss"].isna().all()


def test_the_page_names_the_parts(run):
    page = (run.path / "report.md").read_text(encoding="utf-8")
    assert "layers 0–1 are its encoder, layers 2–3 are its decoder and layers 4–5 are its cross-attention" in page
    assert "Dotted lines divide layers 0–1 encoder; layers 2–3 decoder; layers 4–5 cross-attention." in page

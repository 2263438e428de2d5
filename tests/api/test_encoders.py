"""analyze on an encoder: what assumes that nobody looks ahead is NaN, the rest is what its attention says."""

import re

import numpy as np
import pytest
import torch
import transformers

import geomprobe
from geomprobe.models.classes import choose_class


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32
    )
    model = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def run(model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    text = folder / "tale.txt"
    text.write_text("the house stood at the end of the lane, and nobody came to it in the winter. " * 60)
    shape = {"window": 64, "windows": 3, "quiet": True, "bos": "never"}
    return geomprobe.analyze(model, tokenizer=tokenizer, text=text, out=folder / "run", **shape)


def test_what_assumes_causality_is_nan(run):
    assert [layer["causal"] for layer in run.manifest["model"]["anatomy"]] == [False, False]
    assert run.tables["sink_rates"]["rate"].isna().all()
    assert len(run.tables["sink_tokens"]) == 0
    whole = run.tables["document_stats"]
    assert whole["loss"].isna().all()


def test_what_does_not_is_what_the_attention_says(run, model, tokenizer):
    text = "the house stood at the end of the lane, and nobody came to it in the winter. " * 60
    ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"])[: 3 * 64].view(3, 64)
    with torch.no_grad(), geomprobe.capture(model) as seen:
        model(input_ids=ids)
    sinks = run.tables["sinks"]
    for layer, record in enumerate(seen):
        weights = record.attention().double()
        assert (weights.sum(-1) - 1).abs().max() <= 1e-6
        assert weights[..., 1:].triu(1).abs().max() > 0  # it does look ahead
        due = weights[:, :, 1:, 0].mean((0, 2)).numpy()
        made = sinks[sinks["layer"] == layer].sort_values("q_head")["first_mass"].to_numpy()
        assert np.abs(made - due).max() <= 1e-5


def test_the_page_stands_and_says_no_loss(run):
    page = (run.path / "report.md").read_text(encoding="utf-8")
    assert "nats a token" not in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)
    assert "no key draws more than" not in page
    assert not (run.path / "figures" / "sink_rates.png").exists()
    assert not (run.path / "figures" / "sink_tokens.png").exists()
    assert "Each token sees what stands behind it, too" in page


def test_a_checkpoint_is_loaded_as_what_it_was_trained_as():
    masked, causal = transformers.AutoModelForMaskedLM, transformers.AutoModelForCausalLM
    assert choose_class({"model_type": "bert", "architectures": ["BertForMaskedLM"]}) is masked
    assert choose_class({"model_type": "bert", "architectures": ["BertLMHeadModel"]}) is causal
    assert choose_class({"model_type": "modernbert"}) is masked
    assert choose_class({"model_type": "llama"}) is causal
    assert choose_class({"model_type": "vit"}) is None

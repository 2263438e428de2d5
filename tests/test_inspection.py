"""`geomprobe.inspect`: what it finds on tiny models, and that it leaves them as they were."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

import geomprobe
import geomprobe.attention.seam as seam
from geomprobe.attention.anatomy import examine
from geomprobe.attention.call import read_call
from geomprobe.errors import InvalidParameter, UnsupportedModel
from geomprobe.testing import tiny_model

FAMILIES = {  # family: (verdict of q, kind, axis, order, softcap, sinks)
    "llama": ("none", None, None, None, False, None),
    "qwen3": ("norm", "rms", "head", "before_rope", False, None),
    "gemma2": ("none", None, None, None, True, None),
    "gemma3": ("norm", "rms", "head", "before_rope", False, None),
    "gpt_oss": ("none", None, None, None, False, "learned"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    verdict, kind, axis, order, capped, sinks = FAMILIES[family]
    found = geomprobe.inspect(tiny_model(family))
    assert found.trusted
    for layer in found.layers:
        assert layer.kind == "softmax"
        assert layer.verdict["q"] == layer.verdict["k"] == verdict
        assert (layer.softcap is not None) == capped
        assert layer.sinks == sinks
        assert layer.rotary.kind == "half"
        norm = layer.q_norm
        assert (norm is None) == (kind is None)
        if norm is not None:
            assert (norm.kind, norm.axis, norm.order) == (kind, axis, order)


@pytest.mark.parametrize(("family", "one"), [("qwen3", 0), ("gemma3", 1)])
def test_the_measured_gain_is_what_the_norm_multiplies_by(family, one):
    model = tiny_model(family)
    for layer in geomprobe.inspect(model).layers:
        for norm in (layer.q_norm, layer.k_norm):
            due = one + model.get_submodule(norm.module).weight.detach().double().numpy()
            assert np.abs(norm.gain - due).max() <= 1e-5
            assert norm.bias is None


def test_a_gain_that_is_doubled_shows():
    model = tiny_model("qwen3")
    before = geomprobe.inspect(model).layers[0].k_norm.gain
    with torch.no_grad():
        model.model.layers[0].self_attn.k_norm.weight *= 2
    assert np.abs(geomprobe.inspect(model).layers[0].k_norm.gain - 2 * before).max() <= 1e-5


def test_a_norm_that_never_runs_is_told():
    model = tiny_model("llama")
    model.model.layers[1].self_attn.k_norm = torch.nn.RMSNorm(16)
    first, second = geomprobe.inspect(model).layers
    assert first.notes == ()
    assert second.notes == ("k_norm is there and never ran",)
    assert second.k_norm is None


def test_a_norm_in_name_only_is_told():
    """What is called a norm and does none: behaviour decides, and the name is reported."""

    class Louder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((16,), 1.5))

        def forward(self, x):
            return x * self.weight

    model = tiny_model("qwen3")
    model.model.layers[0].self_attn.q_norm = Louder()
    layer = geomprobe.inspect(model).layers[0]
    assert layer.verdict["q"] == "none"
    assert layer.q_norm is None
    assert any("q_norm ran, and q behave as if not normed" in note for note in layer.notes)
    assert layer.k_norm is not None


def test_the_model_is_as_before():
    model = tiny_model("gemma3")
    model.train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    geomprobe.inspect(model)
    assert model.training
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == hooks


def test_a_hybrid_names_its_other_layers():
    config = transformers.JambaConfig(
        vocab_size=160, hidden_size=32, intermediate_size=32, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
        num_experts=2, use_mamba_kernels=False, mamba_dt_rank=8, mamba_d_state=4,
    )  # fmt: skip
    model = transformers.JambaForCausalLM(config).eval()
    found = geomprobe.inspect(model)
    kinds = [(layer.kind, layer.module) for layer in found.layers]
    assert [kind for kind, _ in kinds] == ["skipped", "softmax", "skipped", "softmax"]
    name = "model.layers.0.mamba"
    sentence = f"JambaMambaMixer ({name}) mixes tokens without softmax attention, or not at all."
    assert (found.layers[0].module, found.layers[0].reason) == (name, sentence)
    # An analysis leaves them out by the same words.
    spec = examine(model, torch.arange(10, 34)[None])
    assert len(spec.layers) == 2
    assert spec.skipped[0] == (name, sentence)


def test_encoders_and_images():
    bert = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=160, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32
        )
    )
    vit = transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=32,
            image_size=32,
            patch_size=8,
        )
    )
    for model in (bert, vit):
        found = geomprobe.inspect(model)
        assert found.trusted
        assert [layer.verdict["q"] for layer in found.layers] == ["none", "none"]
        assert all(layer.rotary is None and layer.window is None for layer in found.layers)


def test_self_and_cross_attention_have_names_of_their_own():
    config = transformers.T5Config(
        vocab_size=160, d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    found = geomprobe.inspect(transformers.T5ForConditionalGeneration(config).eval())
    assert found.trusted
    assert sum("EncDecAttention" in layer.module for layer in found.layers) == 2
    assert sum("SelfAttention" in layer.module for layer in found.layers) == 4


def test_attention_that_cannot_be_read_is_named_beside_what_can():
    config = transformers.LEDConfig(
        vocab_size=160, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, attention_window=4,
        max_encoder_position_embeddings=64, max_decoder_position_embeddings=64,
    )  # fmt: skip
    model = transformers.LEDForConditionalGeneration(config).eval()
    found = geomprobe.inspect(model)
    (left_out,) = (layer for layer in found.layers if layer.kind == "skipped")
    assert left_out.module == "led.encoder.layers.0.self_attn.longformer_self_attn"
    assert "computes attention in code of its own" in left_out.reason
    assert [layer.module for layer in found.layers if layer.kind == "softmax"] == [
        "led.decoder.layers.0.self_attn",
        "led.decoder.layers.0.encoder_attn",
    ]
    ids = torch.randint(10, 160, (1, 16))
    with torch.no_grad(), geomprobe.capture(model) as seen:
        model(input_ids=ids, decoder_input_ids=ids)
    assert len(seen) == 2
    assert list(seen.unread) == [left_out.module]


def test_refusals():
    mamba = transformers.MambaConfig(vocab_size=160, hidden_size=32, num_hidden_layers=2, state_size=4)
    with pytest.raises(UnsupportedModel, match="has no attention that geomprobe can see"):
        geomprobe.inspect(transformers.MambaForCausalLM(mamba))
    with pytest.raises(InvalidParameter, match="dtype go with a model's name; this one is loaded already"):
        geomprobe.inspect(tiny_model("llama"), dtype="float32")


@pytest.mark.parametrize("defect", ["scale", "key"])
def test_a_model_that_is_not_understood_is_not_trusted(defect, monkeypatch):
    """With the call misread, what is rebuilt is not the model's own, and inspect says so."""
    change = {
        "scale": lambda call: replace(call, scale=1.01 * call.scale),
        "key": lambda call: replace(call, key=call.key.roll(1, dims=2)),
    }[defect]
    monkeypatch.setattr(seam, "read_call", lambda *given: change(read_call(*given)))
    found = geomprobe.inspect(tiny_model("llama"))
    assert not found.trusted
    assert found.agreement.excess > 1


def test_a_layer_with_large_logits_is_held_to_its_own_bound():
    """One layer may be off by what rounding allows there, and more than another is allowed."""
    model = tiny_model("llama")
    with torch.no_grad():
        for projection in ("q_proj", "k_proj"):
            getattr(model.model.layers[0].self_attn, projection).weight *= 100
    found = geomprobe.inspect(model)
    assert found.trusted, found.agreement

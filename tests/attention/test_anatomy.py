"""What a model's attention is said to be, against what its configuration and its modules say."""

import numpy as np
import pytest
import torch
import transformers
from tiny import cached, on, some_ids

from geomprobe.attention.anatomy import examine, measure_gain
from geomprobe.errors import UnsupportedModel
from geomprobe.testing import tiny_model

ALL = ("projected", "content", "scored")
SMALL = {
    "vocab_size": 160,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def random_model(name, **changes):
    """A model of any family with random weights, gains among them."""
    config = getattr(transformers, f"{name}Config")(**{**SMALL, **changes})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return model


def layers_of(model, length=60):
    return examine(model, some_ids(length=length)).layers


@pytest.mark.parametrize(
    ("family", "window", "scale", "softcap", "learned_sinks"),
    [
        ("llama", (None, None), 16**-0.5, None, False),
        ("qwen3", (None, None), 16**-0.5, None, False),
        ("gemma2", (40, None), 16**-0.5, 4.0, False),
        ("gemma3", (40, None), 24**-0.5, None, False),
        ("gpt_oss", (40, None), 16**-0.5, None, True),
    ],
)
@pytest.mark.parametrize("length", [20, 60])
def test_the_five_families(family, window, scale, softcap, learned_sinks, length):
    layers = layers_of(tiny_model(family), length)
    assert [layer.layer for layer in layers] == [0, 1]
    assert [layer.module for layer in layers] == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert tuple(layer.window for layer in layers) == window
    for layer in layers:
        assert (layer.q_heads, layer.kv_heads, layer.head_dim, layer.rotary_width) == (4, 2, 16, 16)
        assert layer.scale == pytest.approx(scale)
        assert layer.softcap == softcap
        assert layer.learned_sinks is learned_sinks
        assert layer.stages == {"q": ALL, "k": ALL, "v": ALL}
        assert set(layer.norms) == ({"q", "k"} if family in ("qwen3", "gemma3") else set())


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize(("family", "plus"), [("qwen3", 0.0), ("gemma3", 1.0)])
def test_norms_and_their_gains(family, plus, kernel):
    """A gain that is stored as w and applied as 1 + w is 1 + w."""
    model = on(kernel, family)
    for layer in layers_of(model):
        for vector, norm in layer.norms.items():
            assert norm.module == f"{layer.module}.{vector}_norm"
            assert (norm.axis, norm.order) == ("head", "before_rope")
            weight = model.get_submodule(norm.module).weight.detach().double().numpy()
            assert norm.gain.dtype == np.float64
            assert np.abs(norm.gain - (weight + plus)).max() <= 1e-5 * np.abs(weight + plus).max()


@pytest.mark.parametrize(
    ("name", "changes", "axis", "order", "module"),
    [
        ("Olmo2", {}, "full", "before_rope", "q_norm"),
        ("HunYuanDenseV1", {"head_dim": 8}, "head", "after_rope", "query_layernorm"),
    ],
)
def test_norms_elsewhere(name, changes, axis, order, module):
    model = random_model(name, **changes)
    for layer in layers_of(model):
        norm = layer.norms["q"]
        assert (norm.axis, norm.order, norm.module) == (axis, order, f"{layer.module}.{module}")
        weight = model.get_submodule(norm.module).weight.detach().double().numpy()
        assert len(norm.gain) == (32 if axis == "full" else 8)
        assert np.abs(norm.gain - weight).max() <= 1e-4 * np.abs(weight).max()


def test_layers_without_rotation():
    """SmolLM3 leaves the rotation out in some layers: its content is what is scored."""
    layers = layers_of(random_model("SmolLM3", no_rope_layers=[1, 0]))
    assert [layer.rotary_width for layer in layers] == [8, 0]
    assert all(layer.stages["q"] == ALL for layer in layers)


# A gain with an axis for the heads has two dimensions, so that Cohere's norm counts
# as a projection: the layer is said to have no QK norm, and `projected` is what comes out of the norm.
def test_a_norm_with_a_gain_for_each_head():
    model = random_model("Cohere", use_qk_norm=True)
    for layer in layers_of(model):
        assert set(layer.norms) == {"q", "k"}
        assert layer.norms["q"].module == f"{layer.module}.q_norm"


# Mistral, Phi-3 and Starcoder 2 pass their window to the kernel and keep it in no
# attribute of the attention module, so it shows only where the probe text (64 tokens in an analysis) is longer.
@pytest.mark.parametrize("length", [20, 60, 120])
def test_a_window_that_only_the_call_tells(length):
    layers = layers_of(random_model("Mistral", sliding_window=50), length)
    assert [layer.window for layer in layers] == [50, 50]


def test_mistral_without_a_window():
    assert [layer.window for layer in layers_of(random_model("Mistral", sliding_window=None))] == [None, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_the_gain_of_a_layer_norm(bias, dtype):
    """Mean and bias cancel."""
    generator = torch.Generator().manual_seed(0)
    norm = torch.nn.LayerNorm(12, bias=bias).to(dtype)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(12, generator=generator) * 3)
    gain = measure_gain(norm, 12, torch.zeros(1, dtype=dtype))
    assert (gain.dtype, gain.shape) == (torch.float64, (12,))
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5  # the ε of the norm, and rounding
    assert (gain / norm.weight.detach().double() - 1).abs().max() <= tolerance


def test_the_gain_of_norms_by_hand():
    class Twice(torch.nn.Module):
        def forward(self, x):
            return 2 * x / x.square().mean(-1, keepdim=True).sqrt() + 5

    class UnitLength(torch.nn.Module):
        def forward(self, x):
            return x / x.norm(dim=-1, keepdim=True)

    like = torch.zeros(1)
    assert measure_gain(Twice(), 6, like).tolist() == pytest.approx([2] * 6)
    assert measure_gain(UnitLength(), 16, like).tolist() == pytest.approx([0.25] * 16)


def test_measuring_leaves_the_model_alone():
    model = tiny_model("gemma3")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    examine(model, some_ids())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_described():
    described = layers_of(tiny_model("gemma3"))[0].described()
    assert described["q_norm"] == {"module": "model.layers.0.self_attn.q_norm", "axis": "head", "order": "before_rope"}
    assert described["stages"]["k"] == list(ALL)
    assert layers_of(tiny_model("llama"))[0].described()["k_norm"] is None


# ------------------------------------------------------------------ refusals
def test_a_model_without_attention_is_refused():
    model = transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=160, hidden_size=32, num_hidden_layers=2, state_size=4)
    )
    with pytest.raises(
        UnsupportedModel, match=r"MambaForCausalLM has no attention that geomprobe can see: .* \(a model"
    ):
        examine(model, some_ids())


def test_a_layer_that_does_not_show_is_told(monkeypatch):
    model = tiny_model("llama")

    def nothing(hidden_states, **_):
        return torch.zeros_like(hidden_states), None

    monkeypatch.setattr(model.model.layers[1].self_attn, "forward", nothing)
    spec = examine(model, some_ids())
    assert [layer.module for layer in spec.layers] == ["model.layers.0.self_attn"]
    ((module, reason),) = spec.skipped
    assert module == "model.layers.1.self_attn"
    assert reason == "model.layers.1.self_attn did not run, or not through the attention interface."


def test_layers_that_share_a_module_are_told():
    model = tiny_model("llama")
    model.model.layers[1].self_attn = model.model.layers[0].self_attn
    with pytest.raises(
        UnsupportedModel, match=r"model\.layers\.0\.self_attn computes attention several times in one pass"
    ):
        examine(model, some_ids())


class WithPast(torch.nn.Module):
    """A model whose queries see keys of tokens that came before the text."""

    def __init__(self):
        super().__init__()
        self.model = tiny_model("llama")
        self.config = self.model.config

    def forward(self, input_ids, **_):
        cache = transformers.DynamicCache(config=self.model.config)
        cache.update(torch.ones(1, 2, 8, 16), torch.ones(1, 2, 8, 16), 1)
        return self.model(input_ids, use_cache=True, **cached(self.model, cache))


def test_attention_to_something_else_is_told():
    spec = examine(WithPast(), some_ids())
    assert [layer.module for layer in spec.layers] == ["model.model.layers.0.self_attn"]
    ((_, reason),) = spec.skipped
    assert reason.startswith("Layer 1 (model.model.layers.1.self_attn) has 60 queries and 68 keys;")

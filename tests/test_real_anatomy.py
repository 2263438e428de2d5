"""What three real checkpoints are, read from GGUF: found by what they do, held against their own weights."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import geomprobe
from geomprobe.models.load import load
from geomprobe.models.resolve import resolve

pytestmark = pytest.mark.real
NAMES = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b")


@pytest.fixture(scope="module")
def loaded():
    kept = {}

    def get(name):
        if name not in kept:
            kept.clear()  # one at a time in memory
            kept[name] = load(resolve(name), dtype="float32", device="cpu")
        return kept[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_what_is_captured_is_the_models_own(loaded, name):
    found = geomprobe.inspect(loaded(name).model)
    assert found.trusted, found.agreement
    layers = [layer for layer in found.layers if layer.kind == "softmax"]
    assert len(layers) == {"smollm2-135m": 30, "gemma3-270m": 18, "qwen2.5-coder-0.5b": 24}[name]
    normed = "norm" if name == "gemma3-270m" else "none"
    for layer in layers:
        assert (layer.verdict["q"], layer.verdict["k"], layer.verdict["v"]) == (normed, normed, "none"), layer
        assert set(layer.stages["q"]) == set(layer.stages["k"]) == {"projected", "content", "scored"}
        assert (layer.rotary.kind, layer.rotary.share) == ("half", 1.0)
        assert layer.notes == ()
    windows = {layer.window for layer in layers}
    assert windows == ({512, None} if name == "gemma3-270m" else {None})


def test_gains_are_those_that_the_model_multiplies_by(loaded):
    """Gemma multiplies by 1 + w. Its GGUF holds 1 + w, transformers w, and what is measured is 1 + w again."""
    model = loaded("gemma3-270m").model
    found = geomprobe.inspect(model)
    weights = load_file(next(resolve("gemma3-270m").path.glob("*.safetensors")))
    for layer in found.layers:
        for norm, name in ((layer.q_norm, "q_norm"), (layer.k_norm, "k_norm")):
            assert (norm.kind, norm.axis, norm.order) == ("rms", "head", "before_rope")
            assert norm.bias is None
            (own,) = (x for key, x in weights.items() if key.endswith(f"layers.{layer.layer}.self_attn.{name}.weight"))
            due = np.broadcast_to(1 + own.double().numpy(), norm.gain.shape)
            assert np.abs(norm.gain - due).max() <= 1e-4 * np.abs(due).max()
    # Some channels are switched off: with the 1 added twice, no gain would be near 0.
    assert min(np.abs(layer.k_norm.gain).min() for layer in found.layers) < 1e-3


def test_biases_of_projections_are_in_what_is_captured(loaded):
    model = loaded("qwen2.5-coder-0.5b").model
    ids = torch.arange(100, 124)[None]
    outputs = {}
    attention = model.model.layers[3].self_attn
    handles = [
        module.register_forward_hook(lambda _m, given, _out, name=name: outputs.__setitem__(name, given[0].clone()))
        for name, module in (("q", attention.q_proj), ("k", attention.k_proj), ("v", attention.v_proj))
    ]
    with torch.no_grad(), geomprobe.capture(model, stages=("projected", "content", "scored")) as seen:
        model(ids, use_cache=False)
    for handle in handles:
        handle.remove()
    for vector in ("q", "k", "v"):
        projection = getattr(attention, f"{vector}_proj")
        assert projection.bias.abs().max() > 0.01
        due = outputs[vector].double() @ projection.weight.double().T + projection.bias.double()
        made = getattr(seen[3], vector)["projected"].transpose(1, 2).flatten(2).double()
        assert (made - due).abs().max() <= 1e-4 * due.abs().max()

"""Listening at the attention interface: what a listener is told, and that nothing stays when the last one leaves."""

import pytest
import torch
from tiny import on, some_ids, traces
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from geomprobe.attention.interface import callers, listening
from geomprobe.testing import tiny_model


class Ear:
    """A listener that notes who called and lets the kernel run; deaf to modules that are not in `model`."""

    def __init__(self, model):
        self.own = {id(module) for module in model.modules()}
        self.heard = []

    def __call__(self, module, kernel, args, kwargs, run):
        if id(module) not in self.own:
            return run()
        self.heard.append((kernel, len(args), "scaling" in kwargs))
        return run()


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_a_listener_hears_every_layer_and_the_kernel_in_use(kernel):
    model = on(kernel, "llama")
    ear = Ear(model)
    with torch.no_grad(), listening(ear):
        model(some_ids())
        tiny_model("llama", seed=1)(some_ids())
    assert [name for name, *_ in ear.heard] == [kernel, kernel]


def test_the_kernel_runs_once():
    model = tiny_model("llama")
    runs = []
    original = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def counted(*args, **kwargs):
        runs.append(1)
        return original(*args, **kwargs)

    try:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = counted
        with torch.no_grad(), listening(Ear(model)), listening(Ear(tiny_model("llama", seed=1))):
            model(some_ids())
    finally:
        del ALL_ATTENTION_FUNCTIONS["sdpa"]  # the entry above lay over the global one
    assert len(runs) == 2
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is original


def test_listeners_may_leave_in_any_order():
    model = tiny_model("llama")
    before = traces(model)
    first, second = Ear(model), Ear(model)
    outer, inner = listening(first), listening(second)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert traces(model) != before
    with torch.no_grad():
        model(some_ids())
    inner.__exit__(None, None, None)
    assert traces(model) == before
    assert (len(first.heard), len(second.heard)) == (0, 2)


def test_another_patch_below_survives(monkeypatch):
    """What the interface was before, even if not transformers' own, is what it is afterwards."""
    original = AttentionInterface.get_interface

    def theirs(self, name, default):
        return original(self, name, default)

    monkeypatch.setattr(AttentionInterface, "get_interface", theirs)
    with listening(Ear(tiny_model("llama"))):
        assert AttentionInterface.get_interface is not theirs
    assert AttentionInterface.get_interface is theirs


def test_an_unknown_kernel_is_still_an_error():
    model = tiny_model("llama")
    with listening(Ear(model)), pytest.raises(KeyError, match="nonsense"):
        ALL_ATTENTION_FUNCTIONS.get_interface("nonsense", None)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gemma3", "gpt_oss"])
def test_callers_are_the_attention_modules(family):
    model = tiny_model(family)
    assert list(callers(model)) == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert list(callers(model.model.layers[1])) == ["self_attn"]
    assert callers(model.lm_head) == {}

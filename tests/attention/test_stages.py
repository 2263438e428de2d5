"""The stages of a vector: found by following it back, the same numbers that the modules themselves put out."""

import sys

import pytest
import torch
import transformers
from tiny import LENGTH, PADDING, STAGES, cached, on, padded, some_ids

from geomprobe.attention.seam import capture
from geomprobe.testing import tiny_model


@pytest.fixture(params=["eager", "sdpa"])
def kernel(request):
    return request.param


def watched(model, **inputs):
    """Records with all stages, and by name what the modules inside attention put out in the same pass."""
    outputs = {}
    handles = [
        module.register_forward_hook(lambda _m, _a, output, name=name: outputs.__setitem__(name, output.clone()))
        for name, module in model.named_modules()
        if ".self_attn." in name
    ]
    with torch.no_grad(), capture(model, stages=STAGES) as seen:
        model(**inputs)
    for handle in handles:
        handle.remove()
    return seen, outputs


def heads(projected, head_dim=16):
    """(batch, pos, head · head_dim) → (batch, head, pos, head_dim)."""
    return projected.unflatten(-1, (-1, head_dim)).transpose(1, 2)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt_oss"])
def test_projected_is_what_the_projection_puts_out(family):
    seen, outputs = watched(tiny_model(family), **padded())
    for record in seen:
        for vector in ("q", "k", "v"):
            own = heads(outputs[f"{record.module}.{vector}_proj"])
            assert torch.equal(getattr(record, vector)["projected"], own)


@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_without_a_norm_content_is_projected(family, kernel):
    if (family, kernel) == ("gpt_oss", "sdpa"):
        return
    seen, _ = watched(on(kernel, family), **padded())
    for record in seen:
        for vector in (record.q, record.k):
            assert torch.equal(vector["content"], vector["projected"])
            assert not torch.equal(vector["content"], vector["scored"])
            difference = vector["content"].norm(dim=-1) - vector["scored"].norm(dim=-1)
            assert difference.abs().max() <= 1e-5  # a rotation keeps lengths


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_with_a_norm_content_is_the_normed_projection(family, kernel):
    model = on(kernel, family)
    seen, _ = watched(model, **padded())
    for record in seen:
        module = model.get_submodule(record.module)
        for vector, norm in ((record.q, module.q_norm), (record.k, module.k_norm)):
            with torch.no_grad():
                normed = norm(vector["projected"].transpose(1, 2)).transpose(1, 2)
            assert torch.equal(vector["content"], normed)
            assert (vector["content"].norm(dim=-1) - vector["projected"].norm(dim=-1)).abs().max() > 0.1
            assert (vector["content"].norm(dim=-1) - vector["scored"].norm(dim=-1)).abs().max() <= 1e-5


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gpt_oss"])
def test_scored_is_the_rotated_content(family):
    model = tiny_model(family)
    inputs = {"input_ids": some_ids(), "use_cache": False}
    seen, _ = watched(model, **inputs)
    with torch.no_grad():
        turn = model.model.rotary_emb(torch.zeros(1, 1, 1), torch.arange(LENGTH)[None])
    modelling = sys.modules[type(model).__module__]
    for record in seen:
        query, key = modelling.apply_rotary_pos_emb(record.q["content"], record.k["content"], *turn)
        assert torch.equal(query, record.q["scored"])
        assert torch.equal(key, record.k["scored"])


def test_values_have_no_rotation():
    seen, _ = watched(tiny_model("gemma3"), **padded())
    assert all(torch.equal(record.v["projected"], record.v["scored"]) for record in seen)


def test_position_zero_is_not_rotated():
    seen, _ = watched(tiny_model("llama"), input_ids=some_ids(), use_cache=False)
    for record in seen:
        assert torch.equal(record.k["content"][:, :, 0], record.k["scored"][:, :, 0])
        assert not torch.equal(record.k["content"][:, :, 1], record.k["scored"][:, :, 1])


# Where a text has as many tokens as the layer has heads, (batch, head, pos, width)
# and (batch, pos, head, width) have one shape; in_heads takes the second, so `content` comes out transposed (with a
# norm) or is not found (without). It bites a prompt of 8, 16 or 32 tokens, and, as an analysis examines 64 tokens,
# every model with 64 heads.
@pytest.mark.parametrize("length", [2, 4])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_as_many_tokens_as_heads(family, length):
    ids = some_ids(length=LENGTH)
    model = tiny_model(family)
    whole, _ = watched(model, input_ids=ids, use_cache=False)
    short, _ = watched(model, input_ids=ids[:, :length], use_cache=False)
    for record, expected in zip(short, whole, strict=True):
        for vector in ("q", "k"):
            kept, due = getattr(record, vector), getattr(expected, vector)
            assert set(kept) == set(STAGES)
            for stage in STAGES:
                assert (kept[stage] - due[stage][:, :, :length]).abs().max() <= 1e-5, (vector, stage)


# A path is traced at a module's first call and kept. Where that call goes
# through a cache, its keys are not traced to the end, and no later call of the context finds their stages.
def test_stages_after_a_first_call_through_a_cache():
    model = tiny_model("qwen3")
    ids = some_ids(length=9)
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids[:, :8], use_cache=True, **cached(model, cache))
        with capture(model, stages=STAGES) as seen:
            model(ids[:, 8:], use_cache=True, **cached(model, cache))
            model(ids, use_cache=False)
    assert [set(record.k) for record in seen[:2]] == [{"scored"}] * 2
    assert [set(record.k) for record in seen[2:]] == [set(STAGES)] * 2


def test_stages_are_copies():
    """What a projection put out may be overwritten once the kernel has run."""
    model = tiny_model("llama")
    inputs = padded()
    clean, _ = watched(model, **inputs)
    last = []

    def note(_module, _args, output):
        last.append(output)

    def overwrite(_module, _args, _output):
        last.pop().zero_()

    for layer in model.model.layers:
        layer.self_attn.k_proj.register_forward_hook(note)
        layer.self_attn.register_forward_hook(overwrite)
    with torch.no_grad(), capture(model, stages=STAGES) as seen:
        model(**inputs)
    for record, expected in zip(seen, clean, strict=True):
        assert record.k["projected"].any()
        assert torch.equal(record.k["projected"], expected.k["projected"])


@pytest.mark.parametrize("n", [1, len(PADDING)])
def test_other_batches_of_one_context(n):
    """The trace of the first call serves later ones of any shape."""
    model = tiny_model("qwen3")
    with torch.no_grad(), capture(model, stages=STAGES) as seen:
        model(some_ids(length=7), use_cache=False)
        model(some_ids(n, length=11, seed=1), use_cache=False)
    for record in seen:
        module = model.get_submodule(record.module)
        with torch.no_grad():
            normed = module.k_norm(record.k["projected"])
        assert (record.k["content"] - normed).abs().max() <= 1e-6
    assert seen[2].k["content"].shape == (n, 2, 11, 16)

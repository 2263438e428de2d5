"""capture: the model computes what it computed before, and the records hold what its kernel got."""

import pytest
import torch
import transformers
from tiny import CASES, FAMILIES, LENGTH, PADDING, STAGES, cached, on, padded, some_ids, traces

import geomprobe
from geomprobe.attention.seam import capture, watching
from geomprobe.errors import InvalidParameter, UnsupportedModel
from geomprobe.testing import tiny_model


@pytest.fixture(params=CASES, ids="-".join)
def case(request):
    family, kernel = request.param
    return on(kernel, family)


def test_it_is_the_public_capture():
    assert geomprobe.capture is capture


# ------------------------------------------------------------------ the model is left alone
def test_outputs_are_bit_identical_before_during_and_after(case):
    inputs = padded()
    with torch.no_grad():
        before = case(**inputs).logits
        with capture(case, stages=STAGES) as seen:
            during = case(**inputs).logits
        after = case(**inputs).logits
    assert len(seen) == 2
    assert torch.isfinite(before).all()
    assert torch.equal(before, during)
    assert torch.equal(before, after)


@pytest.mark.parametrize("stages", [("scored",), STAGES], ids="+".join)
def test_nothing_stays_behind(case, stages):
    before = traces(case)
    with torch.no_grad(), capture(case, stages=stages):
        assert traces(case) != before  # else this test sees nothing
        case(**padded())
    assert traces(case) == before


def test_nothing_stays_behind_after_an_exception_in_the_context():
    model = tiny_model("gemma3")
    before = traces(model)
    seen = None

    def use():
        nonlocal seen
        with torch.no_grad(), capture(model, stages=STAGES) as seen:
            model(**padded())
            raise ZeroDivisionError("ours")

    with pytest.raises(ZeroDivisionError, match="ours"):
        use()
    assert traces(model) == before
    assert len(seen) == 2


class Trip:
    """A forward hook that raises the first time."""

    def __init__(self):
        self.armed = True

    def __call__(self, _module, _args, _output):
        if self.armed:
            self.armed = False
            raise ZeroDivisionError("tripped")


@pytest.mark.parametrize("place", ["model.layers.0.mlp", "model.layers.0.self_attn.k_norm", "model.layers.1.self_attn"])
def test_nothing_stays_behind_after_an_exception_in_the_model(place):
    model = tiny_model("gemma3")
    handle = model.get_submodule(place).register_forward_hook(Trip())
    before = traces(model)
    with pytest.raises(ZeroDivisionError, match="tripped"), torch.no_grad(), capture(model, stages=STAGES):
        model(**padded())
    assert traces(model) == before
    handle.remove()


@pytest.mark.parametrize("place", ["model.layers.0.mlp", "model.layers.0.self_attn.k_norm", "model.layers.1.self_attn"])
def test_a_pass_that_broke_off_leaves_the_next_one_alone(place):
    model = tiny_model("gemma3")
    inputs = padded()
    with torch.no_grad(), capture(model, stages=STAGES) as clean:
        model(**inputs)
    handle = model.get_submodule(place).register_forward_hook(Trip())
    with torch.no_grad(), capture(model, stages=STAGES) as seen:
        with pytest.raises(ZeroDivisionError, match="tripped"):
            model(**inputs)
        model(**inputs)
    handle.remove()
    for record, expected in zip(seen[-2:], clean, strict=True):
        assert record.layer == expected.layer
        for vector in ("q", "k", "v"):
            kept, due = getattr(record, vector), getattr(expected, vector)
            assert kept.keys() == due.keys()
            assert all(torch.equal(kept[stage], due[stage]) for stage in due)


def test_gradients_are_those_of_the_bare_model():
    def gradients(model):
        model.zero_grad()
        model(**padded()).logits.square().mean().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    model = tiny_model("llama")
    expected = gradients(model)
    with capture(model, stages=STAGES) as seen:
        found = gradients(model)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert not any(x.requires_grad for record in seen for x in (*record.q.values(), *record.k.values()))


# ------------------------------------------------------------------ what is recorded
def test_records_come_in_the_order_of_the_calls_and_count_up():
    model = tiny_model("llama")
    with torch.no_grad(), capture(model) as seen:
        model(some_ids(seed=0))
        assert [record.call for record in seen] == [0, 0]
        model(some_ids(seed=1))
    assert [(record.layer, record.call) for record in seen] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [record.module for record in seen[:2]] == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert not torch.equal(seen[0].q["scored"], seen[2].q["scored"])
    assert repr(seen) == "<4 records of 2 attention modules>"
    assert [len(part) for part in (seen[1:], seen[-1:])] == [3, 1]


def test_layouts_and_scale(case):
    with torch.no_grad(), capture(case, stages=STAGES) as seen:
        case(**padded())
    for record in seen:  # read after the context has closed
        module = case.get_submodule(record.module)
        assert set(record.q) == set(record.k) == set(STAGES)
        for vector, heads in ((record.q, 4), (record.k, 2), (record.v, 2)):
            assert {tensor.shape for tensor in vector.values()} == {(len(PADDING), heads, LENGTH, 16)}
        assert record.scale == module.scaling
        assert record.attention().shape == (len(PADDING), 4, LENGTH, LENGTH)


def test_only_the_stages_that_were_asked_for_are_kept():
    model = tiny_model("llama")
    for stages in ("content", ("content",)):
        with torch.no_grad(), capture(model, stages=stages) as seen:
            model(some_ids())
        assert all(set(record.q) == set(record.k) == {"content"} for record in seen)
        assert seen[0].attention().shape == (1, 4, LENGTH, LENGTH)  # it keeps what it needs by itself
    with torch.no_grad(), capture(model) as seen:
        model(some_ids())
    assert all(set(x) == {"scored"} for record in seen for x in (record.q, record.k, record.v))


def test_a_submodule_can_be_watched_alone():
    model = tiny_model("llama")
    with torch.no_grad(), capture(model.model.layers[1]) as seen:
        model(some_ids())
    assert [(record.layer, record.module) for record in seen] == [(1, "self_attn")]


def test_a_second_model_in_the_context_is_not_recorded():
    model, other = tiny_model("llama"), tiny_model("llama", seed=1)
    with torch.no_grad(), capture(model, stages=STAGES) as seen:
        model(some_ids())
        other(some_ids())
        tiny_model("qwen3")(some_ids())
        assert len(seen) == 2
        model(some_ids())
    assert [record.call for record in seen] == [0, 0, 1, 1]
    assert all(torch.equal(a.k[stage], b.k[stage]) for a, b in zip(seen[:2], seen[2:], strict=True) for stage in STAGES)


def test_captures_of_two_models_nest():
    model, other = tiny_model("llama"), tiny_model("llama", seed=1)
    before = traces(model), traces(other)
    with torch.no_grad(), capture(model, stages=STAGES) as outer:
        with capture(other, stages=STAGES) as inner:
            model(some_ids())
            other(some_ids())
        model(some_ids())
    assert (len(outer), len(inner)) == (4, 2)
    assert all(set(record.k) == set(STAGES) for record in (*outer, *inner))
    assert not torch.equal(outer[0].k["scored"], inner[0].k["scored"])
    assert (traces(model), traces(other)) == before


# The first listener that answers is the only one that is told, so an
# outer capture of the same model misses whatever runs while an inner one is open.
def test_captures_of_one_model_nest():
    model = tiny_model("llama")
    before = traces(model)
    with torch.no_grad():
        bare = model(some_ids()).logits
        with capture(model) as outer:
            model(some_ids())
            with capture(model, stages=STAGES) as inner:
                watched = model(some_ids()).logits
            model(some_ids())
    assert traces(model) == before
    assert torch.equal(bare, watched)
    assert len(inner) == 2
    assert [record.call for record in outer] == [0, 0, 1, 1, 2, 2]


# Each notebook puts back the rotary function that it found, so that one
# which closes before a later one does leaves the later one's wrapper, or its own, in the modelling module for good.
def test_captures_may_close_in_any_order():
    model, other = tiny_model("llama"), tiny_model("llama", seed=1)
    before = traces(model), traces(other)
    with torch.no_grad():
        first, second = capture(model, stages=STAGES), capture(other, stages=STAGES)
        first.__enter__()
        seen = second.__enter__()
        first.__exit__(None, None, None)
        other(some_ids())
        second.__exit__(None, None, None)
    assert [set(record.k) for record in seen] == [set(STAGES)] * 2
    assert (traces(model), traces(other)) == before


def test_records_are_copies():
    """A static cache hands its own buffers to the kernel and writes into them at the next token."""
    model = tiny_model("llama")
    ids = some_ids(length=12)

    def keys(*, more):
        cache = transformers.StaticCache(config=model.config, max_cache_len=16)
        with torch.no_grad(), capture(model) as seen:
            model(ids[:, :11], **cached(model, cache))
            if more:
                model(ids[:, 11:], **cached(model, cache))
        return [record.k["scored"] for record in seen], [record.attention() for record in seen]

    (alone, alone_weights), (both, both_weights) = keys(more=False), keys(more=True)
    assert torch.equal(alone[0], both[0])
    assert torch.equal(alone_weights[0], both_weights[0])
    assert not torch.equal(both[0], both[2])


# ------------------------------------------------------------------ attention
# In float64 the eager functions of transformers make NaN of padding on the left, so there only the right is padded.
ROOM = {torch.float32: PADDING, torch.float64: (PADDING[0], PADDING[2])}


def own_weights(family, inputs, dtype):
    """What the eager function itself says, and the records of the same pass."""
    model = on("eager", family, dtype=dtype)
    with torch.no_grad(), capture(model) as seen:
        output = model(**inputs, output_attentions=True)
    return seen, output.attentions


@pytest.mark.parametrize("dtype", list(ROOM), ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_attention_is_that_of_the_eager_function(family, dtype):
    """Window, soft-cap, learned sinks and padding included."""
    inputs = padded(padding=ROOM[dtype])
    seen, own = own_weights(family, inputs, dtype)
    # Padding on the left sees nothing, not even itself.
    blind = (inputs["attention_mask"].cumsum(1) == 0)[:, None].expand(-1, 4, -1)
    assert blind.any() == (dtype == torch.float32)
    for record, weights in zip(seen, own, strict=True):
        rebuilt = record.attention()
        assert rebuilt.dtype == dtype
        assert (rebuilt[~blind] - weights[~blind]).abs().max() <= 1e-6
        hidden = rebuilt[~blind] == 0
        assert hidden.any()
        assert (weights[~blind][hidden] == 0).all()
        # Where a row has a learned sink, all of its mass goes there.
        assert (rebuilt[blind] == 0).all() if family == "gpt_oss" else rebuilt[blind].isnan().all()
        mass = rebuilt[~blind].sum(-1)
        assert (mass < 0.999).any() if family == "gpt_oss" else ((mass - 1).abs() < 1e-5).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-6)], ids=str)
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_attention_under_sdpa_is_that_of_eager(family, dtype, tolerance):
    inputs = padded(padding=ROOM[dtype])
    _, own = own_weights(family, inputs, dtype)
    model = on("sdpa", family, dtype=dtype)
    valid = inputs["attention_mask"].bool()[:, None].expand(-1, 4, -1)
    with torch.no_grad(), capture(model) as seen:
        model(**inputs)
    for record, weights in zip(seen, own, strict=True):
        assert (record.attention()[valid] - weights[valid]).abs().max() <= tolerance


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_without_a_mask_sdpa_is_causal(family):
    """Without padding transformers passes no mask, and only the flag says that the layer is causal."""
    ids = some_ids(length=30)
    model = on("sdpa", family, dtype=torch.float64)
    with torch.no_grad(), capture(model) as seen:
        model(ids, use_cache=False)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(ids, output_attentions=True, use_cache=False).attentions
    for record, weights in zip(seen, own, strict=True):
        assert record._made.mask is None
        assert (record.attention() - weights).abs().max() <= 1e-6


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_attention_through_a_cache(family, kernel):
    """Prefill, then one token: a sliding layer's cache hands out its window only."""
    if (family, kernel) not in CASES:
        return
    ids = some_ids(length=LENGTH + 1)
    model = on(kernel, family)
    reference = on("eager", family)

    def two_calls(model, **options):
        given = cached(model, transformers.DynamicCache(config=model.config))
        first = model(ids[:, :LENGTH], use_cache=True, **given, **options)
        second = model(ids[:, LENGTH:], use_cache=True, **given, **options)
        return first, second

    with torch.no_grad():
        bare = two_calls(model)
        with capture(model, stages=STAGES) as seen:
            watched = two_calls(model)
        own = [weights for output in two_calls(reference, output_attentions=True) for weights in output.attentions]
    assert all(torch.equal(a.logits, b.logits) for a, b in zip(bare, watched, strict=True))
    assert [record.call for record in seen] == [0, 0, 1, 1]
    assert {record.attention().shape[:3] for record in seen[2:]} == {(1, 4, 1)}
    assert max(record.attention().shape[3] for record in seen[2:]) == LENGTH + 1
    for record, weights in zip(seen, own, strict=True):
        rebuilt = record.attention()
        assert rebuilt.shape == weights.shape
        assert (rebuilt - weights).abs().max() <= 5e-6
    for record in seen[2:]:
        assert {tensor.shape for tensor in record.q.values()} == {(1, 4, 1, 16)}
        assert set(record.q) == set(STAGES)
        # The keys before the last come from the cache, so that only `scored` has all of them.
        assert set(record.k) == {"scored"}


# ------------------------------------------------------------------ refusals
def test_an_unknown_stage_is_refused():
    said = r"stages must be one of 'projected', 'content', 'scored'; got 'rotated'\."
    with pytest.raises(InvalidParameter, match=said), capture(tiny_model("llama"), stages=("scored", "rotated")):
        pass


SMALL = {"vocab_size": 160, "hidden_size": 32, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Mamba", {"state_size": 4}),
        ("FalconMamba", {"state_size": 4}),
    ],
)
def test_a_model_without_attention_is_refused_by_name(name, options):
    config = getattr(transformers, f"{name}Config")(**SMALL, **options)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    before = traces(model)
    said = rf"^{name}ForCausalLM has no attention that geomprobe can see: .* attention interface"
    with pytest.raises(UnsupportedModel, match=said), capture(model):
        pass
    assert traces(model) == before


def test_attention_in_code_of_its_own_that_cannot_be_followed_is_refused():
    config = transformers.XLNetConfig(vocab_size=160, d_model=32, n_layer=1, n_head=4, d_inner=32)
    model = transformers.XLNetLMHeadModel(config).eval()
    before = traces(model)
    said = r"^XLNetRelativeAttention \(transformer\.layer\.0\.rel_attn\) computes attention in code of its own"
    with pytest.raises(UnsupportedModel, match=said), torch.no_grad(), capture(model):
        model(some_ids())
    assert traces(model) == before


@pytest.mark.parametrize("kernel", ["flash_attention_2", "flex_attention", "paged|eager"])
def test_a_kernel_that_hides_its_mask_is_refused(kernel, monkeypatch):
    model = tiny_model("llama")
    monkeypatch.setattr(model.config, "_attn_implementation_internal", kernel)
    before = traces(model)
    monkeypatch.setattr("transformers.models.llama.modeling_llama.create_causal_mask", lambda **_: None)
    said = rf"The attention kernel '{kernel.replace('|', '.')}' hides its mask; .*attn_implementation='sdpa'"
    with pytest.raises(UnsupportedModel, match=said), torch.no_grad(), capture(model):
        model(some_ids())
    monkeypatch.undo()
    after = traces(model)
    assert after["interface"] == before["interface"]
    assert after["hooks"] == before["hooks"]


def test_what_was_seen_moves_to_the_cpu_whole():
    model = tiny_model("gpt_oss")
    moved = []
    with torch.no_grad(), watching(model, lambda seen: moved.append((seen, seen.on_cpu()))):
        model(some_ids())
    for seen, copy in moved:
        assert torch.equal(seen.call.sinks, copy.call.sinks)
        for vector in ("q", "k"):
            here, there = seen.stages(vector), copy.stages(vector)
            assert set(here) == set(there) == {"projected", "content", "scored"}
            assert all(torch.equal(here[stage], there[stage]) for stage in here)

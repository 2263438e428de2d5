"""The self-check passes on what is captured rightly, and a small lie about any part of it is found."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import FAMILIES, on, some_ids, traces

from geomprobe.attention import parity, seam
from geomprobe.attention.anatomy import examine
from geomprobe.attention.call import read_call
from geomprobe.attention.parity import check_parity, eager, probe_length, rebuilt
from geomprobe.attention.spec import LayerSpec, ModelSpec
from geomprobe.errors import ParityError
from geomprobe.testing import tiny_model

LOWEST = torch.finfo(torch.float32).min
LENGTH = 64  # longer than the sliding windows of the tiny models
EVERYTHING_OFF = (
    r"^Parity failed at layer 0: .* is off by \S+ and the output by \S+ \(allowed [1-9]\S*e-05\); geomprobe does"
)


def proven(model, length=LENGTH):
    ids = some_ids(length=length)
    return check_parity(model, examine(model, ids), ids)


# Most eager functions take their softmax in float32 whatever the model's
# dtype, so their weights cannot agree to 1e-9, and every float64 model but GPT-OSS is refused.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_five_families_pass(family, dtype):
    table = proven(tiny_model(family, dtype=dtype))
    assert table["layer"].tolist() == [-1, 0, 1]
    assert table["ok"].all()
    assert np.isnan(table["max_abs_attention"][0])
    assert table[["max_abs_output", "tolerance"]].iloc[0].tolist() == [0, 0]
    layers = table.iloc[1:]
    for column in ("max_abs_attention", "max_abs_output"):
        assert layers[column].notna().all()
        assert (layers[column] <= layers["tolerance"]).all()


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_on_the_eager_kernel(family):
    assert proven(on("eager", family))["ok"].all()


@pytest.mark.parametrize("rows", [None, 7])
def test_rebuilt_is_the_attention_of_the_record(rows):
    """The blocks that probes get and the records that people get are two ways to one thing."""
    model = tiny_model("gpt_oss", dtype=torch.float64)
    ids = some_ids()
    found = []
    with torch.no_grad(), seam.watching(model, lambda seen: found.append(rebuilt(seen, rows=rows))):
        model(ids, use_cache=False)
    with torch.no_grad(), seam.capture(model) as records:
        model(ids, use_cache=False)
    for whole, record in zip(found, records, strict=True):
        assert (whole - record.attention()).abs().max() <= 1e-12


# ------------------------------------------------------------------ planted defects
def masked(call, keep):
    """The call with another mask, in the form that its kernel takes."""
    return replace(call, mask=keep if call.kernel != "eager" else torch.where(keep, 0.0, LOWEST))


def shifted(call, *, by):
    """The call with a mask that lets every query see `by` keys too many ahead."""
    n = call.query.shape[2]
    return masked(call, torch.ones(1, 1, n, n, dtype=torch.bool).tril(by))


def a_key_too_many(call):
    """The call with sliding windows that are one key too long."""
    if call.mask is None:
        return call
    seen = call.visible()[0, 0]
    return masked(call, (seen | seen.roll(-1, 1)).tril()[None, None])


def rolled(call, vector):
    tensor = getattr(call, vector).clone()
    tensor[..., 3] = tensor[..., 3].roll(1, dims=2)
    return replace(call, **{vector: tensor})


DEFECTS = {
    "scale": ("llama", lambda call: replace(call, scale=call.scale * 1.001)),
    "a channel of q": ("llama", lambda call: rolled(call, "query")),
    "a channel of k": ("gemma3", lambda call: rolled(call, "key")),
    "heads in another order": ("qwen3", lambda call: replace(call, query=call.query.roll(1, dims=1))),
    "keys in another order": ("qwen3", lambda call: replace(call, key=call.key.flip(1))),
    "no sinks": ("gpt_oss", lambda call: replace(call, sinks=None)),
    "other sinks": ("gpt_oss", lambda call: replace(call, sinks=call.sinks.flip(1))),
    "no cap": ("gemma2", lambda call: replace(call, softcap=None)),
    "another cap": ("gemma2", lambda call: replace(call, softcap=call.softcap * 1.01)),
    "mask": ("llama", lambda call: shifted(call, by=1)),
    "no mask": ("qwen3", lambda call: replace(call, mask=None, is_causal=False)),
    "window": ("gemma3", a_key_too_many),
}


@pytest.mark.parametrize("kernel", ["eager", None])
@pytest.mark.parametrize("defect", list(DEFECTS))
def test_a_planted_defect_is_found(defect, kernel, monkeypatch):
    family, change = DEFECTS[defect]
    model = tiny_model(family)
    if kernel is not None:
        model.set_attn_implementation(kernel)
    ids = some_ids(length=LENGTH)
    spec = examine(model, ids)
    before = traces(model)
    monkeypatch.setattr(seam, "read_call", lambda *given: change(read_call(*given)))
    with pytest.raises(ParityError, match=EVERYTHING_OFF):
        check_parity(model, spec, ids)
    assert traces(model) == before


def test_a_window_shows_only_in_a_text_that_outruns_it(monkeypatch):
    """Why probe_length asks for more tokens where layers slide."""
    model = tiny_model("gemma3")
    ids = some_ids(length=32)
    spec = examine(model, ids)
    monkeypatch.setattr(seam, "read_call", lambda *given: a_key_too_many(read_call(*given)))
    assert check_parity(model, spec, ids)["ok"].all()


def test_a_capture_that_changes_the_output_is_found(monkeypatch):
    def meddling(*given):
        call = read_call(*given)
        call.query.mul_(1.0001)  # into the model's own tensor
        return call

    model = tiny_model("llama")
    ids = some_ids(length=LENGTH)
    spec = examine(model, ids)
    monkeypatch.setattr(seam, "read_call", meddling)
    with pytest.raises(ParityError, match=r"Parity failed at the model's output: .* and the output by .*\(allowed 0\)"):
        check_parity(model, spec, ids)


def test_a_layer_that_was_not_seen_is_found():
    model = tiny_model("llama")
    ids = some_ids(length=LENGTH)
    spec = examine(model, ids)
    extra = replace(spec.layers[1], layer=7, module="model.layers.7.self_attn")
    with pytest.raises(ParityError, match="Parity failed at layer 7"):
        check_parity(model, ModelSpec((*spec.layers, extra)), ids)


def test_numbers_that_are_not_finite_are_found(monkeypatch):
    model = tiny_model("llama")
    ids = some_ids(length=LENGTH)
    spec = examine(model, ids)
    monkeypatch.setattr(parity, "rebuilt", lambda *given, **more: rebuilt(*given, **more) * torch.nan)
    with pytest.raises(ParityError, match="off by inf and the output by inf"):
        check_parity(model, spec, ids)


# ------------------------------------------------------------------ the kernel comes back
@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_as_before(family):
    model = tiny_model(family)
    before = traces(model)
    proven(model)
    assert traces(model) == before


def test_eager_is_switched_on_and_off():
    model = tiny_model("gemma3")
    assert model.config._attn_implementation == "sdpa"
    with eager(model):
        assert {m.config._attn_implementation for m in model.modules() if hasattr(m, "config")} == {"eager"}
    assert {m.config._attn_implementation for m in model.modules() if hasattr(m, "config")} == {"sdpa"}


@pytest.mark.parametrize("which", [0, 3])
def test_the_kernel_comes_back_after_an_exception(which, monkeypatch):
    """In the pass with the kernel in use, and in the one on eager."""
    model = tiny_model("gemma3")
    ids = some_ids(length=LENGTH)
    spec = examine(model, ids)
    before = traces(model)
    calls = []

    def breaking(*given, **more):
        calls.append(model.config._attn_implementation)
        if len(calls) > which:
            raise ZeroDivisionError("tripped")
        return rebuilt(*given, **more)

    monkeypatch.setattr(parity, "rebuilt", breaking)
    with pytest.raises(ZeroDivisionError, match="tripped"):
        check_parity(model, spec, ids)
    assert calls[-1] == ("sdpa" if which == 0 else "eager")
    assert traces(model) == before


# ------------------------------------------------------------------ how long the probe text is
@pytest.mark.parametrize(
    ("windows", "window", "expected"),
    [
        ((None,), 512, 64),
        ((None,), 48, 48),
        ((40, None), 512, 72),
        ((40, None), 60, 60),
        ((512,), 512, 64),  # the pass does not outrun it
        ((512, None), 1024, 544),
        ((512, 128), 1024, 544),
        ((4096,), 8192, 64),  # a proof that long would cost too much
        ((4096, 256), 8192, 288),
    ],
)
def test_probe_length(windows, window, expected):
    layers = [
        LayerSpec(i, f"layers.{i}", 4, 2, 16, size, scale=0.25, softcap=None, learned_sinks=False)
        for i, size in enumerate(windows)
    ]
    assert probe_length(ModelSpec(tuple(layers)), window) == expected

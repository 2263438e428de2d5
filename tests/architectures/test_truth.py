"""What `inspect` says of a family is what its code says."""

import functools
from dataclasses import replace

import pytest
import torch

from geomprobe import inspection
from geomprobe.errors import UnsupportedModel
from geomprobe.inspection import Anatomy, inspect
from tests.architectures.building import MAPPINGS, build
from tests.architectures.truth import ROWS, Truth

# An L2 norm with a gain is an RMS norm with that gain by √d; only one of the two names can be told from outside.
EQUAL = {"l2": "rms"}
# Rows that behaviour cannot tell, or that cannot be built here.
LEFT_OUT = {
    "reformer": "its products cannot be followed",
    "swinv2": "its logits have a scale of each head",
}
CANNOT_BUILD = {("exaone4", (("sliding_window", None),)), ("olmo_hybrid", (("rope_parameters.rope_theta", None),))}
KINDS = {"complex": "interleaved", "unzip": "other"}  # how a pairing shows from outside


@functools.cache
def anatomy(model_type: str, mapping: str, flags: tuple) -> Anatomy:
    built = build(model_type, mapping, variant=dict(flags) or None)
    inputs = {k: v[:1] if isinstance(v, torch.Tensor) else v for k, v in built.plain.items()}
    return inspect(built.model, inputs=inputs)


def _norm(norm, row: Truth):
    if norm is None:
        return None
    kind = norm.kind if norm.kind not in EQUAL or row.model_type not in ("dory", "zaya") else EQUAL[norm.kind]
    gain = norm.has_gain if hasattr(norm, "has_gain") else norm.gain is not None
    bias = norm.has_bias if hasattr(norm, "has_bias") else norm.bias is not None
    if kind == "clip" or (row.verdict == "composite" and row.model_type != "zaya"):
        gain = False  # a cap hides what multiplies it
    return kind, norm.axis, norm.order, gain, bias


def _rows():
    for row in ROWS:
        known = row.mapping in MAPPINGS and row.model_type not in LEFT_OUT
        if known and (row.model_type, tuple(row.flags.items())) not in CANNOT_BUILD:
            yield pytest.param(row, id="-".join(map(str, (row.model_type, *row.flags.items(), row.layers))))


@pytest.mark.parametrize("row", list(_rows()))
def test_anatomy(row):
    found = anatomy(row.model_type, row.mapping, tuple(row.flags.items()))
    assert found.trusted, found.agreement
    due = tuple(_norm(norm, row) for norm in (row.q_norm, row.k_norm, row.v_norm))
    layers = [layer for layer in found.layers if layer.kind == "softmax" and "vision" not in layer.module]
    if not layers:
        layers = [layer for layer in found.layers if layer.kind == "softmax"]
    verdicts = {row.verdict} if row.model_type != "zaya" else {"norm"}  # its last step is a norm, whatever comes before
    fits = [
        layer
        for layer in layers
        if tuple(_norm(norm, row) for norm in (layer.q_norm, layer.k_norm, layer.v_norm)) == due
        and verdicts & {layer.verdict["q"], layer.verdict["k"]}
        and (layer.softcap is not None) == row.softcap
        and layer.sinks == row.sinks
        and (row.rotary is None) == (layer.rotary is None)
    ]
    enough = fits if row.layers != "all" else len(fits) == len(layers)
    assert enough, [(layer.q_norm, layer.k_norm, layer.v_norm, layer.verdict, layer.rotary) for layer in layers]
    assert any(layer.chunked for layer in fits) == (row.window == "chunk"), [layer.window for layer in fits]
    if row.rotary is not None:
        kind = KINDS.get(row.rotary[0], row.rotary[0])
        assert any(layer.rotary.kind == kind for layer in fits), [layer.rotary for layer in fits]


@pytest.mark.parametrize(("model_type", "mapping"), [("reformer", "causal"), ("swinv2", "vision")])
def test_what_is_left_out_is_refused(model_type, mapping):
    if mapping not in MAPPINGS:
        pytest.skip("no such mapping yet")
    built = build(model_type, mapping)
    with pytest.raises(UnsupportedModel, match="geomprobe can"):
        inspect(built.model, inputs=built.plain)


# ------------------------------------------------------------------ the table catches a detector that is wrong
DEFECTS = {
    "every norm is of each head": ("spreads", False, "olmo2"),
    "every norm stands before the rotation": ("before_rotation", True, "hunyuan_v1_dense"),
    "no norm is a LayerNorm": ("shift_invariant", False, "persimmon"),
    "no gain is seen": ("gain", None, "qwen3"),
    "a latent is all": ("linear", None, "deepseek_v3"),
}


def _check(rows):
    for row in rows:
        test_anatomy(row)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_wrong_detector_is_found(name, monkeypatch):
    field, value, model_type = DEFECTS[name]
    whole = inspection.probe_responses

    def wrong(tamperer):
        found = whole(tamperer)
        for vectors in found.values():
            for vector, answers in vectors.items():
                told = torch.zeros_like(answers.linear) if field == "linear" else value
                vectors[vector] = replace(answers, **{field: told})
        return found

    rows = [row.values[0] for row in _rows() if row.values[0].model_type == model_type]
    monkeypatch.setattr(inspection, "probe_responses", wrong)
    anatomy.cache_clear()
    try:
        with pytest.raises(AssertionError):
            _check(rows)
    finally:
        anatomy.cache_clear()

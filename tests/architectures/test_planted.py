"""Defects planted into the capture are found by the check that every model type goes through."""

from dataclasses import replace

import pytest
import torch

import geomprobe.attention.seam as seam
from geomprobe.attention.call import read_call
from geomprobe.attention.seam import Record
from tests.architectures.building import build
from tests.architectures.verifying import check


def one_more_key(call):
    seen = call.visible()
    if seen is None:
        return call
    longer = (seen | seen.roll(-1, -1)) & torch.ones(seen.shape[-2:], dtype=torch.bool).tril()
    return replace(call, mask=longer if call.mask_is_boolean_keep else torch.where(longer, 0.0, -1e9))


def other_groups(call):
    """Keys given to the wrong groups of queries."""
    return replace(call, key=call.key.flip(1))


DEFECTS = {
    "a doubled gain": ("qwen3", lambda call: replace(call, query=2 * call.query)),
    "a wrong scale": ("granite", lambda call: replace(call, scale=call.query.shape[-1] ** -0.5)),
    "a dropped sink": ("gpt_oss", lambda call: replace(call, sinks=None)),
    "a wrong window": ("mistral", one_more_key),
    "swapped groups": ("llama", other_groups),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect, monkeypatch):
    model_type, change = DEFECTS[defect]
    built = build(model_type)
    check(built)
    monkeypatch.setattr(seam, "read_call", lambda *given: change(read_call(*given)))
    with pytest.raises(AssertionError, match="is off by"):
        check(built)


def test_a_skipped_rotation_is_found(monkeypatch):
    built = build("llama")
    whole = Record.attention

    def skipped(self):
        made = replace(self._made, query=self.q["content"], key=self.k["content"])
        return whole(replace(self, _made=made))

    monkeypatch.setattr(Record, "attention", skipped)
    with pytest.raises(AssertionError, match="is off by"):
        check(built)


def test_an_output_that_changes_is_found(monkeypatch):
    built = build("llama")
    plain = seam._Watch.listen

    def louder(self, *given):
        output = plain(self, *given)
        return (output[0] * 1.0000002, *output[1:])

    monkeypatch.setattr(seam._Watch, "listen", louder)
    with pytest.raises(AssertionError, match="the output changes when watched"):
        check(built)


def test_a_hook_left_behind_is_found(monkeypatch):
    built = build("llama")
    plain = seam._Watch._seen

    def forgetful(self, call):
        call.module.register_forward_hook(lambda *_: None)
        return plain(self, call)

    monkeypatch.setattr(seam._Watch, "_seen", forgetful)
    with pytest.raises(AssertionError, match="something is left behind"):
        check(built)

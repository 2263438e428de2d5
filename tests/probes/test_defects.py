"""The comparison with the oracle catches defects: each is planted, and a test of test_oracle must fail."""

import pytest
import test_oracle
import torch
from watched import watched

import geomprobe.probes.class_attention as class_attention
import geomprobe.probes.logits as logits
import geomprobe.probes.loss as loss
import geomprobe.probes.norms as norms
import geomprobe.probes.sinks as sinks
import geomprobe.stats.moments as moments
import geomprobe.stats.suffix as suffix
from geomprobe.attention.batch import Block
from geomprobe.attention.visibility import Visibility

CASE = ("gpt_oss", torch.float64, "eager")


def scaled(monkeypatch, owner, name, factor):
    """A cached property of a block that is off by a factor."""
    original = vars(owner)[name].func
    monkeypatch.setattr(owner, name, property(lambda self: original(self) * factor))


def no_sink(monkeypatch):
    monkeypatch.setattr(Block, "log_normaliser", property(lambda self: self.key_log_normaliser))


def window_off_by_one(monkeypatch):
    original = Visibility.block

    def block(self, start, stop):
        visible, full_from, full_to = original(self, start, stop)
        visible = visible.clone()
        visible[..., 0] = visible[..., 1] if visible.shape[-1] > 1 else visible[..., 0]
        return visible, full_from + 1, full_to

    monkeypatch.setattr(Visibility, "block", block)


def queries_too_near(monkeypatch):
    original = suffix._far_sums

    def far(prefix, queries, keys):
        return original(prefix, queries, keys) + 1e-6 * prefix[:, :, keys]

    monkeypatch.setattr(suffix, "_far_sums", far)


def neighbours_with_itself(monkeypatch):
    original = suffix.neighbours_of

    def near(content, reach):
        found = original(content, reach)
        return suffix.Neighbours(found.content, found.count + 1, found.offset, reach)

    monkeypatch.setattr(class_attention, "neighbours_of", near)


def pooled_first(monkeypatch):
    monkeypatch.setitem(class_attention.UNIONS, "all", (*class_attention.UNIONS["all"], "first"))


def wrong_merge(monkeypatch):
    original = moments.merge

    def merge(a, b):
        return {**original(a, b), "m2": a["m2"] + b["m2"]}

    monkeypatch.setattr(moments, "merge", merge)


DEFECTS = {
    "the learned sink is forgotten": (no_sink, test_oracle.test_sinks),
    "a sliding window is one key too wide": (window_off_by_one, test_oracle.test_class_share_and_lift),
    "A_t0 is off by 1e-6": (lambda m: scaled(m, Block, "first_probability", 1 + 1e-6), test_oracle.test_sinks),
    "key mass is off by 1e-8": (
        lambda m: scaled(m, Block, "key_mass", 1 + 1e-8),
        test_oracle.test_class_share_and_lift,
    ),
    "early rows are kept": (lambda m: m.setattr(logits, "FROM_ROW", 15), test_oracle.test_logits),
    "positions before 16 judge": (lambda m: m.setattr(class_attention, "FROM_ROW", 15), test_oracle.test_class_sink),
    "begin is one position longer": (lambda m: m.setattr(sinks, "BEGIN", 11), test_oracle.test_sinks),
    "sink rates look at 63 rows": (lambda m: m.setattr(sinks, "RATE_ROWS", 20), test_oracle.test_sink_rates),
    "sink tokens need one query less": (lambda m: m.setattr(sinks, "LATER_QUERIES", 4), test_oracle.test_sink_tokens),
    "the mean query takes in another": (queries_too_near, test_oracle.test_class_sink),
    "a token is its own neighbour": (neighbours_with_itself, test_oracle.test_class_sink),
    "position 0 is pooled with the rest": (pooled_first, test_oracle.test_class_share_and_lift),
    "spread between batches is lost": (wrong_merge, test_oracle.test_norms),
    "quantiles are of another rank": (
        lambda m: m.setattr(norms, "QUANTILES", {**norms.QUANTILES, "p50": 0.6}),
        test_oracle.test_norms,
    ),
    "loss is of the same token": (lambda m: m.setattr(loss, "FROM_ROW", 17), test_oracle.test_loss),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_caught(defect, monkeypatch):
    plant, check = DEFECTS[defect]
    check(CASE, 1e-9)  # it passes as the package is
    plant(monkeypatch)
    broken = watched.__wrapped__(*CASE)
    monkeypatch.setattr(test_oracle, "watched", lambda *_case: broken)
    with pytest.raises(AssertionError):
        check(CASE, 1e-9)

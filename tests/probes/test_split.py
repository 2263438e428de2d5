"""Length against angle: the probe on whole models against a slow oracle, on attention whose parts were put there, and
its halves.
"""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from halved import (
    AT,
    EVERY,
    FAMILIES,
    GAUGES,
    LENGTH,
    MIDDLE,
    WINDOWS,
    Products,
    Row,
    close,
    in_gauge,
    judged,
    measured_of,
    model_of,
    observation_of,
    one_of,
    seen_of,
    tables_of,
    text_of,
)
from scipy.stats import spearmanr

import geomprobe.probes.split as split_probe
import geomprobe.probes.split_types as by_type
import geomprobe.stats.gauge as gauges
import geomprobe.stats.shares as shares
import geomprobe.stats.suffix as suffix
from geomprobe import testing
from geomprobe.attention.batch import QKBatch
from geomprobe.attention.spec import LayerSpec, ModelSpec, Spec
from geomprobe.errors import InvalidParameter, ParityError
from geomprobe.labels import CLASS_INDEX, TOKEN_CLASSES, UNIONS
from geomprobe.probes.assembly import summarise
from geomprobe.probes.base import observe
from geomprobe.probes.split import Split


# ------------------------------------------------------------------ the oracle
def phis(left):
    """(φ_norm, φ_angle) of means of what is left over."""
    empty, angle, length = (np.mean([one[name] for one in left]) for name in ("empty", "angle", "length"))
    return 0.5 * ((-length + empty) + (0 + angle)), 0.5 * ((-angle + empty) + (0 + length))


def expected_row(sequences, vectors, head, first):
    """What the table `split` says of a head, by window where documents need it."""
    left, rest, betas, z, weight = [], [], [], 0.0, 0
    for seq, both in zip(sequences, vectors, strict=True):
        lengths = np.linalg.norm(both[1][head], axis=1)
        middle = math.exp(np.mean([math.log(n) for n in lengths[1:]]))
        rows = [Row(seq, both, head, t, [j for j in seq.visible(t) if first == "in" or j > 0]) for t in AT]
        left.append([row.left_over() for row in rows])
        rest += [row.others(middle) for row in rows]
        betas.append(math.log(middle) + np.mean([math.log(row.m) for row in rows]))
        got = {j: [seq.probability(head, t, j) for t in AT if t > j and seq.sees(t, j)] for j in range(LENGTH)}
        for start in (0, 64):
            keys = [j for j in range(start, min(start + 64, LENGTH)) if got[j] and (first == "in" or j > 0)]
            rho = spearmanr(lengths[keys], [np.mean(got[j]) for j in keys]).statistic
            z, weight = z + (len(keys) - 3) * math.atanh(rho), weight + len(keys) - 3
    mean = {name: np.mean([one[name] for one in rest]) for name in rest[0]}
    norm, angle = phis([one for window in left for one in window])
    return left, {
        "phi_norm": norm,
        "phi_angle": angle,
        "norm_attention_rho": math.tanh(z / weight),
        "r2": mean["xy"] ** 2 / (mean["xx"] * mean["yy"]),
        "tv": mean["tv"],
        "beta": math.exp(np.mean(betas)),
        "leverage": mean["leverage"],
    }


def expected_classes(sequences, vectors, head):
    """{class: (class_sink, norm_part, types)} of a head, position 0 among them."""
    found, first = {}, []
    for seq, both in zip(sequences, vectors, strict=True):
        products, (keys, before) = Products(seq, both, head), judged(seq)
        for k, queries, near in keys:
            found.setdefault(seq.types[k], []).append(products.parts(queries, k, near))
        first += [products.parts(t, 0, others) for t, others in before]
    kept = {kind: np.mean(many, axis=0) for kind, many in found.items() if len(many) >= 5}
    content = np.mean([value for (_, kind), value in kept.items() if kind == "content"], axis=0)
    made = {"first": (*np.mean(first, axis=0), 1)}
    for name, members in ({n: [n] for n in TOKEN_CLASSES if n != "first"} | UNIONS).items():
        mine = [value for (_, kind), value in kept.items() if kind in members]
        made[name] = (*(np.mean(mine, axis=0) - content), len(mine)) if mine else (np.nan, np.nan, 0)
    return made


def check_split(tables, family):
    for layer, sequences in seen_of(family).items():
        for gauge in GAUGES:
            vectors = in_gauge(sequences, family, gauge)
            for first in ("out", "in"):
                for head in range(sequences[0].heads):
                    where = {"layer": layer, "q_head": head, "gauge": gauge, "first": first}
                    left, expected = expected_row(sequences[MIDDLE:], vectors, head, first)
                    got = one_of(tables["split"], document=-1, **where)
                    assert got["n_rows"] == len(AT) * (WINDOWS - MIDDLE)
                    for name, value in expected.items():
                        close(got[name], value)
                    for document, windows in ((1, left[:2]), (2, left[2:])):  # 0 lies in the first half
                        got = one_of(tables["split"], document=document, **where)
                        assert got["n_rows"] == len(AT) * len(windows)
                        norm, angle = phis([one for window in windows for one in window])
                        close(got["phi_norm"], norm)
                        close(got["phi_angle"], angle)


def check_classes(tables, family):
    for layer, sequences in seen_of(family).items():
        for gauge in GAUGES:
            vectors = in_gauge(sequences, family, gauge)
            for head in range(sequences[0].heads):
                for name, (whole, lengths, types) in expected_classes(sequences[MIDDLE:], vectors, head).items():
                    got = one_of(tables["class_split"], layer=layer, q_head=head, gauge=gauge, token_class=name)
                    assert got["n_types"] == types
                    close(got["class_sink"], whole)
                    close(got["norm_part"], lengths)
                    close(got["angle_part"], whole - lengths)


@pytest.mark.parametrize("family", FAMILIES)
def test_split_equals_the_oracle(family):
    check_split(measured_of(family), family)


@pytest.mark.parametrize("family", FAMILIES)
def test_class_split_equals_the_oracle(family):
    check_classes(measured_of(family), family)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gauge_is_one(family):
    table = measured_of(family)["split"]
    whole = table[table["document"] == -1]
    assert (whole["n_kept"] == 0).all()
    assert whole.loc[whole["gauge"] == "raw", "gauge_error"].isna().all()
    assert whole.loc[whole["gauge"] == "balanced", "gauge_error"].between(0, 1e-12).all()
    # What is told of attention alone is the same in both.
    classes = measured_of(family)["class_split"].pivot(
        index=["layer", "q_head", "token_class"], columns="gauge", values=["class_sink", "norm_part"]
    )
    sink, part = classes["class_sink"], classes["norm_part"]
    np.testing.assert_array_equal(sink["raw"], sink["balanced"])
    assert (part["raw"] - part["balanced"]).abs().max() > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_by_document_sum_to_the_whole(family):
    table = measured_of(family)["split"]
    where = ["layer", "q_head", "gauge", "first"]
    whole = table[table["document"] == -1].set_index(where)
    parts = table[table["document"] != -1]
    assert set(parts["document"]) == {1, 2}
    for names, by in ((("phi_norm", "phi_angle", "tv"), "n_rows"), (("k_log_mean",), "n_keys")):
        n = parts.groupby(where)[by].sum()
        assert (n == whole[by].reindex(n.index)).all()
        for name in names:
            weighted = (parts[name] * parts[by]).groupby([parts[key] for key in where]).sum()
            np.testing.assert_allclose(weighted, (whole[name] * whole[by]).reindex(weighted.index), rtol=1e-12)
    assert parts[["r2", "beta", "leverage", "norm_attention_rho", "gauge_error", "n_kept"]].isna().all(axis=None)


# ------------------------------------------------------------------ planted defects
def geometric(monkeypatch):
    def by_angle(self):
        middle = self.mean(self.key[..., None, :].expand_as(self.products))
        return self.products * (middle[..., None] / self.key[..., None, :])

    monkeypatch.setattr(shares.Rows, "by_angle", by_angle)


def half_sum(monkeypatch):
    """The angle part with the token's own length, so the length part with its neighbours' cosines."""
    original = suffix.contrast_parts

    def parts(query, key, *, neighbours, queries, scale):
        value, _ = original(query, key, neighbours=neighbours, queries=queries, scale=scale)
        unit = key.double() / key.double().norm(dim=-1, keepdim=True)
        angle, _ = original(query, unit, neighbours=neighbours, queries=queries, scale=scale)
        own = key.double().norm(dim=-1).repeat_interleave(query.shape[1] // key.shape[1], 1)
        return value, value - own * angle

    monkeypatch.setattr(by_type, "contrast_parts", parts)


def with_first(monkeypatch):
    original = gauges.add

    def add(moments, query, key):
        original(moments, *(torch.cat([x[:, :, :1], x], 2) for x in (query, key)))

    monkeypatch.setattr(gauges, "add", add)


def one_query_head(monkeypatch):
    original = gauges.add
    monkeypatch.setattr(gauges, "add", lambda m, q, k: original(m, q[:, :: q.shape[1] // k.shape[1]], k))


def not_centred(monkeypatch):
    original = gauges.balanced
    monkeypatch.setattr(gauges, "balanced", lambda moments, pairing, centred: original(moments, pairing, centred=False))


def no_sink(monkeypatch):
    original = split_probe._receive
    monkeypatch.setattr(split_probe, "_receive", lambda batch, every: original(replace(batch, sinks=None), every))


def no_slope(monkeypatch):
    original = split_probe.leverage
    monkeypatch.setattr(split_probe, "leverage", lambda rows, slope: original(rows, torch.ones_like(slope)))


def both_halves(monkeypatch):
    original = Split.update

    def update(self, state, batch):
        original(self, state, batch)
        if int(state["phase"]) == split_probe._CALIBRATING:
            state["phase"][0] = split_probe._PLAIN
            original(self, state, batch)
            state["phase"][0] = split_probe._CALIBRATING

    monkeypatch.setattr(Split, "update", update)


DEFECTS = {
    "the mean length in place of the geometric mean": (geometric, check_split, "llama"),
    "the angle part has n_f in place of half the sum": (half_sum, check_classes, "llama"),
    "position 0 is in the moments": (with_first, check_split, "llama"),
    "a group's first head stands for all": (one_query_head, check_split, "llama"),
    "keys are not centred where they may be": (not_centred, check_split, "gpt2"),
    "the learned sink takes nothing": (no_sink, check_split, "gpt_oss"),
    "the slope of the soft-cap is forgotten": (no_slope, check_split, "gemma2"),
    "the first half is measured too": (both_halves, check_split, "llama"),
    "early rows are kept": (lambda m: m.setattr(split_probe, "FROM_ROW", 15), check_split, "gemma3"),
    "positions before 16 are judged": (lambda m: m.setattr(by_type, "FROM_ROW", 15), check_classes, "gemma3"),
    "buckets are smaller": (lambda m: m.setattr(split_probe, "BUCKET", 48), check_split, "gemma3"),
}


@pytest.mark.parametrize("defect", list(DEFECTS))
def test_a_planted_defect_is_caught(defect, monkeypatch):
    plant, check, family = DEFECTS[defect]
    plant(monkeypatch)
    broken = tables_of(model_of(family), text_of())
    with pytest.raises(AssertionError, match="assert"):
        check(broken, family)


# ------------------------------------------------------------------ planted attention
PLANTED = 200


def planted_spec(**changes):
    layer = LayerSpec(0, "planted", 2, 1, 8, None, 1.0, None, learned_sinks=False, pairs=("half", tuple(range(8))))
    return Spec(ModelSpec((replace(layer, **changes),)), testing.SPEC.corpus)


def planted(query, key, seed, *, softcap=None):
    """A text in which queries (q_head, pos, channel) meet keys (pos, channel)."""
    like = testing.planted_contrast(0.0, length=PLANTED, seed=seed)
    vectors = {"scored": torch.from_numpy(key)[None, None]}
    query = {"scored": torch.from_numpy(query)[None]}
    return QKBatch(0, query, vectors, vectors, like.tokens, like.visibility, 1.0, softcap)


def measured(batches, spec):
    """Tables of a probe that has seen the first half of some batches and measured the second."""
    probe, half = Split(), len(batches) // 2
    state = probe.init(spec)
    probe.begin(state)
    for batch in batches[:half]:
        observe([(probe, state)], batch)
    probe.settle(state, spec)
    for batch in batches[half:]:
        observe([(probe, state)], batch)
    return summarise({"split": (probe, state)}, spec)


def all_length(rng):
    axis = rng.normal(size=8)
    return axis / np.linalg.norm(axis) * np.exp(rng.normal(0, 0.4, (PLANTED, 1)))


def all_angle(rng):
    """Each rotary pair as long in every key, so that keys are as long in every gauge."""
    turn = rng.uniform(0, 2 * np.pi, (PLANTED, 4))
    return np.concatenate([np.cos(turn), np.sin(turn)], 1) * np.tile([1.0, 2.0, 0.5, 0.7], 2)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize(("keys", "share"), [(all_length, 1), (all_angle, 0)])
def test_shares_are_what_was_planted(keys, share, softcap):
    made = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        # For one direction to serve all texts it is drawn once; lengths and angles are of each text.
        key = keys(np.random.default_rng(99) if keys is all_length else rng)
        if keys is all_length:
            key = key[rng.permutation(PLANTED)]
        made.append(planted(rng.normal(size=(2, PLANTED, 8)) * np.linspace(0.5, 2, 8), key, seed, softcap=softcap))
    table = measured(made, planted_spec(softcap=softcap))["split"]
    table = table[table["document"] == -1]
    assert set(table["gauge"]) == set(GAUGES)
    assert (table["phi_norm"] + table["phi_angle"] > 0.01).all()
    np.testing.assert_allclose(table["phi_norm"] / (table["phi_norm"] + table["phi_angle"]), share, atol=1e-10)
    if not share:
        np.testing.assert_allclose(table["tv"], 0, atol=1e-10)
        np.testing.assert_allclose(table["r2"], 1, atol=1e-10)
    else:
        assert (table["tv"] > 0.01).all()


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_descriptions_pass_through_the_bias(softcap):
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, PLANTED, 8)), rng.normal(size=(PLANTED, 8))
    bias = rng.normal(size=(1, 2, PLANTED, PLANTED))
    spec, probe = planted_spec(softcap=softcap), Split()
    state = probe.init(spec)
    observe([(probe, state)], replace(planted(query, key, 0, softcap=softcap), bias=torch.from_numpy(bias)))
    table = summarise({"split": (probe, state)}, spec)["split"]
    told = SimpleNamespace(scale=1.0, softcap=softcap)
    for head in range(2):
        vectors = query, np.stack([key, key])
        rows = [
            Row(told, vectors, head, t, range(1, t + 1), bias[0, head, t, 1 : t + 1]) for t in range(16, PLANTED, EVERY)
        ]
        got = one_of(table, q_head=head, first="out", document=-1)
        for name, value in zip(("phi_norm", "phi_angle"), phis([row.left_over() for row in rows]), strict=True):
            close(got[name], value)
        middle = math.exp(np.log(np.linalg.norm(key[1:], axis=1)).mean())
        for name in ("tv", "leverage"):
            close(got[name], np.mean([row.others(middle)[name] for row in rows]))


def of_class(token_class, value, *, first, otherwise):
    made = np.full(len(token_class), float(otherwise))
    made[token_class == CLASS_INDEX["article"]] = value
    made[0] = first
    return made


@pytest.mark.parametrize("by", ["length", "angle"])
def test_half_a_nat_is_found_where_it_was_put(by):
    """Content keys have a logit of 1, articles 1.5, position 0 has 3: longer keys, or keys nearer to the query."""
    made = []
    for seed in range(6):
        token_class = testing.planted_contrast(0.0, length=PLANTED, seed=seed).tokens.token_class[0].numpy()
        if by == "length":
            length, cos = of_class(token_class, 3.0, first=6.0, otherwise=2.0), 0.5
        else:
            length, cos = 4.0, of_class(token_class, 0.375, first=0.75, otherwise=0.25)
        key = np.zeros((PLANTED, 8))
        key[:, 0], key[:, 4] = length * cos, length * np.sqrt(1 - np.square(cos))
        query = np.zeros((2, PLANTED, 8))
        query[:, :, 0] = np.array([1.0, 2.0])[:, None]  # the second head's contrasts are twice as large
        made.append(planted(query, key, seed))
    tables = measured(made, planted_spec())
    for gauge in GAUGES:
        for head in range(2):
            for name, nats in (("article", 0.5), ("punctuation", 0.0), ("content", 0.0), ("first", None)):
                got = one_of(tables["class_split"], q_head=head, gauge=gauge, token_class=name)
                if nats is None:  # against all content keys before
                    nats = 2.0
                close(got["class_sink"], nats * (1 + head))
                close(got["norm_part"], nats * (1 + head) if by == "length" else 0)
                close(got["angle_part"], 0 if by == "length" else nats * (1 + head))
    kept = tables["split"].query("document == -1 and gauge == 'balanced'")["n_kept"]
    assert (kept == 3).all()  # three of the four pairs hold nothing


# ------------------------------------------------------------------ the gauge of a model
MOVE = ("phi_norm", "phi_angle", "tv", "r2", "beta", "norm_attention_rho")


def compared(one, two, gauge):
    """Columns of two runs in a gauge, side by side."""
    whole = [table["split"].query("document == -1") for table in (one, two)]
    where = [table[table["gauge"] == gauge] for table in whole]
    classes = [table["class_split"].query("n_types > 0") for table in (one, two)]
    parts = [table[table["gauge"] == gauge] for table in classes]
    return {
        **{name: tuple(table[name].to_numpy() for table in where) for name in (*MOVE, "leverage")},
        **{name: tuple(table[name].to_numpy() for table in parts) for name in ("class_sink", "norm_part")},
    }


def check_another_description(plain, other, *, free):
    one, two = (tables_of(model, text_of()) for model in (plain, other))
    raw, balanced = (compared(one, two, gauge) for gauge in GAUGES)
    for name, (a, b) in balanced.items():
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=name)
    for name in MOVE:
        a, b = raw[name]
        assert np.abs(a / b - 1).max() > 0.01, name
    a, b = raw["norm_part"]
    assert np.abs(a - b).max() > 0.05
    np.testing.assert_allclose(*raw["class_sink"], rtol=1e-9, atol=1e-9)
    if not free:  # a shift of the keys moves a row's logits, with them what a length is worth
        np.testing.assert_allclose(*raw["leverage"], rtol=1e-9)


def test_a_gauge_in_the_weights_moves_the_raw_share_alone():
    plain, other = model_of("llama"), model_of("llama")
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for layer in other.model.layers:
            factor = torch.from_numpy(np.exp(rng.normal(0, 0.7, (2, 8))))  # (kv_head, pair)
            rows = torch.cat([factor, factor], 1)  # channel i turns with i + 8
            layer.self_attn.k_proj.weight *= rows.flatten()[:, None]
            layer.self_attn.q_proj.weight /= rows.repeat_interleave(2, 0).flatten()[:, None]
        ids = torch.from_numpy(text_of().ids)
        torch.testing.assert_close(other(ids).logits, plain(ids).logits, rtol=1e-9, atol=1e-9)
    check_another_description(plain, other, free=False)


def test_any_matrix_in_the_weights_moves_the_raw_share_alone_where_nothing_turns():
    plain, other = model_of("gpt2"), model_of("gpt2")
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for layer in other.transformer.h:
            for head in range(4):
                by = torch.from_numpy(rng.normal(size=(8, 8)) + 3 * np.eye(8))
                q, k = slice(8 * head, 8 * head + 8), slice(32 + 8 * head, 40 + 8 * head)
                for x in (layer.attn.c_attn.weight, layer.attn.c_attn.bias):  # columns are channels
                    x[..., k] = x[..., k] @ by
                    x[..., q] = x[..., q] @ torch.linalg.inv(by).T
                layer.attn.c_attn.bias[k] += torch.from_numpy(rng.normal(size=8))
        ids = torch.from_numpy(text_of().ids)
        torch.testing.assert_close(other(ids).logits, plain(ids).logits, rtol=1e-9, atol=1e-9)
    check_another_description(plain, other, free=True)


@pytest.mark.parametrize(
    ("family", "name"),
    [("llama", "gauge_query"), ("llama", "gauge_key"), ("gemma2", "gauge_centre"), ("gpt2", "gauge_query")],
)
def test_a_gauge_that_changes_attention_is_refused(family, name):
    made = observation_of(model_of(family), text_of())
    state = made.states["split"][1]

    def damage(progress):
        if progress.done == MIDDLE:
            state[name][1] += 0.01 * (1 if name == "gauge_centre" else state[name][1])

    sentence = r"^The balanced gauge of layer 1 changes its attention by 0\.\d+; leave split out with --probes"
    with pytest.raises(ParityError, match=sentence):
        made.run(model_of(family), batch_size=3, report=damage)
    assert float(state["gauge_error"][1]) > 1e-5


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_has_a_gauge_too(family, dtype):
    """What is multiplied is rounded; the gauge is not, and its attention is that of the raw vectors."""
    made = tables_of(model_of(family, dtype=dtype), text_of())
    table = made["split"].query("document == -1 and gauge == 'balanced'")
    assert len(table) == 16
    assert table["gauge_error"].between(0, 1e-5).all()
    exact = measured_of(family)["split"].query("document == -1 and gauge == 'balanced'")
    rounding = 1e-4 if dtype == torch.float32 else 0.1
    np.testing.assert_allclose(table["phi_angle"], exact["phi_angle"], rtol=rounding)


def test_a_layer_whose_pairs_are_not_known_has_raw_rows_only():
    def forget(layers):
        return [replace(layers[0], pairs=None), *layers[1:]]

    found = tables_of(model_of("llama"), text_of(), change=forget)
    for name, table in found.items():
        expected = measured_of("llama")[name]
        if "gauge" in table:
            assert set(table.loc[table["layer"] == 0, "gauge"]) == {"raw"}
            assert set(table.loc[table["layer"] == 1, "gauge"]) == set(GAUGES)
            expected = expected.query("layer == 1 or gauge == 'raw'").reset_index(drop=True)
        pd.testing.assert_frame_equal(table, expected, rtol=1e-12)


# ------------------------------------------------------------------ halves
def raw_alone(table):
    """The rows of a table in the raw gauge; all of one that is told in no gauge."""
    return table.query("gauge == 'raw'").reset_index(drop=True) if "gauge" in table else table


def test_the_first_half_leaves_no_trace_in_what_is_measured():
    model = model_of("llama")
    one, two = measured_of("llama"), tables_of(model, text_of(first_half=1))
    raw = [[raw_alone(table) for table in tables.values()] for tables in (one, two)]
    for a, b in zip(*raw, strict=True):
        pd.testing.assert_frame_equal(a, b, check_exact=True)
    # It fixes the gauge alone.
    a, b = (t["split"].query("gauge == 'balanced' and document == -1")["phi_norm"].to_numpy() for t in (one, two))
    assert np.abs(a / b - 1).max() > 1e-3


@dataclass(frozen=True)
class Unhalved(Split):
    """Measures all that it is shown."""

    def begin(self, state):
        pass

    def settle(self, state, spec):
        pass


def test_the_second_half_is_measured_like_a_text_of_its_own():
    corpus = text_of()
    cut = {name: getattr(corpus, name)[MIDDLE:] for name in ("ids", "token_class", "document", "token_text")}
    alone = tables_of(model_of("llama"), replace(corpus, **cut), probe=Unhalved())
    for name, table in alone.items():
        assert "gauge" not in table or set(table["gauge"]) == {"raw"}
        pd.testing.assert_frame_equal(table, raw_alone(measured_of("llama")[name]), rtol=1e-12, check_dtype=False)


@pytest.mark.parametrize(("n", "measured"), [(7, 4), (2, 1), (1, 1)])
def test_half_of_the_windows_are_measured(n, measured):
    table = tables_of(model_of("llama"), text_of(n=n))["split"].query("document == -1")
    assert (table["n_rows"] == measured * len(AT)).all()
    assert set(table["gauge"]) == ({"raw"} if n == 1 else set(GAUGES))  # of one window there is no half


@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_batch_size_changes_nothing(family):
    for batch_size in (1, 4):
        testing.assert_same(tables_of(model_of(family), text_of(), batch_size=batch_size), measured_of(family))


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("at", [2, 3, 4])
def test_a_pass_goes_on_where_it_stopped(at, tmp_path):
    """Before the middle, at it and after it."""
    model = model_of("llama")
    stopped = observation_of(model, text_of())

    def stop(progress):
        if progress.done == at:
            stopped.save(tmp_path)
            raise StoppedError(f"after {at} windows")

    with pytest.raises(StoppedError, match=f"after {at} windows"):
        stopped.run(model, batch_size=1, report=stop)
    resumed = observation_of(model, text_of())
    assert resumed.resume(tmp_path)
    assert resumed.done == at
    resumed.run(model, batch_size=1)
    testing.assert_same(resumed.tables(), measured_of("llama"))


def test_parts_of_a_run_share_its_gauge():
    spec, probe = planted_spec(), Split()
    batches = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        batches.append(planted(rng.normal(size=(2, PLANTED, 8)), rng.normal(size=(PLANTED, 8)), seed))
    settled = probe.init(spec)
    probe.begin(settled)
    observe([(probe, settled)], batches[0])
    probe.settle(settled, spec)
    states = [{name: value.clone() for name, value in settled.items()} for _ in range(3)]
    for state, some in zip(states, (batches[1:], batches[1:2], batches[2:]), strict=True):
        for batch in some:
            observe([(probe, state)], batch)
    whole, *parts = states
    expected = summarise({"split": (probe, whole)}, spec)
    for a, b in (parts, parts[::-1]):
        testing.assert_same(summarise({"split": (probe, probe.merge(a, b))}, spec), expected)
    # With the state of nothing, too.
    testing.assert_same(summarise({"split": (probe, probe.merge(probe.init(spec), whole))}, spec), expected)


@pytest.mark.parametrize("name", ["every", "reach", "min_queries", "min_tokens"])
def test_parameters_have_a_domain(name):
    with pytest.raises(InvalidParameter, match=f"{name} must be at least 1; got 0"):
        Split(**{name: 0})

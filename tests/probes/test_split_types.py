"""What `split` tells by type and by key: lengths, parts of Λ, places, norm_lift, and length against attention received;
on whole models against a slow oracle, and on keys whose lengths were put there.
"""

import math
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
import wordfreq
from halved import (
    AT,
    EVERY,
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
from sklearn.linear_model import LinearRegression

import geomprobe.probes.split as split_probe
import geomprobe.probes.split_types as by_type
import geomprobe.stats.moments as moments
from geomprobe import testing
from geomprobe.attention.batch import QKBatch, Tokens
from geomprobe.attention.spec import CorpusSpec, LayerSpec, ModelSpec, Spec
from geomprobe.attention.visibility import causal
from geomprobe.labels import CLASS_INDEX, TOKEN_CLASSES, UNIONS
from geomprobe.probes.assembly import summarise
from geomprobe.probes.base import observe
from geomprobe.probes.split import Split

FAMILIES = ["llama", "gemma3", "gpt_oss", "gpt2"]  # plain, windows, learned sinks, keys that are centred
NEW = ("norm_lift", "type_split", "type_places", "length_attention")
ROWS = {name: [name] for name in TOKEN_CLASSES if name != "first"} | {n: list(members) for n, members in UNIONS.items()}
CONTENT = (
    *("house", "river", "water", "time", "people", "world", "garden", "letter", "silver", "thunder", "captain"),
    *("morning", "winter", "horse", "window", "paper", "qzxvk"),  # wordfreq does not know the last
)
# The words of the text, and how often each comes. `be` is the most frequent content word, too rare here for the fit.
WORDS = [(word, "content", 3.0) for word in CONTENT]
WORDS += [("be", "content", 0.5), ("harbour", "content", 0.5), ("lantern", "content", 0.5)]
WORDS += [("the", "article", 8.0), ("a", "article", 4.0), ("an", "article", 0.5)]
WORDS += [("of", "preposition", 4.0), ("in", "preposition", 4.0), ("upon", "preposition", 3.0)]
WORDS += [("he", "pronoun", 3.0), (".", "punctuation", 4.0), (",", "punctuation", 5.0), (";", "punctuation", 0.4)]


# ------------------------------------------------------------------ texts of words
@cache
def words():
    """A text of words that wordfreq knows, some of them capitalised; the numbers of its types are not in its order."""
    corpus, rng = text_of(), np.random.default_rng(5)
    weight = np.array([often for *_, often in WORDS])
    kind = rng.choice(len(WORDS), size=corpus.ids.shape, p=weight / weight.sum())
    text = np.array([word for word, *_ in WORDS], dtype=object)[kind]
    written = [[f" {word.capitalize()}" if rng.random() < 0.3 else word for word in window] for window in text]
    token_class = np.array([CLASS_INDEX[name] for _, name, _ in WORDS])[kind]
    token_class[:, 0] = CLASS_INDEX["first"]
    return replace(corpus, token_class=token_class, token_text=np.array(written, dtype=object))


def of_type(kind):
    text, token_class = kind
    return text.strip().lower(), token_class


def second_half(family, gauge):
    """(layer, its sequences of the second half, their queries and keys in a gauge, the documents of these)."""
    documents = words().document[MIDDLE:].tolist()
    for layer, sequences in seen_of(family, words).items():
        yield layer, sequences[MIDDLE:], in_gauge(sequences, family, gauge), documents


def key_heads(seq):
    """The first query head of each key head: in_gauge has the keys once a query head."""
    return range(0, seq.heads, seq.heads // len(seq.k))


def log_length(both, head, j):
    return math.log(math.sqrt(sum(float(x) ** 2 for x in both[1][head, j])))


# ------------------------------------------------------------------ the oracle
def expected_cells(sequences, vectors, documents):
    """{(type, class, document): numbers of type_split} of a layer in a gauge."""
    logs, parts = {}, {}
    for seq, both, document in zip(sequences, vectors, documents, strict=True):
        products = [Products(seq, both, head) for head in range(seq.heads)]
        for j in range(1, LENGTH):
            mean = np.mean([log_length(both, head, j) for head in key_heads(seq)])
            logs.setdefault((*of_type(seq.types[j]), document), []).append(mean)
        for k, queries, near in judged(seq)[0]:
            made = np.mean([one.parts(queries, k, near) for one in products], axis=0)
            parts.setdefault((*of_type(seq.types[k]), document), []).append(made)
    return {
        key: {
            "zipf": zipf_of(key[0]),
            "n": len(values),
            "k_log_mean": np.mean(values),
            "n_sink": len(parts.get(key, [])),
            "lambda": np.mean([whole for whole, _ in parts[key]]) if key in parts else math.nan,
            "norm_part": np.mean([part for _, part in parts[key]]) if key in parts else math.nan,
        }
        for key, values in logs.items()
    }


def zipf_of(word):
    return wordfreq.zipf_frequency(word, "en") or math.nan


def check_types(tables, family):
    table = tables["type_split"]
    for gauge in GAUGES:
        for layer, *half in second_half(family, gauge):
            expected = expected_cells(*half)
            rows = table[(table["layer"] == layer) & (table["gauge"] == gauge)]
            found = rows.set_index(["type", "token_class", "document"])
            assert set(found.index) == set(expected)
            assert len(found) == len(expected)
            for key, numbers in expected.items():
                for name, value in numbers.items():
                    close(found.loc[key, name], value)


def check_places(tables, family):
    """Tokens by buckets of 64 positions: windows of 96 have two."""
    expected = Counter()
    for seq, document in zip(seen_of(family, words)[0][MIDDLE:], words().document[MIDDLE:].tolist(), strict=True):
        for j in range(1, LENGTH):
            expected[*of_type(seq.types[j]), document, 0 if j < 64 else 1] += 1
    table = tables["type_places"]
    found = table.set_index(["type", "token_class", "document", "bucket"])["n"]
    assert found.to_dict() == expected
    assert len(table) == len(expected)


def check_lengths(tables, family):
    """k_log_mean, k_log_sd and n_keys of a head, and its tv by document."""
    for gauge in GAUGES:
        for layer, sequences, vectors, documents in second_half(family, gauge):
            kv = len(sequences[0].k)
            for head in range(sequences[0].heads):
                key_head = head // (sequences[0].heads // kv) * (sequences[0].heads // kv)
                for first, start in (("out", 1), ("in", 0)):
                    for document in (-1, *sorted(set(documents))):
                        logs, tv = [], []
                        for seq, both, own in zip(sequences, vectors, documents, strict=True):
                            if document in (-1, own):
                                logs += [log_length(both, key_head, j) for j in range(start, LENGTH)]
                                tv += variations(seq, both, head, first)
                        where = {"layer": layer, "q_head": head, "gauge": gauge, "first": first}
                        got = one_of(tables["split"], document=document, **where)
                        assert got["n_keys"] == len(logs)
                        close(got["k_log_mean"], np.mean(logs))
                        close(got["k_log_sd"], math.sqrt(np.mean([(x - np.mean(logs)) ** 2 for x in logs])))
                        close(got["tv"], np.mean(tv))


def variations(seq, both, head, first):
    """Total variation of each row from cosines alone, with the geometric mean length of the window's other keys."""
    middle = math.exp(np.mean([log_length(both, head, j) for j in range(1, LENGTH)]))
    start = 1 if first == "out" else 0
    rows = [Row(seq, both, head, t, [j for j in seq.visible(t) if j >= start]) for t in AT]
    return [row.others(middle)["tv"] for row in rows]


def slot(x, low, per_unit, count):
    """The bin of x among `count` that start at `low`; the outer ones take what lies beyond."""
    return min(max(math.floor((x - low) * per_unit), 0), count - 1)


def expected_cloud(sequences):
    """How many keys of a layer stand in each bin: {(first, bin of length, bin of lift): count}."""
    found = Counter()
    for seq in sequences:
        for head in range(seq.heads):
            logs = [math.log(np.linalg.norm(seq.k[head // (seq.heads // len(seq.k)), j])) for j in range(LENGTH)]
            usual = np.mean(logs[1:])
            for j in range(LENGTH):
                looking = [t for t in AT if t > j and seq.sees(t, j)]
                if looking:
                    received = np.mean([seq.probability(head, t, j) for t in looking])
                    even = np.mean([1 / len(seq.visible(t)) for t in looking])
                    lift = slot(math.log(received / even), -8, 4, 64)
                    found[j == 0, slot(logs[j] - usual, -3, 10, 60), lift] += 1
    return found


def check_cloud(tables, family):
    for layer, sequences in seen_of(family, words).items():
        table = tables["length_attention"]
        rows = table[table["layer"] == layer]
        for name, width in (("length", 0.1), ("lift", 0.25)):
            np.testing.assert_allclose(rows[f"{name}_high"] - rows[f"{name}_low"], width, rtol=1e-9)
        length, lift = ((rows["length_low"] + 3) * 10).round(), ((rows["lift_low"] + 8) * 4).round()
        found = dict(zip(zip(rows["first"], length, lift, strict=True), rows["count"], strict=True))
        assert found == expected_cloud(sequences[MIDDLE:])
        assert len(found) == len(rows)


def solved(rows, values):
    """Least squares by the normal equations, summed up term by term; no column may follow from the others."""
    width = len(rows[0])
    gram = [[sum(row[a] * row[b] for row in rows) for b in range(width)] for a in range(width)]
    right = [sum(row[a] * y for row, y in zip(rows, values, strict=True)) for a in range(width)]
    return np.linalg.solve(np.array(gram), np.array(right))


def expected_lifts(sequences, vectors, head):
    """({class: (norm_lift, n_types, n_extrapolated)}, slope) of a key head."""
    logs, late = {}, {}
    for seq, both in zip(sequences, vectors, strict=True):
        for j in range(1, LENGTH):
            kind = of_type(seq.types[j])
            logs.setdefault(kind, []).append(log_length(both, head, j))
            late.setdefault(kind, []).append(float(j >= 64))
    kept = {kind: np.mean(values) for kind, values in logs.items() if len(values) >= 5}
    content = [kind for kind in kept if kind[1] == "content"]
    told = [kind for kind in content if not math.isnan(zipf_of(kind[0]))]
    assert len(content) > len(told) > 5
    by_both = solved([(1, zipf_of(kind[0]), np.mean(late[kind])) for kind in told], [kept[kind] for kind in told])
    by_place = solved([(1, np.mean(late[kind])) for kind in content], [kept[kind] for kind in content])
    highest = max(zipf_of(word) for word, _ in told)
    lifts = {}
    for kind, value in kept.items():
        zipf, share = zipf_of(kind[0]), np.mean(late[kind])
        fitted = by_place @ (1, share) if math.isnan(zipf) else by_both @ (1, zipf, share)
        lifts[kind] = (value - fitted, zipf > highest)
    made = {}
    for name, members in ROWS.items():
        mine = [lift for (_, token_class), lift in lifts.items() if token_class in members]
        mean = np.mean([value for value, _ in mine]) if mine else math.nan
        made[name] = mean, len(mine), sum(beyond for _, beyond in mine)
    return made, by_both[1]


def check_lifts(tables, family):
    for gauge in GAUGES:
        for layer, sequences, vectors, _ in second_half(family, gauge):
            for number, head in enumerate(key_heads(sequences[0])):
                expected, slope = expected_lifts(sequences, vectors, head)
                assert expected["function"][2] > 0  # something is extrapolated, and not everything
                assert expected["function"][1] > expected["function"][2]
                table = tables["norm_lift"]
                rows = table[(table["layer"] == layer) & (table["gauge"] == gauge) & (table["head"] == number)]
                assert sorted(rows["token_class"]) == sorted(ROWS)
                for name, (lift, n_types, beyond) in expected.items():
                    got = one_of(rows, token_class=name)
                    close(got["norm_lift"], lift)
                    close(got["zipf_slope"], slope)
                    assert (got["n_types"], got["n_extrapolated"]) == (n_types, beyond)


CHECKS = {
    "types": check_types,
    "places": check_places,
    "lengths": check_lengths,
    "cloud": check_cloud,
    "lifts": check_lifts,
}


@pytest.mark.parametrize("check", list(CHECKS))
@pytest.mark.parametrize("family", FAMILIES)
def test_tables_equal_the_oracle(family, check):
    CHECKS[check](measured_of(family, words), family)


@pytest.mark.parametrize("family", FAMILIES)
def test_tables_agree_among_themselves(family):
    tables = measured_of(family, words)
    types, places = tables["type_split"], tables["type_places"]
    where = ["type", "token_class", "document"]
    for (_, gauge), rows in types.groupby(["layer", "gauge"]):
        assert rows["n"].sum() == (WINDOWS - MIDDLE) * (LENGTH - 1)
        pd.testing.assert_series_equal(rows.groupby(where)["n"].sum(), places.groupby(where)["n"].sum())
        assert gauge in GAUGES
    # Λ is the same in every gauge, its part in lengths is not; lengths are not.
    raw, balanced = (types[types["gauge"] == gauge].reset_index(drop=True) for gauge in GAUGES)
    for name in ("type", "token_class", "document", "n", "n_sink", "lambda"):
        pd.testing.assert_series_equal(raw[name], balanced[name])
    for name in ("norm_part", "k_log_mean"):
        assert (raw[name] - balanced[name]).abs().max() > 1e-3
    # Each key that a sampled query behind it sees stands once in the histogram of its layer, by query head.
    counted = tables["length_attention"].groupby(["layer", "first"])["count"].sum()
    for layer, sequences in seen_of(family, words).items():
        looked_at = [j for j in range(LENGTH) if any(t > j and sequences[-1].sees(t, j) for t in AT)]
        n = sequences[-1].heads * (WINDOWS - MIDDLE)
        assert counted[layer, False] == n * (len(looked_at) - 1)
        assert counted[layer, True] == n * (0 in looked_at)


# ------------------------------------------------------------------ planted defects
def wrapped(monkeypatch, owner, name, change):
    """`owner.name` with its original handed to what takes its place."""
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: change(original, *args, **kwargs))


def with_first(monkeypatch):
    def add(original, state, batch, gauge, key):
        told = {name: getattr(batch.tokens, name).clamp(min=0) for name in ("type_index", "cell_index")}
        original(state, replace(batch, tokens=replace(batch.tokens, **told)), gauge, key)

    wrapped(monkeypatch, by_type, "_add_lengths", add)


def summed_over_heads(monkeypatch):
    def add(original, state, batch, gauge, vectors, **changes):
        before = state["cell_total"].clone()
        original(state, batch, gauge, vectors, **changes)
        state["cell_total"].copy_(before + batch.q_heads * (state["cell_total"] - before))

    wrapped(monkeypatch, by_type, "_add_lambda", add)


def raw_in_both(monkeypatch):
    def add(original, state, batch, gauge, _vectors, **changes):
        original(state, batch, gauge, (batch.q["scored"], batch.k["scored"]), **changes)

    wrapped(monkeypatch, by_type, "add", add)


def part_of_the_other_gauge(monkeypatch):
    def rows(original, state, where, spec):
        return original({**state, "cell_norm": state["cell_norm"].flip(1)}, where, spec)

    wrapped(monkeypatch, by_type, "_cell_rows", rows)


def lengths_only_of(head):
    """Lengths of a type are those of one key head."""

    def plant(monkeypatch):
        def add(original, state, batch, gauge, key):
            original(state, batch, gauge, key[:, head : head + 1].expand_as(key))

        wrapped(monkeypatch, by_type, "_add_lengths", add)

    return plant


def late_buckets(monkeypatch):
    size = by_type.BUCKET
    position = torch.arange(LENGTH)
    late = (position - 1).clamp(min=0) // size
    monkeypatch.setattr(by_type, "_bucket", lambda batch: late.expand(batch.n_sequences, -1).flatten())


def weighted_by_tokens(monkeypatch):
    def lift(original, log_length, zipf, places, content):
        return original(log_length, zipf, places, content, weight=places.sum(axis=1))

    wrapped(monkeypatch, by_type, "norm_lift", lift)


def fitted_on_all(monkeypatch):
    def lift(original, log_length, zipf, places, content):
        return original(log_length, zipf, places, np.ones_like(content))

    wrapped(monkeypatch, by_type, "norm_lift", lift)


def beyond_all_content(monkeypatch):
    """Types count as extrapolated above all content types, those with too few tokens for the fit among them."""

    def lift(original, log_length, zipf, places, content):
        found = original(log_length, zipf, places, content)
        return replace(found, extrapolated=np.nan_to_num(zipf) > np.nanmax(zipf[content]))

    wrapped(monkeypatch, by_type, "norm_lift", lift)


def without_places(monkeypatch):
    def lift(original, log_length, zipf, places, content):
        return original(log_length, zipf, places.sum(axis=1, keepdims=True), content)

    wrapped(monkeypatch, by_type, "norm_lift", lift)


def no_zipf_is_zero(monkeypatch):
    def lift(original, log_length, zipf, places, content):
        return original(log_length, np.nan_to_num(zipf), places, content)

    wrapped(monkeypatch, by_type, "norm_lift", lift)


def every_type(monkeypatch):
    wrapped(monkeypatch, by_type, "tables", lambda original, state, spec, told, _least: original(state, spec, told, 1))


def first_among_lengths(monkeypatch):
    def add(original, state, batch, gauge, key):
        original(state, batch, gauge, key)
        for name in ("n", "mean", "m2"):
            moment = state[f"log_{name}"]
            moment[:, :, :, split_probe.OUT] = moment[:, :, :, split_probe.IN]

    wrapped(monkeypatch, split_probe, "_add_lengths", add)


def spread_between_windows_is_lost(monkeypatch):
    wrapped(monkeypatch, moments, "merge", lambda original, a, b: {**original(a, b), "m2": a["m2"] + b["m2"]})


def tv_of_the_other_document(monkeypatch):
    def rows(original, state, where, common, layer):
        return original({**state, "document_tv": state["document_tv"].roll(1, -1)}, where, common, layer)

    wrapped(monkeypatch, split_probe, "_document_rows", rows)


def uniform_over_all_rows(monkeypatch):
    wrapped(monkeypatch, split_probe, "_received", lambda original, batch, _every: original(batch, EVERY))
    wrapped(monkeypatch, Split, "_add_cloud", lambda original, self, *rest: original(replace(self, every=1), *rest))


def no_sink(monkeypatch):
    change = lambda original, batch, every: original(replace(batch, sinks=None), every)  # noqa: E731
    wrapped(monkeypatch, split_probe, "_receive", change)


def other_bins(monkeypatch):
    monkeypatch.setattr(split_probe, "LENGTHS", replace(split_probe.LENGTHS, low=-2.95))


DEFECTS = {
    "position 0 is counted with a type": (with_first, "types", "llama"),
    "Λ of a type is a sum over heads": (summed_over_heads, "types", "llama"),
    "what is balanced is told in raw vectors": (raw_in_both, "types", "gemma3"),
    "the part in lengths is that of the other gauge": (part_of_the_other_gauge, "types", "gpt_oss"),
    "lengths of a type are those of one head": (lengths_only_of(1), "types", "llama"),
    "positions before 16 are judged": (lambda m: m.setattr(by_type, "FROM_ROW", 15), "types", "gemma3"),
    "buckets begin a position late": (late_buckets, "places", "llama"),
    "lifts are of buckets that begin a position late": (late_buckets, "lifts", "llama"),
    "buckets are smaller": (lambda m: m.setattr(by_type, "BUCKET", 48), "places", "llama"),
    "types count by their tokens": (weighted_by_tokens, "lifts", "llama"),
    "all types are fitted": (fitted_on_all, "lifts", "gemma3"),
    "extrapolated is what lies above all content types": (beyond_all_content, "lifts", "llama"),
    "places are left out of the fit": (without_places, "lifts", "gpt_oss"),
    "what has no Zipf has one of 0": (no_zipf_is_zero, "lifts", "llama"),
    "types with a token or two are kept": (every_type, "lifts", "llama"),
    "lifts in the balanced gauge are of raw vectors": (raw_in_both, "lifts", "llama"),
    "position 0 is among the lengths": (first_among_lengths, "lengths", "llama"),
    "spread between windows is lost": (spread_between_windows_is_lost, "lengths", "llama"),
    "tv is that of the document before": (tv_of_the_other_document, "lengths", "llama"),
    "the uniform share is over all rows": (uniform_over_all_rows, "cloud", "gemma3"),
    "the learned sink takes nothing": (no_sink, "cloud", "gpt_oss"),
    "bins of length begin elsewhere": (other_bins, "cloud", "llama"),
}


@pytest.mark.parametrize("defect", list(DEFECTS))
def test_a_planted_defect_is_caught(defect, monkeypatch):
    plant, check, family = DEFECTS[defect]
    plant(monkeypatch)
    broken = tables_of(model_of(family), words())
    monkeypatch.undo()
    with pytest.raises(AssertionError, match="assert"):
        CHECKS[check](broken, family)


# ------------------------------------------------------------------ streams
@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_batch_size_changes_nothing(family):
    expected = measured_of(family, words)
    assert set(expected) == {"split", "class_split", *NEW}
    assert all(len(expected[name]) > 50 for name in NEW)
    for batch_size in (1, 2):
        testing.assert_same(tables_of(model_of(family), words(), batch_size=batch_size), expected)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("at", [2, 3, 5])
def test_a_pass_goes_on_where_it_stopped(at, tmp_path):
    """Before the middle, at it and after it."""
    model = model_of("gpt_oss")
    stopped = observation_of(model, words())

    def stop(progress):
        if progress.done == at:
            stopped.save(tmp_path)
            raise StoppedError(f"after {at} windows")

    with pytest.raises(StoppedError, match=f"after {at} windows"):
        stopped.run(model, batch_size=1, report=stop)
    resumed = observation_of(model, words())
    assert resumed.resume(tmp_path)
    resumed.run(model, batch_size=1)
    testing.assert_same(resumed.tables(), measured_of("gpt_oss", words))


# ------------------------------------------------------------------ planted lengths
KINDS = [(f"word{i}", "content") for i in range(14)]
KINDS += [(f"article{i}", "article") for i in range(4)] + [(f"of{i}", "preposition") for i in range(3)]
KINDS += [(f"mark{i}", "punctuation") for i in range(3)] + [("seldom", "content")]
ZIPF = np.array([*np.linspace(3, 6.5, 14), 5.0, 6.0, 6.51, 7.7, 4.0, 5.0, 6.0, *[np.nan] * 3, 8.0])
OF_CLASS = {"article": math.log(1.05), "preposition": math.log(0.9), "punctuation": 0.2}
N_PLANTED = 320  # five buckets


def drawn(seed, *, length=N_PLANTED, seldom=0):
    """Which type stands where in a text, types gathered early or late each in its own way; some `seldom`."""
    rng = np.random.default_rng(seed)
    early = np.linspace(-2, 2, len(KINDS) - 1)
    place = np.arange(length) / length
    chances = np.exp(early * (place[:, None] - 0.5))
    chances /= chances.sum(axis=1, keepdims=True)
    kind = np.array([rng.choice(len(KINDS) - 1, p=chance) for chance in chances])
    kind[rng.choice(np.arange(1, length), size=seldom, replace=False)] = len(KINDS) - 1
    return kind


def planted(kind, logs, document=0):
    """One text in which keys point all one way and are as long as told: logs (kv_head, pos)."""
    heads, length = logs.shape
    rng = np.random.default_rng(len(kind) + document)
    way = np.array([0.5, 0.3, -0.4, 0.2, 0.1, 0.5, 0.2, -0.4])
    key = torch.from_numpy(np.exp(logs)[..., None] * way / np.linalg.norm(way))[None]
    query = torch.from_numpy(rng.normal(size=(1, 2 * heads, length, 8)))
    token_class = torch.tensor([[CLASS_INDEX[KINDS[k][1]] for k in kind]])
    token_class[:, 0] = CLASS_INDEX["first"]
    index = torch.from_numpy(kind)[None].clone()
    index[:, 0] = -1
    cell = torch.where(index >= 0, index * 2 + document, -1)
    valid = torch.ones(1, length, dtype=torch.bool)
    tokens = Tokens(token_class, index, cell, index, torch.tensor([document]), valid)
    return QKBatch(0, {"scored": query}, {"scored": key}, {"scored": key}, tokens, causal(length, length), 1.0)


def planted_spec(heads):
    pairs = ("half", tuple(range(8)))
    layer = LayerSpec(0, "planted", 2 * heads, heads, 8, None, 1.0, None, learned_sinks=False, pairs=pairs)
    corpus = CorpusSpec(
        documents=("a", "b"),
        types=tuple(KINDS),
        zipf=ZIPF,
        cells=np.array([(kind, document) for kind in range(len(KINDS)) for document in range(2)]),
        tokens=tuple((i, name, text) for i, (text, name) in enumerate(KINDS)),
        window=N_PLANTED,
    )
    return Spec(ModelSpec((layer,)), corpus)


def settled(spec, batch):
    """A probe whose gauge was fixed by a batch, and its state."""
    probe = Split()
    state = probe.init(spec)
    probe.begin(state)
    observe([(probe, state)], batch)
    probe.settle(state, spec)
    return probe, state


def measured(batches, spec):
    """Tables of what follows after the first batch, which fixes the gauge."""
    probe, state = settled(spec, batches[0])
    for batch in batches[1:]:
        observe([(probe, state)], batch)
    return summarise({"split": (probe, state)}, spec)


def lengths_of(kind, *, slope, by_bucket):
    """Log lengths that lie on Zipf, the bucket and the class alone."""
    zipf = np.nan_to_num(ZIPF[kind], nan=4.0)
    lift = np.array([OF_CLASS.get(KINDS[k][1], 0.0) for k in kind])
    logs = slope * zipf + np.asarray(by_bucket)[np.arange(len(kind)) // 64] + lift
    logs[0] = -2.0  # position 0 is short, and is no one's
    return logs


BY_BUCKET = (0.0, 0.5, -0.3, 0.8, 0.1)


@pytest.mark.parametrize("slope", [0.3, 0.0])
def test_lifts_are_what_was_planted(slope):
    """Articles 5 % longer and prepositions 10 % shorter than their frequency and their places would have them."""
    kinds = [drawn(seed, seldom=1 if seed < 4 else 0) for seed in range(5)]
    logs = [np.stack([lengths_of(kind, slope=by, by_bucket=BY_BUCKET) for by in (slope, 0.1)]) for kind in kinds]
    batches = [planted(kind, log, seed % 2) for seed, (kind, log) in enumerate(zip(kinds, logs, strict=True))]
    spec = planted_spec(2)
    tables = measured(batches, spec)
    for gauge in GAUGES:  # all keys point one way, so the gauge makes them longer by one factor
        for head, by in enumerate((slope, 0.1)):
            where = {"head": head, "gauge": gauge}
            got = {name: one_of(tables["norm_lift"], token_class=name, **where) for name in ROWS}
            for name in ("article", "preposition"):
                close(got[name]["norm_lift"], OF_CLASS[name])
            close(got["content"]["norm_lift"], 0, 1e-9)
            close(got["function"]["norm_lift"], (4 * OF_CLASS["article"] + 3 * OF_CLASS["preposition"]) / 7)
            assert {name: one["n_types"] for name, one in got.items() if one["n_types"]} == {
                **{"punctuation": 3, "article": 4, "preposition": 3, "content": 14},  # three of `seldom` are too few
                **{"function": 7, "all": 24},
            }
            # 6.51 and 7.7 lie above all content types of the fit, 6.5 the highest; 8.0 is not in it.
            assert {name: one["n_extrapolated"] for name, one in got.items() if one["n_extrapolated"]} == {
                **{"article": 2, "function": 2, "all": 2}
            }
            assert pd.Series({name: one["zipf_slope"] for name, one in got.items()}).to_numpy() == pytest.approx(by)
            close(got["punctuation"]["norm_lift"], of_marks(kinds[1:], by), 1e-9)
            assert got["pronoun"]["norm_lift"] != got["pronoun"]["norm_lift"]
    if not slope:  # where lengths do not go by Zipf, it does not matter that these have none
        got = one_of(tables["norm_lift"], token_class="punctuation", head=0, gauge="raw")
        close(got["norm_lift"], OF_CLASS["punctuation"])


def of_marks(kinds, slope):
    """norm_lift of punctuation: against a fit of the same content types on places alone, by another hand."""
    kind = np.concatenate([one[1:] for one in kinds])
    bucket = np.concatenate([np.arange(1, len(one)) // 64 for one in kinds])
    logs = np.concatenate([lengths_of(one, slope=slope, by_bucket=BY_BUCKET)[1:] for one in kinds])
    shares = np.array([[np.mean(bucket[kind == k] == b) for b in range(5)] for k in range(24)])
    means = np.array([logs[kind == k].mean() for k in range(24)])
    fit = LinearRegression().fit(shares[:14, 1:], means[:14])
    return float(np.mean(means[21:] - fit.predict(shares[21:, 1:])))


def test_parts_of_a_stream_merge():
    spec = planted_spec(2)
    kinds = [drawn(seed) for seed in range(5)]
    noise = np.random.default_rng(1).normal(0, 0.3, (5, 2, N_PLANTED))
    logs = noise + [lengths_of(kind, slope=0.3, by_bucket=BY_BUCKET)[None] for kind in kinds]
    batches = [planted(kind, log, seed % 2) for seed, (kind, log) in enumerate(zip(kinds, logs, strict=True))]
    expected = measured(batches, spec)
    assert expected["norm_lift"].query("token_class == 'article'")["norm_lift"].notna().all()
    assert set(expected["type_split"]["document"]) == {0, 1}
    probe, start = settled(spec, batches[0])
    parts = []
    for some in (batches[1:3], batches[3:]):
        state = {name: value.clone() for name, value in start.items()}
        for batch in some:
            observe([(probe, state)], batch)
        parts.append(state)
    # What the first half left is in both parts; the measured numbers are in one each.
    for a, b in (parts, parts[::-1]):
        testing.assert_same(summarise({"split": (probe, probe.merge(a, b))}, spec), expected)


def test_keys_of_length_0_are_left_out():
    """A token whose key is dead in a head has no length; the others of its type and its head have theirs."""
    spec = planted_spec(2)
    kinds = [drawn(seed) for seed in range(3)]
    logs = [np.stack([lengths_of(kind, slope=by, by_bucket=[0.0] * 5) for by in (0.3, 0.1)]) for kind in kinds]
    batches = [planted(kind, log) for kind, log in zip(kinds, logs, strict=True)]
    dead = [np.random.default_rng(seed).choice(np.arange(1, N_PLANTED), size=60, replace=False) for seed in (1, 2)]
    for batch, (zero, one) in zip(batches[1:], (dead, dead[::-1]), strict=True):
        batch.k["scored"][0, 0, zero[:50]] = 0
        batch.k["scored"][0, 1, one[:20]] = 0
    tables = measured(batches, spec)
    alive = [(batch.k["scored"][0].norm(dim=-1) > 0).numpy() for batch in batches[1:]]  # each (kv_head, pos)
    both = [head.all(axis=0)[1:] for head in alive]
    for index, (text, token_class) in enumerate(KINDS[:-1]):
        value = np.concatenate(
            [
                log.mean(axis=0)[1:][kept & (kind[1:] == index)]
                for kind, log, kept in zip(kinds[1:], logs[1:], both, strict=True)
            ]
        )
        got = one_of(tables["type_split"], gauge="raw", type=text, token_class=token_class)
        assert got["n"] == len(value)
        close(got["k_log_mean"], value.mean())
    for head in range(2):
        value = np.concatenate([log[head, 1:][kept[head, 1:]] for log, kept in zip(logs[1:], alive, strict=True)])
        got = one_of(tables["split"], q_head=2 * head, gauge="raw", first="out", document=0)
        assert got["n_keys"] == len(value) < 2 * (N_PLANTED - 1)
        close(got["k_log_mean"], value.mean())
        close(got["k_log_sd"], value.std())
        for gauge in GAUGES:
            for name in ("article", "preposition"):
                got = one_of(tables["norm_lift"], head=head, gauge=gauge, token_class=name)
                close(got["norm_lift"], OF_CLASS[name])
    # Nor are they in the histogram of lengths and attention, and they are no part of what is usual.
    count = tables["length_attention"].query("not first")["count"].sum()
    last = max(range(16, N_PLANTED, EVERY))
    assert count == 2 * sum(int(head[:, 1:last].sum()) for head in alive)


@pytest.mark.parametrize(("length", "size"), [(17, 64), (64, 64), (65, 64), (512, 64), (513, 65), (700, 88)])
def test_a_window_has_eight_buckets_of_at_least_64(length, size):
    spec = planted_spec(1)
    kind = drawn(0, length=length)
    batch = planted(kind, np.zeros((1, length)))
    probe = Split()
    state = probe.init(spec)
    observe([(probe, state)], batch)
    table = summarise({"split": (probe, state)}, spec)["type_places"]
    expected = Counter((KINDS[k][0], j // size) for j, k in enumerate(kind) if j > 0)
    assert table.set_index(["type", "bucket"])["n"].to_dict() == expected
    assert table["bucket"].between(0, 7).all()


def test_length_and_attention_stand_where_they_were_put():
    """Keys without logits: every row is uniform, so each key receives its uniform share."""
    length, spec = 96, planted_spec(1)
    logs = np.zeros((1, length))
    logs[0, 1:49], logs[0, 49:] = 0.6, -0.5  # mean .056 without the first, which is far longer
    logs[0, 0] = 9.0
    batch = planted(np.zeros(length, dtype=np.int64), logs)
    batch.q["scored"].zero_()
    probe = Split()
    state = probe.init(spec)
    observe([(probe, state)], batch)
    table = summarise({"split": (probe, state)}, spec)["length_attention"]
    assert table["lift_low"].isin([-0.25, 0.0]).all()  # 0 to rounding
    found = table.groupby(["first", "length_low"])["count"].sum()
    assert {(first, round(low, 6)): n for (first, low), n in found.items()} == {
        (True, 2.9): 2,  # beyond the last bin
        (False, 0.5): 2 * 48,
        (False, -0.6): 2 * 31,  # 49 to 79: no sampled query stands behind the others
    }


def two_layers(batches, change):
    """Tables of two layers, of which `change` alters the keys (batch, kv_head, pos, channel) of the first."""
    one = planted_spec(2).model.layers[0]
    spec = Spec(ModelSpec((one, replace(one, layer=1))), planted_spec(2).corpus)
    probe = Split()
    state = probe.init(spec)
    probe.begin(state)
    for number, batch in enumerate(batches):
        if number == 1:
            probe.settle(state, spec)
        for index, key in enumerate((change(batch.k["scored"].clone()), batch.k["scored"])):
            observe([(probe, state)], replace(batch, index=index, k={"scored": key}))
    return summarise({"split": (probe, state)}, spec)


def test_a_dead_head_takes_nothing_from_the_others():
    """Its layer has no mean over heads; the other head, the other layer and the places of tokens are as they were."""

    def deaden(key):
        key[:, 1] = 0
        return key

    kinds = [drawn(seed) for seed in range(3)]
    batches = [planted(kind, np.stack([lengths_of(kind, slope=0.3, by_bucket=BY_BUCKET)] * 2)) for kind in kinds]
    dead, alive = two_layers(batches, deaden), two_layers(batches, lambda key: key)
    pd.testing.assert_frame_equal(dead["type_places"], alive["type_places"])
    for name in ("norm_lift", "type_split"):
        rows, expected = (tables[name].query("layer == 1").reset_index(drop=True) for tables in (dead, alive))
        pd.testing.assert_frame_equal(rows, expected)
    rows, expected = (t["norm_lift"].query("layer == 0 and head == 0").reset_index(drop=True) for t in (dead, alive))
    pd.testing.assert_frame_equal(rows, expected)
    lost = dead["norm_lift"].query("layer == 0 and head == 1")
    assert lost[["norm_lift", "zipf_slope"]].isna().all(axis=None)
    assert not lost[["n_types", "n_extrapolated"]].any(axis=None)
    assert dead["type_split"].query("layer == 0")["k_log_mean"].isna().all()
    assert dead["type_split"].query("layer == 0")["lambda"].notna().any()


def test_keys_that_are_always_the_same_have_no_length_where_keys_are_centred():
    layer = replace(planted_spec(2).model.layers[0], pairs=("none", ()))
    spec, rng = Spec(ModelSpec((layer,)), planted_spec(2).corpus), np.random.default_rng(0)
    batches = []
    for seed in range(3):
        batch = planted(drawn(seed), np.zeros((2, N_PLANTED)))
        batch.k["scored"][:, 0] = torch.from_numpy(rng.normal(size=(1, N_PLANTED, 8)))
        batch.k["scored"][:, 1] = 1.0
        batches.append(batch)
    tables = measured(batches, spec)
    cells = tables["type_split"].set_index("gauge")
    assert cells.loc["balanced", "k_log_mean"].isna().all()
    assert not cells.loc["balanced", "n"].any()
    assert np.isfinite(cells.loc["raw", "k_log_mean"]).all()
    lifts = tables["norm_lift"].query("token_class == 'article'").set_index(["gauge", "head"])["norm_lift"]
    assert lifts.isna().to_dict() == {
        (gauge, head): (gauge, head) == ("balanced", 1) for gauge in GAUGES for head in (0, 1)
    }


def test_keys_that_receive_nothing_lie_in_the_lowest_bin():
    """One key takes all: in single precision the others get exactly 0."""
    batch = planted(drawn(0), np.zeros((2, N_PLANTED)))
    query, key = torch.zeros_like(batch.q["scored"]).float(), torch.zeros_like(batch.k["scored"]).float()
    query[..., 0], key[..., 0] = 10, 1
    key[:, :, 5, 0] = 100
    spec, probe = planted_spec(2), Split()
    state = probe.init(spec)
    observe([(probe, state)], replace(batch, q={"scored": query}, k={"scored": key}))
    table = summarise({"split": (probe, state)}, spec)["length_attention"]
    last = max(range(16, N_PLANTED, EVERY))
    assert table["count"].sum() == 4 * last
    assert table.loc[table["lift_low"] == -8, "count"].sum() == 4 * (last - 1)

"""Massive activations: planted in tiny models and found by a slow oracle, at the edges of the rule, in a real model."""

import inspect
import math
import sys
import types
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

import geomprobe.probes.massive as massive_probe
from geomprobe import observation, testing
from geomprobe.attention.anatomy import examine
from geomprobe.attention.batch import Tokens
from geomprobe.attention.spec import Spec
from geomprobe.corpus.types import index_types
from geomprobe.corpus.windows import Corpus
from geomprobe.errors import InvalidParameter
from geomprobe.labels import CLASS_INDEX, TOKEN_CLASSES
from geomprobe.observation import Observation, corpus_spec
from geomprobe.probes.base import PROBES, show
from geomprobe.probes.massive import COLUMNS

WINDOWS, LENGTH = 6, 40
CLASSES = ("article", "punctuation", "content")
BEGIN, DOT, WORD = 1, 10, 11  # tokens in whose embeddings something is planted
# (token, channel) → by what its embedding is larger there: massive in both layers; in the first; in none.
PLANTED = {(BEGIN, 5): 3e5, (DOT, 20): -900.0, (WORD, 5): 240.0}
FAMILIES = ("llama", "gemma3", "gpt_oss", "gpt2", "bert")


# ------------------------------------------------------------------ models and texts
def model_of(family, dtype=torch.float64):
    """A tiny model in whose embeddings some entries are far larger than all others."""
    if family in ("gpt2", "bert"):
        small = {"vocab_size": 160, "pad_token_id": 0}
        if family == "gpt2":
            config = AutoConfig.for_model("gpt2", **small, n_embd=32, n_layer=2, n_head=4, n_positions=64)
            make = AutoModelForCausalLM.from_config
        else:
            sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
            config, make = AutoConfig.for_model("bert", **small, **sizes), AutoModel.from_config
        torch.manual_seed(0)
        model = make(config).to(dtype).eval()
    else:
        model = testing.tiny_model(family, dtype=dtype)
    with torch.no_grad():
        for (token, channel), size in PLANTED.items():
            model.get_input_embeddings().weight[token, channel] += size
    return model


def text_of(windows=WINDOWS, seed=0):
    """Random ids; the same token stands at the beginning of some windows, and in the middle of others."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(3, 24, size=(windows, LENGTH))
    ids[::2, 0] = BEGIN
    ids[1, 7] = BEGIN
    kind = ids % len(CLASSES)
    kind[3] = (kind[3] + 1) % len(CLASSES)  # a token may be of one class here and of another there
    token_class = np.array([CLASS_INDEX[name] for name in CLASSES])[kind]
    token_class[:, 0] = CLASS_INDEX["first"]
    nothing = np.zeros(windows, dtype=np.int64)
    return Corpus(
        name="made",
        sha256="",
        tokens_sha256="",
        language="en",
        bos=False,
        ids=ids,
        token_class=token_class,
        document=nothing,
        token_start=nothing,
        char_start=nothing,
        char_end=nothing,
        token_text=np.array([f" t{token}" for token in range(160)], dtype=object)[ids],
        document_names=("a",),
    )


def observation_of(model, corpus, probe=None):
    index = index_types(corpus)
    spec = Spec(examine(model, torch.from_numpy(corpus.ids[:1])), corpus_spec(corpus, index))
    return Observation(spec, {"massive": probe or massive_probe.Massive()}, corpus, index=index)


def table_of(model, corpus, probe=None, **options):
    made = observation_of(model, corpus, probe)
    made.run(model, **{"batch_size": 4, **options})
    return made.tables()["massive"]


# ------------------------------------------------------------------ the oracle
def hidden_of(model, corpus):
    """What transformers itself gives out as hidden states: (layer + 1, window, pos, channel)."""
    with torch.no_grad():
        out = model(input_ids=torch.from_numpy(corpus.ids), output_hidden_states=True)
    return [x.double().numpy() for x in out.hidden_states]


def expected(hidden, corpus, layer, above=100.0, over_median=1000.0):
    """The rows of a layer by (token id, class, text, channel), entry by entry."""
    rows = {}
    for window, stream in enumerate(hidden[layer]):
        sizes = sorted(abs(float(x)) for row in stream for x in row)
        median = sizes[math.ceil(len(sizes) / 2) - 1]
        for position, row in enumerate(stream):
            for channel, x in enumerate(row):
                size = abs(float(x))
                if not (size > above and size >= over_median * median):
                    continue
                key = (*token_at(corpus, window, position), channel)
                found = rows.setdefault(key, {"sizes": [], "ratios": [], "windows": set(), "first": 0})
                found["sizes"].append(size)
                found["ratios"].append(size / median)
                found["windows"].add(window)
                found["first"] += position == 0
    return {key: summed(key, found, corpus) for key, found in rows.items()}


def token_at(corpus, window, position):
    if position == 0:
        return -1, "first", ""
    name = TOKEN_CLASSES[corpus.token_class[window, position]]
    return int(corpus.ids[window, position]), name, corpus.token_text[window, position]


def summed(key, found, corpus):
    places = [(w, p) for w in range(len(corpus.ids)) for p in range(LENGTH)]
    return {
        "n": len(found["sizes"]),
        "n_first": found["first"],
        "n_seen": sum(token_at(corpus, *place) == key[:3] for place in places),
        "windows": len(found["windows"]),
        "max_abs": max(found["sizes"]),
        "mean_abs": sum(found["sizes"]) / len(found["sizes"]),
        "ratio": max(found["ratios"]),
    }


def compare(table, hidden, corpus, layers=(0, 1), rel=1e-9):
    """Raise unless the table has the oracle's rows and no others; how many these are."""
    assert list(table.columns) == list(COLUMNS)
    assert set(table["layer"]) <= set(layers)
    total = 0
    for layer in layers:
        due = expected(hidden, corpus, layer)
        rows = table[table["layer"] == layer]
        found = {(r["token_id"], r["token_class"], r["token"], r["channel"]): r for r in rows.to_dict("records")}
        assert set(found) == set(due)
        assert len(rows) == len(due)
        for key, row in due.items():
            assert {name: found[key][name] for name in row} == pytest.approx(row, rel=rel)
        assert list(rows["n"]) == sorted(rows["n"], reverse=True)
        total += len(due)
    assert (table["n_dropped"] == 0).all()
    return total


@cache
def case(family):
    """A planted model, its text and what transformers says of its hidden states."""
    model, corpus = model_of(family), text_of()
    return model, corpus, hidden_of(model, corpus)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_finds_what_the_oracle_finds(family):
    model, corpus, hidden = case(family)
    table = table_of(model, corpus)
    compare(table, hidden, corpus)
    # A BERT's embeddings are normed before they enter a layer: there is nothing, and the oracle says so too.
    assert set(table["layer"]) == (set() if family == "bert" else {0, 1})


def test_what_was_planted_is_there():
    """Layer 0 gets the embeddings: an entry is where its token stands, and nowhere else."""
    model, corpus, _ = case("llama")
    table = table_of(model, corpus)
    rows = table[table["layer"] == 0].set_index(["token_id", "token_class", "channel"]).sort_index()
    planted = {(-1, "first", 5), (BEGIN, CLASSES[BEGIN % 3], 5)}
    planted |= {(DOT, CLASSES[(DOT + shift) % 3], 20) for shift in (0, 1)}
    assert set(rows.index) == planted
    first = rows.loc[(-1, "first", 5)]
    assert (first["n"], first["n_first"], first["windows"], first["n_seen"]) == (3, 3, 3, WINDOWS)
    assert first["max_abs"] == pytest.approx(3e5, abs=5)
    assert rows.loc[(DOT, CLASSES[DOT % 3], 20), "max_abs"] == pytest.approx(900, abs=5)  # which was negative
    assert set(table[table["layer"] == 1]["channel"]) == {5}
    dots = (corpus.ids[:, 1:] == DOT).sum()
    assert rows.loc[DOT, "n"].sum() == rows.loc[DOT, "n_seen"].sum() == dots
    assert (rows.drop((-1, "first", 5))["n_first"] == 0).all()
    # A large entry is not massive by itself: 240 is above 100, and no thousand times the median.
    assert not (table["token_id"] == WORD).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_exact_in_every_dtype(dtype):
    """The vectors of a model of few digits are taken as they are: its own, in every digit."""
    model, corpus = model_of("llama", dtype), text_of()
    table = table_of(model, corpus, batch_size=WINDOWS)  # as in the oracle: a batch of another size rounds otherwise
    assert compare(table, hidden_of(model, corpus), corpus, rel=1e-12) > 0


def test_an_encoder_is_looked_at_too():
    """Nothing of it needs causality: a BERT whose stream holds an entry that its norm does not take away."""
    model = model_of("bert")
    with torch.no_grad():
        model.embeddings.LayerNorm.weight[3] = 2e5
    corpus = text_of()
    assert compare(table_of(model, corpus), hidden_of(model, corpus), corpus) > 0


# ------------------------------------------------------------------ on the edge of the rule
def seen_at(*entries, median=0.5, length=16, channels=12, **options):
    """The table of a window of entries of one size but for those given: (position, channel, value)."""
    hidden = torch.full((1, length, channels), median, dtype=torch.float64)
    for position, channel, value in entries:
        hidden[0, position, channel] = value
    return table_shown([hidden], **options)


def table_shown(streams, *, probe=None, layer=0, kind=None):
    """The table after batches of one layer, of the texts of geomprobe.testing: token i of 9, position 0 apart."""
    probe = probe or massive_probe.Massive()
    state = probe.init(testing.SPEC)
    for hidden in streams:
        show([(probe, state)], layer, hidden, tokens_of(*hidden.shape[:2], kind=kind))
    return probe.summarise(state, testing.SPEC)["massive"]


def tokens_of(n, length, kind=None):
    kind = torch.arange(n * length).reshape(n, length) % 9 if kind is None else kind.clone()
    kind[:, 0] = -1
    empty = torch.zeros(n, dtype=torch.int64)
    return Tokens(kind, kind, kind, kind, empty, torch.ones(n, length, dtype=torch.bool))


def known_answer():
    """A rule has edges: each case is worked out by hand."""
    # 500 is a thousand times .5, and counts; what is a little smaller does not.
    table = seen_at((3, 7, 500.0), (4, 7, np.nextafter(500.0, 0)), (0, 2, -600.0))
    assert table[["token_id", "channel", "n", "n_first", "n_seen", "windows"]].to_numpy().tolist() == [
        [-1, 2, 1, 1, 1, 1],
        [13, 7, 1, 0, 2, 1],  # the text has its fourth token twice: at 3 and at 12
    ]
    assert table["max_abs"].tolist() == [600.0, 500.0]
    assert table["mean_abs"].tolist() == [600.0, 500.0]
    assert table["ratio"].tolist() == [1200.0, 1000.0]
    # 100 is not above 100, however small the others are.
    table = seen_at((3, 7, 100.0), (4, 7, np.nextafter(100.0, 200)), median=0.01)
    assert table["token_id"].tolist() == [14]
    # The median is that of all entries of the window: here half of the channels, and then one more entry, are large.
    halves = torch.full((1, 16, 12), 0.2, dtype=torch.float64)
    halves[..., 6:] = 0.8
    halves[0, 5, 1] = 300.0
    assert table_shown([halves])["ratio"].tolist() == []  # 95 of 192 are .2, so the median is .8
    halves[0, 5, 1], halves[0, 5, 8] = 0.2, 300.0
    assert table_shown([halves])["ratio"].tolist() == [1500.0]  # 96 are: of the two in the middle the smaller
    # Each window has a median of its own, and what is massive in one is not in the other.
    pair = torch.full((2, 16, 12), 0.5, dtype=torch.float64)
    pair[1] = 5.0
    pair[:, 3, 7] = 600.0
    kind = tokens_of(2, 16, kind=torch.arange(16).repeat(2, 1) % 9).token_index
    table = table_shown([pair], kind=kind)
    assert table[["token_id", "n", "n_seen", "windows", "ratio"]].to_numpy().tolist() == [[13, 1, 4, 1, 1200.0]]
    # The same token twice in a window, and once in another.
    pair[1] = 0.5
    pair[:, 3, 7], pair[0, 12, 7] = torch.tensor([700.0, 900.0]).double(), 800.0
    table = table_shown([pair], kind=kind)
    assert table[["token_id", "n", "windows", "max_abs", "mean_abs", "ratio"]].to_numpy().tolist() == [
        [13, 3, 2, 900.0, 800.0, 1800.0]
    ]


def test_the_rule_on_its_edges():
    known_answer()


def test_a_median_of_nothing_gives_no_ratio():
    table = seen_at((3, 7, 500.0), median=0.0)
    assert table["n"].tolist() == [1]
    assert table["ratio"].isna().all()


def test_nothing_massive_is_a_table_without_rows():
    table = seen_at((3, 7, 90.0))
    assert len(table) == 0
    assert {name: str(kind) for name, kind in table.dtypes.items()} == COLUMNS


def test_where_no_stream_was_seen_there_is_no_table():
    assert massive_probe.Massive().summarise(massive_probe.Massive().init(testing.SPEC), testing.SPEC) == {}


def test_the_models_vectors_are_left_alone():
    hidden = torch.randn(2, 16, 12, generator=torch.Generator().manual_seed(0))
    hidden[:, 3, 7] = -5000.0
    before = hidden.clone()
    table_shown([hidden])
    assert torch.equal(hidden, before)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: massive_probe.Massive(above=-1.0), "above must be at least 0; got -1"),
        (lambda: massive_probe.Massive(over_median=0.5), "over_median must be at least 1; got 0.5"),
        (lambda: massive_probe.Massive(pairs=0), "pairs must be at least 1; got 0"),
        (lambda: massive_probe.Massive(slots=10), "slots must be at least 64; got 10"),
    ],
)
def test_parameters_have_a_domain(make, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        make()


# ------------------------------------------------------------------ more pairs than there is room for
def crowded(seed, windows=5):
    """Streams in which many pairs are massive, some far more often than others."""
    rng = np.random.default_rng(seed)
    streams = []
    for _ in range(windows):
        hidden = torch.full((2, 40, 12), 0.1, dtype=torch.float64)
        for _ in range(30):
            item, position, channel = rng.integers(2), rng.integers(40), min(int(rng.exponential(3)), 11)
            hidden[item, position, channel] = 200.0 + rng.random()
        streams.append(hidden)
    return streams


def test_the_most_frequent_pairs_are_kept_and_the_others_counted():
    streams = crowded(0)
    whole, few = (table_shown(streams, probe=massive_probe.Massive(pairs=pairs)) for pairs in (500, 5))
    assert len(whole) > 20
    assert (whole["n_dropped"] == 0).all()
    assert few["n"].tolist() == whole["n"].nlargest(5).tolist()
    assert few["n"].min() > whole["n"].min()
    pd.testing.assert_frame_equal(few.drop(columns="n_dropped"), whole.head(5).drop(columns="n_dropped"))
    assert set(few["n_dropped"]) == {whole["n"].sum() - few["n"].sum()}


@pytest.mark.parametrize("slots", [1, 7, 20])
def test_with_too_few_slots_what_is_left_is_exact_however_the_stream_is_cut(slots):
    streams = crowded(1)
    probe, room = massive_probe.Massive(pairs=slots, slots=slots), massive_probe.Massive(pairs=500)
    whole = table_shown(streams, probe=room)
    kept = table_shown(streams, probe=probe)
    assert len(kept) == slots < len(whole)
    assert set(kept["n_dropped"]) == {whole["n"].sum() - kept["n"].sum()}
    keys = ["token_id", "channel"]
    order = whole.sort_values(keys).head(slots)  # position 0 has the number −1, and comes first
    pd.testing.assert_frame_equal(
        kept.sort_values(keys, ignore_index=True).drop(columns="n_dropped"),
        order.reset_index(drop=True).drop(columns="n_dropped"),
    )
    for cut in range(len(streams) + 1):
        states = []
        for part in (streams[:cut], streams[cut:][::-1]):
            state = probe.init(testing.SPEC)
            for hidden in part:
                show([(probe, state)], 0, hidden, tokens_of(*hidden.shape[:2]))
            states.append(state)
        for a, b in (states, states[::-1]):
            merged = probe.summarise(probe.merge(a, b), testing.SPEC)["massive"]
            pd.testing.assert_frame_equal(merged, kept, rtol=1e-12)


# ------------------------------------------------------------------ one pass, however it is cut
def test_two_halves_are_the_whole():
    model, corpus, _ = case("llama")
    whole = observation_of(model, corpus)
    whole.run(model, batch_size=2)
    halves = []
    for half in (slice(0, 4), slice(4, WINDOWS)):
        made = observation_of(model, corpus)  # with the whole corpus, so that a token has the same number in both
        made.done = half.start
        with pytest.raises(StopIteration):
            made.run(model, batch_size=2, report=stopper(half.stop))
        halves.append(made.states["massive"][1])
    probe = massive_probe.Massive()
    for a, b in (halves, halves[::-1]):
        table = probe.summarise(probe.merge(a, b), whole.spec)["massive"]
        assert len(table) > 4
        pd.testing.assert_frame_equal(table, whole.tables()["massive"], rtol=1e-12)


def stopper(at):
    def report(progress):
        if progress.done >= at:
            raise StopIteration

    return report


def test_a_stopped_pass_goes_on_to_the_same_numbers(tmp_path):
    model, corpus, _ = case("gemma3")
    whole = table_of(model, corpus, batch_size=2)
    made = observation_of(model, corpus)
    with pytest.raises(StopIteration):
        made.run(model, batch_size=2, report=stopper(2))
    made.save(tmp_path)
    again = observation_of(model, corpus)
    assert again.resume(tmp_path)
    assert again.done == 2
    again.run(model, batch_size=2)
    pd.testing.assert_frame_equal(again.tables()["massive"], whole)


def hooks_of(model):
    return [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails):
    model, corpus = model_of("llama"), text_of()
    ids = torch.from_numpy(corpus.ids)
    with torch.no_grad():
        before = model(ids).logits
    made = observation_of(model, corpus)
    hooks = hooks_of(model)
    if fails:
        with pytest.raises(StopIteration):
            made.run(model, batch_size=2, report=stopper(2))
    else:
        made.run(model, batch_size=2)
    assert hooks_of(model) == hooks
    with torch.no_grad():
        assert torch.equal(model(ids).logits, before)


def test_no_other_probe_makes_it_look(monkeypatch):
    """Without such a probe nothing is hung into the model."""

    def fail(*_given):
        raise AssertionError("the stream was asked for")

    monkeypatch.setattr(observation, "streaming", fail)
    model, corpus, _ = case("llama")
    index = index_types(corpus)
    spec = Spec(examine(model, torch.from_numpy(corpus.ids[:1])), corpus_spec(corpus, index))
    made = Observation(spec, {"values": PROBES["values"]()}, corpus, index=index)
    made.run(model, batch_size=3)
    assert set(made.tables()) == {"values"}


def test_of_two_stacks_and_of_images_nothing_is_said(monkeypatch):
    model, corpus, _ = case("llama")
    made = observation_of(model, corpus)
    for layer in made.spec.model.layers:
        monkeypatch.setitem(vars(layer), "part", "decoder")
    made.run(model, batch_size=3)
    assert made.tables() == {}


# ------------------------------------------------------------------ planted defects
def against_the_oracle():
    model, corpus, hidden = case("llama")
    assert compare(table_of(model, corpus, massive_probe.Massive()), hidden, corpus) > 0


def bounded():
    test_the_most_frequent_pairs_are_kept_and_the_others_counted()


# What stands in the probe's code, what in its place is wrong, and which check says so.
MEDIAN = "size.flatten().median()"
MUTANTS = {
    "100 counts": ("(size > self.above)", "(size >= self.above)", known_answer),
    "a thousand times does not count": ("value >= self.over_median", "value > self.over_median", known_answer),
    "the sign counts": ("hidden[item].to(wide).abs()", "hidden[item].to(wide)", known_answer),
    "the median is of positions": (MEDIAN, "size.amax(1).median()", known_answer),
    "the median is of channels": (MEDIAN, "size.median(0).values.max()", known_answer),
    "the median is the larger one": (MEDIAN, "size.flatten().sort().values[size.numel() // 2]", known_answer),
    "the median is the mean": (MEDIAN, "size.mean()", against_the_oracle),
    "a median is given up too soon": ("2 * int((size", "int((size", against_the_oracle),
    "windows count entries": ('pooled["windows"] = torch.ones_like(pooled["n"])', "pass", known_answer),
    "maxima are summed": ('"amax"', '"sum"', known_answer),
    "position 0 is a token": ("(tokens.token_index + 1)", "(tokens.token_index.clamp(min=0) + 1)", against_the_oracle),
    "tokens are one off": ("spec.corpus.tokens[place - 1]", "spec.corpus.tokens[place - 2]", against_the_oracle),
    "the rarest are kept": ('-slots["n"])', 'slots["n"])', bounded),
    "what is dropped is not counted": ('int(slots["n"][first].sum())', 'int(slots["n"].sum())', bounded),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_line_is_caught(monkeypatch, name):
    right, wrong, check = MUTANTS[name]
    check()  # as it stands, it holds
    source = inspect.getsource(massive_probe)
    assert source.count(right) == 1, "the code has changed: plant the defect anew"
    mutant = types.ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", mutant)
    source = source.replace(right, wrong).replace('@PROBES.register("massive")\n', "")
    exec(compile(source, "mutant", "exec"), vars(mutant))
    monkeypatch.setattr(massive_probe, "Massive", mutant.Massive)
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_layer_too_early_or_too_late_is_caught(monkeypatch, family):
    model, corpus, hidden = case(family)
    real = observation.streaming
    for step in (1, -1):
        shifted = lambda m, names, look, step=step: real(m, names, lambda i, x: look((i + step) % 2, x))  # noqa: E731
        monkeypatch.setattr(observation, "streaming", shifted)
        with pytest.raises(AssertionError):
            compare(table_of(model, corpus), hidden, corpus)


# ------------------------------------------------------------------ a real one
@pytest.mark.real
def test_smollm2_has_one_massive_channel_at_position_0():
    """As in the literature: one channel of the first token, from some layer on, where it hardly changes any more."""
    from geomprobe.corpus.sources import sotu
    from geomprobe.corpus.windows import WindowPlan, cut_windows
    from geomprobe.models.load import load
    from geomprobe.models.resolve import resolve

    loaded = load(resolve("smollm2-135m"), dtype="float32", device="cpu")
    corpus = cut_windows(sotu(), loaded.tokenizer, plan=WindowPlan(window=128, windows=2))
    table = table_of(loaded.model, corpus, batch_size=2)
    with torch.no_grad():
        out = loaded.model(input_ids=torch.from_numpy(corpus.ids), output_hidden_states=True)
    sizes = [x.abs() for x in out.hidden_states[:-1]]  # what enters each layer
    massive = [
        x > torch.maximum(torch.tensor(100.0), 1000 * x.flatten(1).median(1).values)[:, None, None] for x in sizes
    ]
    by_layer = table.groupby("layer")["n"].sum().reindex(range(len(massive)), fill_value=0)
    assert by_layer.tolist() == [int(x.sum()) for x in massive]
    assert set(table["token_class"]) == {"first"}
    assert table["channel"].nunique() == 1
    assert (table["windows"] == 2).all()
    assert len(table) >= 10  # of 30 layers
    assert table["layer"].tolist() == list(range(table["layer"].min(), table["layer"].max() + 1))
    assert table["max_abs"].max() < 1.1 * table["max_abs"].min()

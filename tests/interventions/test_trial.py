"""Edits on their way to the kernel, and what they cost, against loops and against models changed by hand."""

import dataclasses
import importlib
import math
import sys

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

from geomprobe.attention.seam import editing, watching
from geomprobe.errors import InvalidParameter, UnsupportedModel
from geomprobe.interventions import trial
from geomprobe.interventions.edits import Scene, member, parse_edit
from geomprobe.interventions.trial import SHAM, Batch, Variant, variants_of
from geomprobe.labels import CLASS_INDEX, CLOSED_CLASSES, FROM_ROW, TOKEN_CLASSES
from geomprobe.stats.suffix import contrast, neighbours_of, queries_of
from tests.interventions.shared import CASES, LENGTH, Reader, as_tokens, batches, reader_of, some_classes, some_ids

DOCUMENTS = torch.tensor([0, 2, 0])  # of three windows; document 1 has none
PREDICTED = LENGTH - 1 - FROM_ROW


@pytest.fixture(params=CASES, ids="-".join)
def reader(request):
    family, kernel = request.param
    return reader_of(family, kernel, dtype=torch.float32)


@pytest.fixture(scope="module")
def llama():
    return reader_of("llama", dtype=torch.float32)


def logits_of(model, ids):
    with torch.no_grad():
        return model(ids, use_cache=False).logits


def tried(reader, edits, *, layers=None, size=3, one_by_one=False, ids=None):
    """The table of edits tried on three windows."""
    layers = tuple(layer.layer for layer in reader.spec.layers) if layers is None else layers
    ids = some_ids(3, seed=1) if ids is None else ids
    stream = batches(ids, some_classes(3, seed=1), DOCUMENTS, size)
    variants = variants_of([parse_edit(edit) for edit in edits], layers, one_by_one=one_by_one)
    return reader.trial.run(stream, variants, 3)


def whole_of(table, setting, layers="all"):
    rows = table[(table["setting"] == setting) & (table["layers"] == layers) & (table["document"] == -1)]
    assert len(rows) == 1
    return rows.to_dict("records")[0]


def costs(before, after, ids):
    """Loss and divergence of each predicted position of each window, by loops in float64."""
    lost, diverged = [], []
    for row in range(len(ids)):
        for pos in range(FROM_ROW, ids.shape[1] - 1):
            logs = []
            for logits in (before, after):
                x = logits[row, pos].double().numpy()
                logs.append(x - x.max() - math.log(np.exp(x - x.max()).sum()))
            target = int(ids[row, pos + 1])
            lost.append(logs[0][target] - logs[1][target])
            diverged.append(float((np.exp(logs[0]) * (logs[0] - logs[1])).sum()))
    return np.array(lost).reshape(len(ids), -1), np.array(diverged).reshape(len(ids), -1)


# ------------------------------------------------------------------ editing
def test_the_kernel_and_who_watches_get_what_was_edited(reader):
    model, ids = reader.model, some_ids(seed=1)
    seen, asked = [], []

    def edit(found):
        asked.append(found)
        return found.call.query * 0.5, found.call.key * 3

    before = logits_of(model, ids)
    with watching(model, seen.append, stages=False), editing(model, edit, reader.notebook):
        during = logits_of(model, ids)
    assert [found.call.layer for found in asked] == [found.call.layer for found in seen] == [0, 1]
    for found, watched in zip(asked, seen, strict=True):
        assert torch.equal(watched.call.query, found.call.query * 0.5)
        assert torch.equal(watched.call.key, found.call.key * 3)
        assert torch.equal(watched.call.value, found.call.value)
        assert "content" in found.stages("k")
    assert (during - before).abs().max() > 1e-3
    assert torch.equal(logits_of(model, ids), before)


def test_the_weights_stay_and_nothing_is_left_behind(reader):
    model, ids = reader.model, some_ids(seed=1)
    before = logits_of(model, ids)  # whose first call leaves hooks of transformers' own
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modelling = sys.modules[type(model).__module__]

    def state():
        interface = dict(vars(transformers.AttentionInterface))
        hooks = [len(hooks) for part in model.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)]
        return interface, hooks, {name: id(value) for name, value in vars(modelling).items()}

    there = state()
    with editing(model, lambda found: (found.call.query, found.call.key * 2), reader.notebook):
        assert state() != there  # else this test sees nothing
        logits_of(model, ids)

    def trip(found):
        if found.call.layer == 1:
            raise ZeroDivisionError("tripped")
        return found.call.query, found.call.key * 2

    with pytest.raises(ZeroDivisionError, match="tripped"), editing(model, trip, reader.notebook):
        logits_of(model, ids)
    assert state() == there
    assert torch.equal(logits_of(model, ids), before)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_without_an_answer_nothing_changes(reader):
    ids = some_ids(seed=1)
    before = logits_of(reader.model, ids)
    with editing(reader.model, lambda _found: None, reader.notebook):
        assert torch.equal(logits_of(reader.model, ids), before)
    with editing(reader.model, lambda found: (found.call.query, found.call.key.clone()), reader.notebook):
        assert (logits_of(reader.model, ids) - before).abs().max() <= 1e-5


def test_another_model_is_not_edited(llama):
    other, ids = reader_of("llama", dtype=torch.float32).model, some_ids(seed=1)
    before = logits_of(other, ids)
    with editing(llama.model, lambda found: (found.call.query, found.call.key * 2), llama.notebook):
        assert torch.equal(logits_of(other, ids), before)


def test_one_layer_alone_is_that_forward_with_its_keys_scaled_by_hand(monkeypatch):
    """In the modelling code itself, behind the rotation, for windows and grouped keys too."""
    for family in ("llama", "gemma3"):
        reader = reader_of(family, dtype=torch.float32)
        ids, token_class = some_ids(3, seed=1), some_classes(3, seed=1)
        table = tried(reader, ["scale_class:function:0.7"], one_by_one=True)
        inside = member(token_class, "function")[:, None, :, None]
        modelling = importlib.import_module(type(reader.model).__module__)
        turn = modelling.apply_rotary_pos_emb
        for layer in (0, 1):
            calls = []

            def by_hand(q, k, *args, calls=calls, layer=layer, turn=turn, inside=inside, **kwargs):
                q, k = turn(q, k, *args, **kwargs)
                calls.append(1)
                return (q, torch.where(inside, k * math.exp(0.7), k)) if len(calls) == layer + 1 else (q, k)

            before = logits_of(reader.model, ids)
            with monkeypatch.context() as patch:
                patch.setattr(modelling, "apply_rotary_pos_emb", by_hand)
                after = logits_of(reader.model, ids)
            assert len(calls) == 2
            lost, diverged = costs(before, after, ids)
            row = whole_of(table, "scale_class(function, 0.7)", str(layer))
            assert abs(lost.mean()) > 1e-4
            assert row["delta_ce"] == pytest.approx(lost.mean(), abs=1e-5)
            assert row["kl"] == pytest.approx(diverged.mean(), abs=1e-5)


@pytest.mark.parametrize("beta", [0.5, 1.5])
def test_temperature_is_that_of_a_model_with_other_query_weights(beta):
    reader = reader_of("llama", dtype=torch.float32)
    ids = some_ids(3, seed=1)
    row = whole_of(tried(reader, [f"temperature:{beta}"]), f"temperature({beta})")
    before = logits_of(reader.model, ids)
    with torch.no_grad():
        for layer in reader.model.model.layers:
            layer.self_attn.q_proj.weight *= beta
    lost, diverged = costs(before, logits_of(reader.model, ids), ids)
    assert abs(lost.mean()) > 1e-3
    assert row["delta_ce"] == pytest.approx(lost.mean(), abs=1e-5)
    assert row["kl"] == pytest.approx(diverged.mean(), abs=1e-5)
    assert row["displacement"] == 0


# ------------------------------------------------------------------ the table
EDITS = ["neutral_norm", "permute_norm", "neutral_query", "temperature:0.7", "scale_class:function:1"]


def test_the_sham_costs_nothing(reader):
    for document, row in tried(reader, []).groupby("document"):
        assert len(row) == 1, document
        assert row["setting"].item() == "sham"
        assert row["delta_ce"].abs().item() < 1e-4
        assert row["kl"].abs().item() < 1e-6


def test_loss_and_divergence_are_those_of_a_slow_softmax(reader):
    ids = some_ids(3, seed=1)
    table = tried(reader, EDITS)
    before = logits_of(reader.model, ids)
    token_class = some_classes(3, seed=1)
    inside = member(token_class, "function")[:, None, :, None]

    def longer(found):
        return found.call.query, torch.where(inside, found.call.key * math.e, found.call.key)

    with editing(reader.model, longer, reader.notebook):
        after = logits_of(reader.model, ids)
    lost, diverged = costs(before, after, ids)
    own = table[table["setting"] == "scale_class(function, 1)"].set_index("document")
    assert sorted(own.index) == [-1, 0, 2]
    for document, windows in ((-1, [0, 1, 2]), (0, [0, 2]), (2, [1])):
        assert own.loc[document, "n_tokens"] == PREDICTED * len(windows)
        assert own.loc[document, "delta_ce"] == pytest.approx(lost[windows].mean(), abs=1e-5)
        assert own.loc[document, "kl"] == pytest.approx(diverged[windows].mean(), abs=1e-5)
    assert own.loc[-1, "kl"] > 1e-4
    assert (table["kl"] > -1e-6).all()


def test_documents_weigh_to_the_whole(llama):
    table = tried(llama, EDITS, one_by_one=True)
    for _, own in table.groupby(["setting", "layers"]):
        whole, each = own[own["document"] == -1], own[own["document"] != -1]
        assert whole["n_tokens"].item() == each["n_tokens"].sum() == 3 * PREDICTED
        for column in ("delta_ce", "kl"):
            expected = np.average(each[column], weights=each["n_tokens"])
            assert whole[column].item() == pytest.approx(expected, rel=1e-9, abs=1e-15)
        assert each["displacement"].isna().all()


def test_rows_come_sham_first_then_all_layers_then_each(llama):
    table = tried(llama, ["neutral_norm", "sham", "temperature:0.7"], one_by_one=True)
    whole = table[table["document"] == -1]
    assert list(zip(whole["setting"], whole["layers"], strict=True)) == [
        ("sham", "all"),
        ("neutral_norm", "all"),
        ("temperature(0.7)", "all"),
        ("neutral_norm", "0"),
        ("neutral_norm", "1"),
        ("temperature(0.7)", "0"),
        ("temperature(0.7)", "1"),
    ]
    single = tried(llama, ["neutral_norm"], layers=(1,))
    assert set(single["layers"]) == {"1"}
    for column in ("delta_ce", "kl", "displacement"):
        alone, among = (whole_of(x, "neutral_norm", "1")[column] for x in (single, table))
        assert alone == pytest.approx(among, rel=1e-9)


def test_keys_moved_are_the_mean_of_the_edited_layers(llama):
    table = tried(llama, ["scale_class:all:0.5"], one_by_one=True)
    for layers in ("all", "0", "1"):
        found = whole_of(table, "scale_class(all, 0.5)", layers)["displacement"]
        assert found == pytest.approx(math.exp(0.5) - 1, rel=1e-5)
    assert whole_of(table, "sham")["displacement"] == 0


def test_the_change_of_the_contrast_grows_with_the_logits():
    """Λ is linear in the logits: logits times 3 change it twice as much as logits times 2."""
    reader = reader_of("llama", dtype=torch.float32)
    with torch.no_grad():
        for layer in reader.model.model.layers:
            layer.self_attn.o_proj.weight.zero_()  # the second layer reads what it read
    base = whole_of(tried(reader, ["temperature:2", "temperature:3"]), "temperature(2)")["delta_class_sink"]
    more = whole_of(tried(reader, ["temperature:3"]), "temperature(3)")["delta_class_sink"]
    assert abs(base) > 1e-4
    assert more == pytest.approx(2 * base, rel=1e-3)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_sums_of_the_contrast_are_those_of_all_heads(family):
    """Grouped queries and sliding windows: the heads that share a key may be summed first."""
    reader = reader_of(family)
    seen, token_class = [], some_classes(2, seed=1)
    batch = Batch(some_ids(2, seed=1), as_tokens(token_class, torch.tensor([0, 1])), 0)
    with torch.no_grad(), watching(reader.model, seen.append, stages=False):
        reader.model(batch.ids, use_cache=False)
    late = torch.arange(LENGTH) >= FROM_ROW
    closed = torch.isin(token_class, torch.tensor([CLASS_INDEX[name] for name in CLOSED_CLASSES]))
    content = (token_class == CLASS_INDEX["content"]) & late
    for found in seen:
        near, queries = neighbours_of(content, 8), queries_of(found.call.visibility(), 8)
        value = contrast(found.call.query, found.call.key, neighbours=near, queries=queries, scale=found.call.scale)
        has = (near.count > 0) & (queries.count >= 16) & late
        for sums, inside in zip(batch.class_sums(found), (closed, content), strict=True):
            own = torch.cat([value[:, head][inside & has] for head in range(4)])
            assert len(own) > 20
            assert sums[0] == pytest.approx(float(own.sum()), rel=1e-9)
            assert sums[1] == len(own)


def test_layers_before_the_edited_one_are_not_looked_at_again(llama, monkeypatch):
    edits = ["neutral_norm", "swap_angle:permute_norm"]
    looked, own = [], Batch.class_sums

    def noting(batch, seen):
        looked.append(seen.call.layer)
        return own(batch, seen)

    monkeypatch.setattr(Batch, "class_sums", noting)
    due = tried(llama, edits, one_by_one=True)
    assert looked == [0, 1] * 4 + [0, 1, 1] * 2  # without, and all with the sham; then each layer by itself
    original = trial._Pass
    monkeypatch.setattr(trial, "_Pass", lambda *args: dataclasses.replace(original(*args), touched=True))
    pd.testing.assert_frame_equal(tried(llama, edits, one_by_one=True), due)
    assert len(looked) == 14 + 2 * 8


# ------------------------------------------------------------------ what is drawn
def test_draws_are_the_same_for_all_edits(llama, monkeypatch):
    drawn = []
    own = Scene.drawn

    def noting(scene, length):
        made = own(scene, length)
        drawn.append((scene.seen.call.layer, scene.seed, tuple(made.tolist())))
        return made

    monkeypatch.setattr(Scene, "drawn", noting)
    tried(llama, ["permute_norm", "swap_angle:1"], size=2, one_by_one=True)
    assert len(drawn) == 2 * (2 * 2 + 2 * 2)  # batches · (edits · all layers + edits · each)
    assert len(set(drawn)) == 4  # layers · batches
    assert len({order for _, _, order in drawn}) == 4


def test_a_seed_gives_the_same_numbers_and_another_gives_others(llama):
    edits = ["permute_norm", "swap_angle:0.5", "neutral_norm"]
    first = tried(llama, edits)
    pd.testing.assert_frame_equal(tried(llama, edits), first)
    alone = tried(llama, ["swap_angle:0.5"])
    due = first[first["setting"] == "swap_angle(0.5)"].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone[alone["setting"] == "swap_angle(0.5)"].reset_index(drop=True), due)
    other = tried(Reader(llama.model, seed=1), edits)
    for setting in ("permute_norm", "swap_angle(0.5)"):
        assert whole_of(other, setting)["delta_ce"] != whole_of(first, setting)["delta_ce"]
    assert whole_of(other, "neutral_norm") == whole_of(first, "neutral_norm")


# 3 windows by twos: the last batch is smaller than the others.
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("columns", [("n_tokens", "delta_ce", "kl"), ("displacement",), ("delta_class_sink",)])
def test_batch_size_does_not_matter_without_draws(llama, size, columns):
    edits = ["neutral_norm", "neutral_query", "temperature:0.7", "scale_class:function:1", "equalise_class:function"]
    due, found = (tried(llama, edits, size=n) for n in (3, size))
    keys = ["setting", "layers", "document"]
    pd.testing.assert_frame_equal(found[[*keys, *columns]], due[[*keys, *columns]], rtol=1e-4, atol=1e-5)


def test_it_tells_how_far_it_is(llama):
    told = []
    stream = batches(some_ids(3, seed=1), some_classes(3, seed=1), DOCUMENTS, 2)
    llama.trial.run(stream, [Variant(SHAM, (0,)), Variant(parse_edit("neutral_norm"), (0, 1))], 3, told.append)
    assert told == [1, 2, 3, 4, 5, 6]


# ------------------------------------------------------------------ calibration
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_what_is_known_is_what_numpy_says(family):
    reader = reader_of(family)
    seen, token_class = [], some_classes(2, seed=6).numpy()
    with torch.no_grad(), watching(reader.model, seen.append, stages=False):
        reader.model(some_ids(2, seed=6), use_cache=False)
    for found in seen:
        known = reader.known[found.call.name]
        assert known.key.dtype == known.query.dtype == known.by_class.dtype == torch.float64
        assert known.by_class.shape == (2, len(TOKEN_CLASSES))
        for head in range(2):
            logs = np.log(np.linalg.norm(found.call.key[:, head].numpy(), axis=-1))
            assert float(known.key[head]) == pytest.approx(math.exp(logs[:, 1:].mean()), rel=1e-9)
            for name, at in CLASS_INDEX.items():
                inside = token_class == at
                inside[:, 0] = False
                value = float(known.by_class[head, at])
                if inside.any():
                    assert value == pytest.approx(logs[inside].mean(), rel=1e-9, abs=1e-12)
                else:
                    assert math.isnan(value), name
        for head in range(4):
            logs = np.log(np.linalg.norm(found.call.query[:, head, 1:].numpy(), axis=-1))
            assert float(known.query[head]) == pytest.approx(math.exp(logs.mean()), rel=1e-9)
        gains = reader.model.get_submodule(found.call.name)
        if family == "llama":
            assert known.gain is None
        else:
            assert torch.allclose(known.gain, 1 + gains.k_norm.weight.detach(), atol=1e-4)
        assert known.pairing.first.tolist() == list(range(8))
        assert known.pairing.second.tolist() == list(range(8, 16))


# ------------------------------------------------------------------ refusals
SMALL = {"vocab_size": 160, "hidden_size": 32}


def test_an_encoder_is_refused():
    config = transformers.BertConfig(
        **SMALL, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=64
    )
    model = transformers.BertForMaskedLM(config).eval()
    said = r"^Interventions are judged by the loss, and this model predicts no next token\.$"
    with pytest.raises(UnsupportedModel, match=said):
        Reader(model)


def test_attention_in_code_of_its_own_is_refused():
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("bloom", **SMALL, n_layer=2, n_head=4)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    said = (
        r"^Layer 0 \(transformer\.h\.0\.self_attention\) computes attention in code of its own, whose queries and keys "
        r"cannot be replaced; interventions need transformers' attention interface\.$"
    )
    with pytest.raises(UnsupportedModel, match=said):
        Reader(model)


def test_no_layers_are_refused():
    with pytest.raises(InvalidParameter, match=r"^layers must name at least one attention layer\.$"):
        variants_of([SHAM], (), one_by_one=False)


def test_variants():
    norm = parse_edit("neutral_norm")
    made = variants_of([norm], (2, 5), one_by_one=True)
    assert [(str(v.setting), v.layers) for v in made] == [
        ("sham", (2, 5)),
        ("neutral_norm", (2, 5)),
        ("neutral_norm", (2,)),
        ("neutral_norm", (5,)),
    ]
    assert len(variants_of([norm], (2,), one_by_one=True)) == 2  # one layer is all there is
    balanced = variants_of([norm, parse_edit("neutral_norm@balanced")], (2, 5), one_by_one=True)
    assert [str(v.setting) for v in balanced[:4]] == ["sham", "sham@balanced", "neutral_norm", "neutral_norm@balanced"]
    assert all(len(v.layers) == 2 for v in balanced[:4])
    assert len(balanced) == 8
    twice = variants_of([norm, norm], (0, 1), one_by_one=False)
    assert [str(v.setting) for v in twice] == ["sham", "neutral_norm"]

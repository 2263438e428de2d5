"""The pass over words in context keeps what the model makes of each window's last token, and nothing else of it."""

import json

import numpy as np
import pytest
import torch
import transformers

import geomprobe
from geomprobe import collection as module
from geomprobe.attention.anatomy import examine
from geomprobe.attention.seam import attending
from geomprobe.attention.stages import Notebook
from geomprobe.collection import NOTE, STORE, Collection
from geomprobe.corpus.contexts import NO_BAND, Contexts, WordType
from geomprobe.labels import ALL_HEADS
from geomprobe.models.calling import text_inputs
from geomprobe.testing import tiny_model

FAMILIES = ("llama", "gemma3")
GAUGED = ("llama", "gemma3_text")
LENGTH = 44  # longer than the sliding windows of the tiny models
BANDS = (NO_BAND, 0, NO_BAND)  # of the types: one of them has 16 windows, the others 8
LAYERS, HEADS, WIDTH, HIDDEN = 2, {"k": 2, "q": 4}, 16, 32


def some_contexts(length=LENGTH, seed=0):
    """Windows of random ids, as no text would give them."""
    kinds = tuple(WordType(f"word{at}", "some", 3.0, 20, band) for at, band in enumerate(BANDS))
    of_type = np.repeat(np.arange(len(kinds)), [kind.n_contexts for kind in kinds])
    rng = np.random.default_rng(seed)
    return Contexts(
        types=kinds,
        type_index=of_type,
        document=np.zeros(len(of_type), dtype=np.int64),
        start=np.arange(len(of_type)),
        ids=rng.integers(3, 160, size=(len(of_type), length)),
        document_names=("only",),
        left_out={},
    )


@pytest.fixture(scope="module")
def contexts():
    return some_contexts()


def spec_of(model):
    return examine(model, torch.from_numpy(some_contexts().ids[:1]))


# Any matrices do: what they are is the matter of tests/test_key_gauges.py.
GAUGES = {layer: np.random.default_rng(layer).normal(size=(HEADS["k"], WIDTH, WIDTH)) for layer in range(LAYERS)}


def collect(model, contexts, folder, **options):
    collection = Collection(spec_of(model), contexts, folder, GAUGES if model.config.model_type in GAUGED else {})
    collection.run(model, **{"batch_size": 5, **options})
    return collection


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def collected(model, contexts, tmp_path_factory):
    return collect(model, contexts, tmp_path_factory.mktemp("collected"))


def cells_of(collection, chosen=(0, 1, 2), n=8, gauge="raw"):
    cells = [cell for cell in collection.cells(chosen, n) if cell.gauge == gauge]
    return {(cell.space, cell.vector, cell.layer, cell.head): cell.x for cell in cells}


# ------------------------------------------------------------------ what is kept
def test_it_is_what_capture_sees_of_each_window_alone(model, contexts, collected):
    cells = cells_of(collected)
    for row, at in enumerate(contexts.rows((0, 1, 2), 8).ravel()):
        with torch.no_grad(), geomprobe.capture(model, stages=("content",)) as seen:
            model(torch.from_numpy(contexts.ids[at])[None], use_cache=False)
        assert [record.layer for record in seen] == list(range(LAYERS))
        for record in seen:
            for vector, heads in HEADS.items():
                expected = getattr(record, vector)["content"][0, :, -1].numpy()  # (head, d)
                assert expected.shape == (heads, WIDTH)
                for head in range(heads):
                    found = cells["content", vector, record.layer, head][row // 8, row % 8]
                    assert np.abs(found - expected[head]).max() <= 1e-5


def test_the_residual_stream_is_what_enters_a_layer(model, contexts, collected):
    cells = cells_of(collected)
    entered = {}

    def keep(name):
        return lambda _module, args: entered.update({name: args[0][:, -1].clone()})

    layers = model.model.layers
    handles = [layer.register_forward_pre_hook(keep(at)) for at, layer in enumerate(layers)]
    rows = contexts.rows((0, 1, 2), 8).ravel()
    with torch.no_grad():
        made = model(torch.from_numpy(contexts.ids[rows]), use_cache=False, output_hidden_states=True)
    for handle in handles:
        handle.remove()
    for layer in range(LAYERS):
        found = cells["residual", "", layer, ALL_HEADS].reshape(len(rows), HIDDEN)
        hidden = made.hidden_states[layer][:, -1]
        assert np.abs(found - hidden.numpy()).max() <= 1e-5
        assert torch.equal(hidden, entered[layer])
    assert not np.allclose(cells["residual", "", 0, ALL_HEADS], cells["residual", "", 1, ALL_HEADS], atol=0.1)


def test_the_embedding_is_that_of_the_last_token(model, contexts, collected):
    rows = contexts.rows((0, 1, 2), 8)
    with torch.no_grad():
        expected = model.get_input_embeddings()(torch.from_numpy(contexts.ids[rows][:, :, -1]))
    assert np.array_equal(cells_of(collected)["embedding", "", -1, ALL_HEADS], expected.numpy())


def test_cells_come_embedding_first_then_layer_by_layer(collected):
    keys = [(cell.space, cell.vector, cell.layer, cell.head, cell.gauge) for cell in collected.cells((0, 1, 2), 8)]
    expected = [("embedding", "", -1, ALL_HEADS, "raw")]
    for layer in range(LAYERS):
        for vector, gauge in (("k", "raw"), ("k", "balanced"), ("q", "raw")):
            expected += [("content", vector, layer, head, gauge) for head in range(HEADS[vector])]
        expected.append(("residual", "", layer, ALL_HEADS, "raw"))
    assert keys == expected
    assert collected.n_cells == len(expected)


def test_a_cell_has_the_first_windows_of_the_types_that_are_asked_for(collected):
    everything = {gauge: cells_of(collected, gauge=gauge) for gauge in ("raw", "balanced")}
    for cell in collected.cells((2, 0), 3):
        wide = everything[cell.gauge][cell.space, cell.vector, cell.layer, cell.head]
        assert cell.x.dtype == np.float32
        assert cell.x.shape == (2, 3, wide.shape[-1])
        assert np.array_equal(cell.x, wide[[2, 0], :3])
    assert {cell.x.shape[:2] for cell in collected.cells((1,), 16)} == {(1, 16)}


def test_a_cell_says_which_it_is(collected):
    cell = next(iter(collected.cells((0,), 1)))
    assert cell.key == {"layer": -1, "vector": "", "head": ALL_HEADS, "space": "embedding", "gauge": "raw"}


def test_what_is_kept_in_half_precision_is_exact(contexts, tmp_path):
    """The file holds float32, whatever the model computes in."""
    model = tiny_model("llama", dtype=torch.bfloat16)
    cells = cells_of(collect(model, contexts, tmp_path))
    for x in cells.values():
        assert np.isfinite(x).all()
        assert np.array_equal(torch.from_numpy(x.copy()).bfloat16().float().numpy(), x)


def two_stacks(family):
    small = {"vocab_size": 160, "d_model": 32, "decoder_start_token_id": 0}
    torch.manual_seed(0)
    if family == "t5":
        config = transformers.T5Config(**small, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
        return transformers.T5ForConditionalGeneration(config).eval()
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = transformers.BartConfig(
        **small, **heads, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=48, decoder_ffn_dim=48
    )
    return transformers.BartForConditionalGeneration(config).eval()


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_both_parts_of_an_encoder_decoder_read_the_word(contexts, tmp_path, family):
    """The decoder is given the text too, with the word as its last token, as in the pass over windows."""
    model = two_stacks(family)
    cells = cells_of(collect(model, contexts, tmp_path))
    layers = {layer.module: layer.layer for layer in spec_of(model).layers}
    for row in (0, 9, 23):
        ids = torch.from_numpy(contexts.ids[contexts.rows((0, 1, 2), 8).ravel()[row]])[None]
        with torch.no_grad(), geomprobe.capture(model, stages=("content",)) as seen:
            model(**text_inputs(model, ids), use_cache=False)
        assert {record.module for record in seen} == set(layers)
        for record in seen:
            for vector in ("k", "q"):
                for head, expected in enumerate(getattr(record, vector)["content"][0, :, -1]):
                    found = cells["content", vector, layers[record.module], head][row // 8, row % 8]
                    assert np.abs(found - expected.numpy()).max() <= 1e-5, (record.module, vector)
    assert {space for space, *_ in cells} == {"content", "embedding"}  # two residual streams have no one layer


# ------------------------------------------------------------------ keys in the balanced gauge
def test_keys_come_in_the_balanced_gauge_too(collected):
    raw, balanced = cells_of(collected), cells_of(collected, gauge="balanced")
    assert set(balanced) == {("content", "k", layer, head) for layer in range(LAYERS) for head in range(HEADS["k"])}
    for (space, vector, layer, head), x in balanced.items():
        expected = raw[space, vector, layer, head].astype(float) @ GAUGES[layer][head]
        assert np.allclose(x, expected, rtol=1e-5, atol=1e-6)
        assert not np.allclose(x, raw[space, vector, layer, head], atol=0.1)


def test_a_layer_without_a_gauge_has_raw_keys_alone(model, contexts, tmp_path):
    found = Collection(spec_of(model), contexts, tmp_path, {1: GAUGES[1]})
    found.run(model, batch_size=16)
    assert {cell.layer for cell in found.cells((0,), 1) if cell.gauge == "balanced"} == {1}
    assert found.n_cells == len(list(found.cells((0,), 1)))


# ------------------------------------------------------------------ however the pass is cut
@pytest.mark.parametrize("size", [1, 3, 100])
def test_batch_size_does_not_matter(model, contexts, collected, tmp_path, size):
    other = collect(model, contexts, tmp_path, batch_size=size)
    assert other.columns == collected.columns
    for (key, x), (other_key, y) in zip(cells_of(collected).items(), cells_of(other).items(), strict=True):
        assert key == other_key
        assert np.abs(x - y).max() <= 1e-5


def test_it_tells_how_far_it_is(model, contexts, tmp_path):
    told = []
    collect(model, contexts, tmp_path, batch_size=5, report=told.append)
    assert told == [5, 10, 15, 20, 25, 30, 32]


def test_the_notebook_of_an_earlier_pass_changes_nothing(model, contexts, collected, tmp_path):
    notebook = Notebook(attending(model))
    spec = examine(model, torch.from_numpy(contexts.ids[:1]), notebook=notebook)
    other = Collection(spec, contexts, tmp_path)
    other.run(model, batch_size=5, notebook=notebook)
    assert (tmp_path / STORE).read_bytes() == (collected.folder / STORE).read_bytes()


def stopper(at):
    def report(done):
        if done >= at:
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize("at", [10, 32])
def test_a_pass_that_was_stopped_goes_on_to_the_same_numbers(model, contexts, collected, tmp_path, monkeypatch, at):
    monkeypatch.setattr(module, "SAVE_EVERY", -1.0)  # save after every batch
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        collect(model, contexts, tmp_path, report=stopper(at))
    kept = {10: 5, 32: 30}[at]
    assert json.loads((tmp_path / NOTE).read_text(encoding="utf-8"))["done"] == kept
    again = Collection(spec_of(model), contexts, tmp_path)
    assert again.resume()
    assert again.done == kept
    told = []
    again.run(model, batch_size=5, report=told.append)
    assert told == [*range(kept + 5, 32, 5), 32]
    assert again.columns == collected.columns
    assert (tmp_path / STORE).read_bytes() == (collected.folder / STORE).read_bytes()


def test_it_may_be_stopped_again_and_again(model, contexts, collected, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_EVERY", -1.0)
    for at in (10, 15, 30):
        again = Collection(spec_of(model), contexts, tmp_path)
        assert again.resume() == (at > 10)
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            again.run(model, batch_size=5, report=stopper(at))
    again = Collection(spec_of(model), contexts, tmp_path)
    assert again.resume()
    again.run(model, batch_size=5)
    assert (tmp_path / STORE).read_bytes() == (collected.folder / STORE).read_bytes()


def test_a_pass_that_is_over_is_not_run_again(model, contexts, collected):
    again = Collection(spec_of(model), contexts, collected.folder)
    assert again.resume()
    assert again.done == contexts.n_contexts

    def fail(_done):
        raise AssertionError("computed again")

    again.run(model, batch_size=5, report=fail)
    assert all(np.array_equal(x, cells_of(collected)[key]) for key, x in cells_of(again).items())


def test_without_a_note_it_begins_anew(model, contexts, collected, tmp_path):
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        collect(model, contexts, tmp_path, report=stopper(10))
    assert (tmp_path / STORE).exists()
    assert not (tmp_path / NOTE).exists()
    again = Collection(spec_of(model), contexts, tmp_path)
    assert not again.resume()
    again.run(model, batch_size=5)
    assert (tmp_path / STORE).read_bytes() == (collected.folder / STORE).read_bytes()


# ------------------------------------------------------------------ the model is left alone
def hooks_of(model):
    return {name: [len(part._forward_hooks), len(part._forward_pre_hooks)] for name, part in model.named_modules()}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_are_bit_identical_before_and_after(contexts, tmp_path, family, fails):
    model = tiny_model(family)
    ids = torch.from_numpy(contexts.ids[:3])
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        before = model(ids, output_hidden_states=True).logits  # whose first call leaves hooks of transformers' own
    hooks = hooks_of(model)
    if fails:
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            collect(model, contexts, tmp_path, report=stopper(10))
    else:
        collect(model, contexts, tmp_path)
    with torch.no_grad():
        after = model(ids).logits
    assert torch.equal(before, after)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert hooks_of(model) == hooks


def test_the_head_does_not_run(contexts, tmp_path):
    model = tiny_model("llama")
    spec = spec_of(model)

    def fail(*_args):
        raise AssertionError("the head ran")

    model.lm_head.register_forward_pre_hook(fail)
    Collection(spec, contexts, tmp_path).run(model, batch_size=16)

"""Measuring a trained run: a tiny one from its texts to its record, killed on the way, diverged, and without texts."""

import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from transformers import AutoTokenizer

from geomprobe import analyze
from geomprobe.corpus.sources import Document, Source
from geomprobe.corpus.windows import WindowPlan, cut_windows
from geomprobe.errors import RunError
from geomprobe.evidence import measure as module
from geomprobe.evidence.measure import (
    RECORD,
    TEMPERATURE_TOKENS,
    VERSION,
    best_temperatures,
    load_trained,
    measure_run,
    short_sinks,
)
from geomprobe.evidence.record import clusters, of_analysis, of_edits, of_renamed, of_training
from geomprobe.lab.arms import ARMS
from geomprobe.lab.backcopy import BackcopySupply, idle_sinks
from geomprobe.lab.recipe import POSITIONS, Recipe, Size, preset
from geomprobe.lab.running import open_training, run_recipe
from geomprobe.lab.text import END_ID, TextPlan, prepare_text
from geomprobe.lab.train import Training
from geomprobe.progress import Reporter
from geomprobe.run.reading import open_run
from tests.lab import killed
from tests.lab.by_hand import Decoder
from tests.lab.made_text import prepared, source

CATEGORIES = """\
animals: dog cat horse wolf
food: bread milk cheese rice
tools: saw axe rope knife
oddities: book song
"""
NOUNS = [line.split()[1:] for line in CATEGORIES.splitlines()[:3]]
WORDS = """\
often: old dark good red long great cold green
usual: the of and in to was is by with near under over from came went took gave found lost made held left new small
more: large heavy poor for that this all but not one when where they had which were said then there time house man hand
seldom: road tree wall hill door book song rain
"""
OFTEN, USUAL, MORE, SELDOM = (line.split()[1:] for line in WORDS.splitlines())
SHARES = [4.2] * len(OFTEN) + [1.2] * len(USUAL + MORE) + [0.2] * len(SELDOM)
APART = 24  # words from noun to noun: the next of its category stands outside of its window
SENTENCE = 12
LENGTH, N_STEPS, RENAMED = 64, 12, 4
SIZE = {"hidden": 32, "intermediate": 48, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16}
RECIPE = Recipe(
    arm=ARMS["A1"],
    size=Size(vocab_size=520, **SIZE),
    length=LENGTH,
    batch=4,
    tokens=N_STEPS * 4 * LENGTH,
    renamed=RENAMED,
)
SPACES = ("keys", "keys_balanced", "residual")
QUIET = Reporter(quiet=True)
KEYS = {
    *("version", "arm", "recipe", "fingerprint", "pair", "step", "tokens", "seconds", "threads", "compiled"),
    *("data", "numbers", "on_the_way", "losses", "curves"),
}


class Planted(BaseException):
    """What stands for a kill."""


def kill(*_given, **_options):
    raise Planted("planted")


def tale(rng, n_words):
    """Words of three frequencies in sentences, now and then a noun of the next category."""
    words = rng.choice(OFTEN + USUAL + MORE + SELDOM, size=n_words, p=np.array(SHARES) / sum(SHARES)).tolist()
    for number, at in enumerate(range(APART + 3, n_words, APART)):
        words[at] = str(rng.choice(NOUNS[number % len(NOUNS)]))
    sentences = [words[at : at + SENTENCE] for at in range(0, n_words, SENTENCE)]
    return " ".join(f"{' '.join([one[0].capitalize(), *one[1:6]])}, {' '.join(one[6:])}." for one in sentences)


def strict(file):
    """What a file says in plain JSON, which has no NaN."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Texts, categories, another text in place of the packaged one; no figures and maps, which take longest."""
    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    tales = Source("tales", tuple(Document(f"tale-{i}", tale(rng, 12_000)) for i in range(3)))
    (folder / "categories.txt").write_text(CATEGORIES, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOMPROBE_CACHE", str(folder / "cache"))
        patch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")
        patch.setattr("geomprobe.words.flat_map", lambda vectors: np.asarray(vectors, dtype=float)[:, :2])
        patch.setattr(module, "sotu", lambda: source(8))
        data = prepare_text(tales, TextPlan(RECIPE.size.vocab_size, RENAMED), say=lambda _sentence: None)
        yield SimpleNamespace(data=data, categories=folder / "categories.txt")


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    """The folder of a training that is not to be changed."""
    out = tmp_path_factory.mktemp("trained") / "run"
    run_recipe(RECIPE, world.data, out=out, place="cpu", compiled=False, overwrite=False, reporter=QUIET)
    return out


@pytest.fixture(scope="module")
def measured(world, trained, tmp_path_factory):
    """A measured copy: its folder, its record, and what was there whenever something was begun."""
    path = Path(shutil.copytree(trained, tmp_path_factory.mktemp("measured") / "run"))
    seen = []

    def watched(name, whole):
        def do(*given, **options):
            seen.append((name, (path / RECORD).exists()))
            return whole(*given, **options)

        return do

    with pytest.MonkeyPatch.context() as patch:
        for name in ("analyze", "intervene", "parent_ranks", "losses", "curves"):
            patch.setattr(module, name, watched(name, getattr(module, name)))
        record = measure_run(path, data=world.data, categories=world.categories, reporter=QUIET)
    return SimpleNamespace(path=path, record=record, seen=seen)


@pytest.fixture
def again(world):
    """Measure a folder with what the others were measured with."""
    return lambda path: measure_run(path, data=world.data, categories=world.categories, reporter=QUIET)


# ---------------------------------------------------------------------- the record
def test_what_a_record_holds(measured, trained):
    record, manifest = measured.record, open_training(trained).manifest
    assert record.keys() == KEYS
    assert record["version"] == VERSION
    assert record["recipe"] == RECIPE.described
    for name in ("arm", "fingerprint", "pair", "step", "tokens", "seconds", "threads"):
        assert record[name] == manifest[name]
    assert (record["arm"], record["step"]) == ("A1", N_STEPS)


def test_a_record_is_plain_json(measured):
    assert strict(measured.path / RECORD) == measured.record


def test_its_numbers_are_those_of_the_folders_beside_it(measured):
    path, found = measured.path, dict(measured.record["numbers"])
    analysis, edits = open_run(path / "analysis"), open_run(path / "edits")
    due = of_training(path, open_training(path).manifest) | of_analysis(analysis) | of_edits(edits)
    due |= of_renamed(pd.read_parquet(path / "renamed.parquet"))
    by_themselves = {f"{name}_{factor}x" for name in ("best_beta", "beta_gain") for factor in (1, 2, 4)}
    by_themselves |= {"loss_other_text", "first_mass_64", "first_mass_64_uniform"}
    assert found.keys() - due.keys() == by_themselves
    due |= {name: found[name] for name in by_themselves}
    assert found == {name: value if math.isfinite(value) else None for name, value in due.items()}


def test_everything_was_measured(measured):
    numbers = measured.record["numbers"]
    spaces = ("keys", "keys_balanced", "queries", "residual", "embedding", "contexts")
    named = {f"loss_{factor}x" for factor in (1, 2, 4)} | {f"auc_{space}" for space in spaces}
    named |= {
        f"delta_ce_{name}" for name in ("neutral_norm", "permute_norm", "swap_angle(permute_norm)", "scalar_gain")
    }
    named |= {f"purity_{space}_{group}" for space in SPACES for group in ("rare", "frequent")}
    named |= {f"stability_{group}" for group in ("rare", "frequent")}
    named |= {f"parent_place_{space}_{group}" for space in (*SPACES, "embedding") for group in ("rare", "half")}
    named |= {"tv", "tv_balanced", "growth_scored_k", "radial_over_random_q", "first_mass", "sink_rate", "max_logit"}
    assert {name for name in named if numbers.get(name) is None} == set()
    assert numbers["loss_1x"] < measured.record["losses"][0]["loss"]


def test_words_and_windows_of_the_analysis(measured):
    """As many tokens a window as the model has positions, as 512 are more."""
    for name, probes in (("analysis", {"norms", "split", "clusters", "neighbours"}), ("edits", {"interventions"})):
        run = open_run(measured.path / name)
        assert run.manifest["corpus"]["window"] == POSITIONS * LENGTH
        assert run.manifest["corpus"]["n_windows"] == 32
        assert probes <= set(run.tables)
        assert run.manifest["model"]["id"] == f"{N_STEPS:08d}"  # the last checkpoint's folder
    types = open_run(measured.path / "analysis").tables["types"]
    found = types[types["category"] != ""].groupby("category")["word"].agg(sorted).to_dict()
    assert found == {
        name: sorted(words.split()) for name, words in (line.split(":") for line in CATEGORIES.splitlines())
    }
    with safe_open(measured.path / "analysis" / "vectors" / "clusters.safetensors", "numpy") as vectors:
        words = json.loads(vectors.metadata()["types"])
    assert sorted(words) == sorted(noun for own in NOUNS for noun in own)  # two are no category


def test_curves_and_losses_are_those_of_the_training(measured, trained):
    growth, held_out = (pd.read_parquet(trained / f"{name}.parquet") for name in ("growth", "held_out"))
    curves = measured.record["curves"]
    assert [row["step"] for row in curves] == sorted(set(growth["step"])) == list(range(N_STEPS + 1))
    for row in curves:
        own = growth[growth["step"] == row["step"]]["log_length_k"]
        assert row["log_length_k"] == pytest.approx(sum(own) / len(own), rel=1e-5)
    assert curves[0]["turn_k"] is None  # nothing was before
    assert curves[-1]["cosine_k"] is None  # no update came behind
    first = held_out[held_out["factor"] == 1].groupby("step")["loss"].first()
    assert measured.record["losses"] == [{"step": step, "loss": loss} for step, loss in first.items()]


def test_clusters_on_the_way(measured, world, trained, tmp_path):
    """At the last two saved steps that are early enough, beside the loss there."""
    record = measured.record
    assert [one["step"] for one in record["on_the_way"]] == [6, 8]  # of 0, 1, 2, 3, 4, 6, 8, 11, 12
    losses = {row["step"]: row["loss"] for row in record["losses"]}
    assert [one["loss"] for one in record["on_the_way"]] == [losses[6], losses[8]]
    run = analyze(
        trained / "steps" / "00000006",
        text=world.data.held_out_texts,
        categories=world.categories,
        probes="clusters",
        page=False,
        out=tmp_path / "run",
        quiet=True,
    )
    found = record["on_the_way"][0]["numbers"]
    assert found == pytest.approx(dict(clusters(run)), rel=1e-6)
    later = [record["on_the_way"][1]["numbers"], record["numbers"]]
    assert len({found["anisotropy_keys"], *(one["anisotropy_keys"] for one in later)}) == 3


def test_the_loss_on_another_text(measured):
    """From the model's own logits, window by window."""
    trained = open_training(measured.path)
    model = load_trained(trained)
    tokenizer = AutoTokenizer.from_pretrained(trained.checkpoint)
    corpus = cut_windows(source(8), tokenizer, plan=WindowPlan(window=LENGTH + 1, windows=128))
    with torch.no_grad():
        each = [
            torch.nn.functional.cross_entropy(model(ids[None, :-1]).logits[0].double(), ids[1:])
            for ids in torch.from_numpy(corpus.ids)
        ]
    assert measured.record["numbers"]["loss_other_text"] == pytest.approx(float(torch.stack(each).mean()), rel=1e-5)


# ---------------------------------------------------------------------- sinks in short windows
@pytest.mark.parametrize("bos", [False, True])
def test_attention_on_the_first_of_few_positions_by_hand(world, sharp, bos, monkeypatch):
    monkeypatch.setattr(module, "SINK_WINDOWS", 3)
    monkeypatch.setattr(module, "RATE_ROWS", 24)
    begun = replace(sharp, manifest={**sharp.manifest, "recipe": {**sharp.manifest["recipe"], "bos": bos}})
    found = short_sinks(begun, world.data)
    model, stream = load_trained(sharp), world.data.held_out
    each = []
    for begin in (0, round((len(stream) - 25) / 2 - 0.5), len(stream) - 25):
        ids = stream[begin : begin + 24].astype(np.int64)
        if bos:
            ids[0] = 0
        _, layers = Decoder("A1", model).read(ids.tolist())
        each += [head[row, 0] for layer in layers for head in layer.attention for row in range(1, 24)]
    assert found["first_mass_64"] == pytest.approx(np.mean(each), rel=1e-5)
    assert found["first_mass_64_uniform"] == pytest.approx(np.mean([1 / keys for keys in range(2, 25)]))


@pytest.mark.parametrize("bos", [False, True])
def test_renamed_words_are_read_in_windows_that_begin_as_in_training(world, sharp, bos, monkeypatch):
    told = []
    monkeypatch.setattr(module, "parent_ranks", lambda *_args, bos: told.append(bos))
    module._ranks(
        replace(sharp, manifest={**sharp.manifest, "recipe": {**sharp.manifest["recipe"], "bos": bos}}), world.data
    )
    assert told == [END_ID if bos else None]


# ---------------------------------------------------------------------- the best temperature
def loss_by_hand(trained, data, factor, beta):
    """Held-out loss with all logits times beta, which a gain of the queries takes in; from the model's own logits."""
    model = load_trained(trained)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_norm.weight *= beta
    length, span = factor * LENGTH, 4 * LENGTH
    bos = trained.manifest["recipe"].get("bos", False)
    begins = np.linspace(0, len(data.held_out) - span - 1, TEMPERATURE_TOKENS // span).astype(int)
    each = []
    for begin in [first + more for first in begins for more in range(0, span, length)]:
        ids = torch.from_numpy(data.held_out[begin : begin + length + 1].astype(np.int64))
        if bos:
            ids[0] = 0
        with torch.no_grad():
            each.append(torch.nn.functional.cross_entropy(model(ids[None, :-1]).logits[0].double(), ids[1:]))
    return float(torch.stack(each).mean())


@pytest.fixture(scope="module")
def sharp(trained, tmp_path_factory):
    """A training whose attention matters, and is too sharp: queries made four times as long."""
    path = Path(shutil.copytree(trained, tmp_path_factory.mktemp("sharp") / "run"))
    found = open_training(path)
    model = load_trained(found)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_norm.weight *= 4
            layer.self_attn.o_proj.weight *= 8
    model.save_pretrained(str(found.checkpoint))
    return found


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_the_best_temperature_is_that_of_a_search_by_hand(world, sharp, factor, monkeypatch):
    monkeypatch.setattr(module, "TEMPERATURE_TOKENS", 1024)
    monkeypatch.setattr(sys.modules[__name__], "TEMPERATURE_TOKENS", 1024)
    found = best_temperatures(sharp, world.data)
    assert found.keys() == {f"{name}_{each}x" for name in ("best_beta", "beta_gain") for each in (1, 2, 4)}
    best = found[f"best_beta_{factor}x"]
    assert 1 / 32 < best < 0.9  # inside, and not what it has
    grid = {beta: loss_by_hand(sharp, world.data, factor, beta) for beta in (1, best, best * 0.9, best * 1.1)}
    assert min(grid, key=grid.get) == best
    assert found[f"beta_gain_{factor}x"] == pytest.approx(grid[1] - grid[best], abs=1e-6)
    assert found[f"beta_gain_{factor}x"] > 0


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_it_is_looked_for_on_sequences_that_begin_as_in_training(world, sharp, factor, monkeypatch):
    monkeypatch.setattr(module, "TEMPERATURE_TOKENS", 1024)
    monkeypatch.setattr(sys.modules[__name__], "TEMPERATURE_TOKENS", 1024)
    begun = replace(sharp, manifest={**sharp.manifest, "recipe": {**sharp.manifest["recipe"], "bos": True}})
    found = best_temperatures(begun, world.data)
    best, gain = found[f"best_beta_{factor}x"], found[f"beta_gain_{factor}x"]
    with_bos, without = (
        loss_by_hand(one, world.data, factor, 1) - loss_by_hand(one, world.data, factor, best) for one in (begun, sharp)
    )
    assert gain == pytest.approx(with_bos, abs=1e-6)
    assert gain != pytest.approx(without, abs=1e-5)


def test_looking_for_it_leaves_the_model_alone(world, sharp):
    files = {file: file.read_bytes() for file in sharp.checkpoint.iterdir()}
    first = best_temperatures(sharp, world.data)
    assert best_temperatures(sharp, world.data) == first
    assert {file: file.read_bytes() for file in sharp.checkpoint.iterdir()} == files


def test_the_model_that_is_watched_is_at_rest(measured):
    model = load_trained(open_training(measured.path))
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


# ---------------------------------------------------------------------- once, and whole or not at all
def test_the_record_is_written_last(measured):
    begun = [name for name, _ in measured.seen]
    assert begun == ["analyze", "intervene", "parent_ranks", "analyze", "analyze", "losses", "curves"]
    assert not any(there for _, there in measured.seen)


def test_nothing_is_left_of_what_was_for_the_time_being(measured, trained):
    new = {path.name for path in measured.path.iterdir()} - {path.name for path in trained.iterdir()}
    assert new == {"analysis", "edits", "renamed.parquet", RECORD}


def test_what_was_measured_is_not_measured_again(measured, again, monkeypatch):
    for name in ("analyze", "intervene", "parent_ranks", "of_training", "write_json"):
        monkeypatch.setattr(module, name, kill)
    file = measured.path / RECORD
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    assert again(measured.path) == measured.record
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_a_killed_measurement_leaves_no_record_and_the_next_finishes(trained, measured, again, tmp_path, monkeypatch):
    path = Path(shutil.copytree(trained, tmp_path / "run"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "intervene", kill)
        with pytest.raises(Planted, match="planted"):
            again(path)
    assert not (path / RECORD).exists()
    assert (path / "analysis" / "run.json").exists()
    for left in ("edits", "clusters-6", ".renamed"):  # of one that was killed later
        (path / left).mkdir()
        (path / left / "collection.json").write_text("{", encoding="utf-8")
    assert again(path) == measured.record
    assert strict(path / RECORD) == measured.record
    assert {file.name for file in path.iterdir()} == {file.name for file in measured.path.iterdir()}


@pytest.mark.parametrize("stage", ["parent_ranks", "clusters", "curves"])
def test_killed_later(trained, again, tmp_path, monkeypatch, stage):
    """Each stage stands before the record."""
    path = Path(shutil.copytree(trained, tmp_path / "run"))
    for name in ("analyze", "intervene"):
        monkeypatch.setattr(module, name, lambda *_given, out, **_options: out.mkdir())
    for name in ("of_analysis", "of_edits"):
        monkeypatch.setattr(module, name, lambda _run: {})
    monkeypatch.setattr(module, "clusters", lambda _run: [])
    monkeypatch.setattr(module, "other_loss", lambda _trained: 1.0)
    monkeypatch.setattr(module, "best_temperatures", lambda _trained, _data: {})
    monkeypatch.setattr(module, stage, kill)
    with pytest.raises(Planted, match="planted"):
        again(path)
    assert not (path / RECORD).exists()


def test_a_training_that_is_not_finished(trained, again, tmp_path):
    path = Path(shutil.copytree(trained, tmp_path / "run"))
    (path / "training.json").unlink()
    with pytest.raises(RunError, match="is no finished training"):
        again(path)
    assert not (path / RECORD).exists()


# ---------------------------------------------------------------------- which edits
@pytest.mark.parametrize("arm", list(ARMS))
def test_gains_are_edited_where_they_stand_before_the_rotation(trained, again, tmp_path, monkeypatch, arm):
    path = Path(shutil.copytree(trained, tmp_path / "run"))
    file = path / "training.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    manifest["recipe"]["arm"] = ARMS[arm].fields
    file.write_text(json.dumps(manifest), encoding="utf-8")
    asked = []

    def ask(_model, edits, **_options):
        asked.append(edits)
        raise Planted("planted")

    monkeypatch.setattr(module, "analyze", lambda *_given, **_options: None)
    monkeypatch.setattr(module, "intervene", ask)
    with pytest.raises(Planted, match="planted"):
        again(path)
    always = ("neutral_norm", "permute_norm", "swap_angle:permute_norm")
    assert asked == [(*always, "scalar_gain") if arm in ("A1", "A7") else always]


# ---------------------------------------------------------------------- the task without texts
BACKCOPY = preset(
    "backcopy",
    arm=ARMS["A1"],
    size=Size(vocab_size=64, **SIZE),
    length=32,
    batch=16,
    tokens=6 * 16 * 32,
)


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """The folder of a training of the Bigram–Backcopy task, and its record."""
    out = tmp_path_factory.mktemp("idle") / "run"
    run_recipe(BACKCOPY, None, out=out, place="cpu", compiled=False, overwrite=False, reporter=QUIET)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("analyze", "intervene", "parent_ranks"):
            patch.setattr(module, name, kill)
        record = measure_run(out, data=None, categories=None, reporter=QUIET)
    return SimpleNamespace(path=out, record=record)


def test_sinks_of_the_task_without_texts(idle):
    table = idle_sinks(
        load_trained(open_training(idle.path)), BackcopySupply(BACKCOPY).held_out(BACKCOPY.length, 256)[:, :-1]
    )
    numbers = idle.record["numbers"]
    measures = [name for name in table if name not in ("layer", "head")]
    assert {"idle_first", "idle_uniform", "trigger_before", "key_first", "gap_by_angle"} < set(measures)
    for layer in range(SIZE["layers"]):
        for name in measures:
            heads = table.loc[table["layer"] == layer, name].tolist()
            assert len(heads) == SIZE["heads"]
            assert numbers[f"{name}_layer{layer}"] == pytest.approx(sum(heads) / len(heads)), name
    assert not [name for name in numbers if name.startswith(("head", "layer", "auc", "delta_ce"))]
    pd.testing.assert_frame_equal(pd.read_parquet(idle.path / "idle_sinks.parquet"), table)


def test_a_record_without_texts(idle):
    assert idle.record.keys() == KEYS
    assert strict(idle.path / RECORD) == idle.record
    assert idle.record["on_the_way"] == []
    assert idle.record["numbers"]["loss_4x"] > 0
    assert len(idle.record["losses"]) > 3
    assert not (idle.path / "analysis").exists()


@pytest.mark.parametrize("changed", [{"version": VERSION - 1}, {"fingerprint": "of another training"}])
def test_a_record_of_something_else_is_made_anew(idle, tmp_path, changed):
    path = Path(shutil.copytree(idle.path, tmp_path / "run"))
    (path / RECORD).write_text(json.dumps({**idle.record, **changed, "numbers": {}}), encoding="utf-8")
    assert measure_run(path, data=None, categories=None, reporter=QUIET) == idle.record
    assert strict(path / RECORD) == idle.record


# ---------------------------------------------------------------------- divergence
@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Data of the smallest trainings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOMPROBE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return prepared(paragraphs=5)


SAVED = (0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 24)  # of these trainings


def diverged_at(step, monkeypatch):
    """The loss of an update is NaN."""
    whole = Training.loss

    def loss(self, ids):
        value = whole(self, ids)
        return value * math.nan if torch.is_grad_enabled() and self.step == step else value

    monkeypatch.setattr(Training, "loss", loss)


@pytest.mark.parametrize("step", [0, 5])
def test_a_training_that_diverged_is_recorded_without_analysis(small, tmp_path, monkeypatch, step):
    diverged_at(step, monkeypatch)
    killed.trained(small, tmp_path / "run")
    for name in ("analyze", "intervene", "parent_ranks", "load_trained"):
        monkeypatch.setattr(module, name, kill)
    record = measure_run(tmp_path / "run", data=small, categories=None, reporter=QUIET)
    assert strict(tmp_path / "run" / RECORD) == record
    assert record.keys() == KEYS
    assert record["numbers"]["diverged"] == 1
    assert [record["numbers"][f"loss_{factor}x"] for factor in (1, 2, 4)] == [None] * 3
    assert record["on_the_way"] == []
    assert [row["step"] for row in record["losses"]] == [at for at in (0, 1, 2, 3, 4) if at <= step]
    assert [row["step"] for row in record["curves"]] == list(range(step + 1))
    assert not (tmp_path / "run" / "analysis").exists()


@pytest.mark.parametrize("last", [4, killed.N_STEPS])
def test_a_training_whose_weights_are_no_numbers(small, tmp_path, last):
    """Its lengths and its last held-out loss are none either, be it that no update comes behind."""

    def spoil(step):
        if step == last:
            with torch.no_grad():
                training.model.model.layers[1].self_attn.k_proj.weight.fill_(math.nan)

    training = killed.take_up(small, tmp_path / "run", replace(killed.RECIPE, seed=1))
    training.run(spoil)
    record = measure_run(tmp_path / "run", data=small, categories=None, reporter=QUIET)
    assert strict(tmp_path / "run" / RECORD) == record
    assert record["numbers"]["diverged"] == 1
    assert [row["step"] for row in record["losses"]] == [at for at in SAVED if at < last]
    assert record["curves"][3]["log_length_k"] is not None
    assert record["step"] == last

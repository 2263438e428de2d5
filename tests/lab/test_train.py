"""The training loop: bit for bit the same however often it is killed, and true about what it made."""

import itertools
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from geomprobe.lab import train
from geomprobe.lab.arms import ARMS
from geomprobe.lab.folder import STATE, WHOLE, TrainingFolder
from geomprobe.lab.model import LabForCausalLM
from geomprobe.lab.recipe import PRESETS, read_recipe
from geomprobe.lab.running import run_recipe
from geomprobe.lab.supply import TextSupply
from geomprobe.lab.train import GROWTH_POINTS, PER_OCTAVE, Training, growth_steps, make_model, save_steps, spikes
from geomprobe.progress import Reporter
from tests.lab.killed import ALWAYS, N_STEPS, NEVER, RECIPE, killed, manifest_of, take_up, trained
from tests.lab.made_text import VOCABULARY, prepared

TABLES = ("metrics", "growth", "held_out")
SAVED = [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 24]
NANO = PRESETS["nano"]
N_MOMENTS = 300  # of a training: there are some more
ONE_RUN = ("created", "seconds")  # of a manifest: not the same in another


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOMPROBE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return prepared(paragraphs=5)


@pytest.fixture(scope="module")
def unbroken(data, tmp_path_factory):
    """The folder of a training that was never killed."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    trained(data, folder)
    return folder


@pytest.fixture(scope="module")
def metrics(unbroken):
    return pd.read_parquet(unbroken / "metrics.parquet")


def same_training(folder, unbroken, saved=SAVED):
    """Both made the same, bit for bit."""
    found, expected = manifest_of(folder), manifest_of(unbroken)
    assert found["weights_sha256"] == expected["weights_sha256"]
    for key in ONE_RUN:
        found.pop(key), expected.pop(key)
    assert found == expected
    for name in TABLES:
        pd.testing.assert_frame_equal(
            pd.read_parquet(folder / f"{name}.parquet"), pd.read_parquet(unbroken / f"{name}.parquet"), check_exact=True
        )
    for step in saved:
        one, other = (path / "steps" / f"{step:08d}" for path in (folder, unbroken))
        assert {file.name: file.read_bytes() for file in one.iterdir()} == {
            file.name: file.read_bytes() for file in other.iterdir()
        }
    left = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    assert left == sorted(path.relative_to(unbroken) for path in unbroken.rglob("*"))


class Watched(Reporter):
    """Notes where its bars begin."""

    def bar(self, name, total, *, done=0, unit="windows"):
        self.begun = done
        return super().bar(name, total, done=done, unit=unit)


def test_the_bar_of_a_resumed_training_begins_where_it_was_stopped(data, tmp_path):
    """Else its tokens a second and the time left count updates that an earlier process made."""
    assert killed(data, tmp_path / "run", ("update", 13), state_every=ALWAYS)
    reporter = Watched(quiet=True)
    run_recipe(RECIPE, data, out=tmp_path / "run", place="cpu", compiled=False, overwrite=False, reporter=reporter)
    assert reporter.begun == 13  # updates 0 to 12 are in the state that the kill left


# ---------------------------------------------------------------------- killed
@pytest.mark.parametrize(
    ("moment", "state_every"),
    [
        (("before replace", 0), ALWAYS),  # of begun.json
        (("after save_pretrained", 0), ALWAYS),
        (("update", 0), ALWAYS),
        (("update", 13), NEVER),
        (("after rename", 0), ALWAYS),  # of a checkpoint
        (("before rename", 4), ALWAYS),
        (("after rename", 4), NEVER),
        (("before save", 8), ALWAYS),  # of the state
        (("before fsync", 7), ALWAYS),
        (("after fsync", 7), NEVER),
        (("before unlink", 5), ALWAYS),
        (("after rename", 10), ALWAYS),  # of the last checkpoint
        (("after replace", 37), ALWAYS),  # of the second table
        (("before replace", 39), ALWAYS),  # of training.json
    ],
)
def test_a_killed_training_goes_on_to_the_same_weights(data, unbroken, tmp_path, moment, state_every):
    assert killed(data, tmp_path / "run", moment, state_every=state_every)
    assert not (tmp_path / "run" / WHOLE).exists()
    trained(data, tmp_path / "run")
    same_training(tmp_path / "run", unbroken)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment(data, unbroken, tmp_path, seed):
    moment = int(np.random.default_rng(seed).integers(N_MOMENTS))
    assert killed(data, tmp_path / "run", ("any", moment))
    assert not (tmp_path / "run" / WHOLE).exists()
    trained(data, tmp_path / "run")
    same_training(tmp_path / "run", unbroken)


def test_killed_from_outside(data, unbroken, tmp_path):
    if killed(data, tmp_path / "run", float(np.random.default_rng(0).uniform(0.2, 1.2))):
        assert not (tmp_path / "run" / WHOLE).exists()
    trained(data, tmp_path / "run")
    same_training(tmp_path / "run", unbroken)


def test_killed_at_the_size_that_is_trained(tmp_path, monkeypatch):
    """nano: its products are large enough to be shared among threads, which may add in another order."""
    monkeypatch.setenv("GEOMPROBE_CACHE", str(tmp_path / "cache"))
    text = prepared(paragraphs=60)  # for held-out windows of four times 512 tokens
    nano = replace(NANO, size=replace(NANO.size, vocab_size=VOCABULARY), tokens=6 * NANO.batch * NANO.length)
    trained(text, tmp_path / "one", nano)
    update = int(np.random.default_rng(0).integers(1, 5))
    assert killed(text, tmp_path / "two", ("update", update), recipe=nano)
    assert not (tmp_path / "two" / WHOLE).exists()
    trained(text, tmp_path / "two", nano)
    same_training(tmp_path / "two", tmp_path / "one", save_steps(nano.n_steps))


def test_killed_again_and_again(data, unbroken, tmp_path):
    kills = 0
    while killed(data, tmp_path / "run", ("update", 4)):
        assert not (tmp_path / "run" / WHOLE).exists()
        kills += 1
        assert kills < N_STEPS
    assert kills == N_STEPS // 4 - 1
    same_training(tmp_path / "run", unbroken)


def test_a_finished_training_is_not_run_again(data, unbroken):
    before = manifest_of(unbroken)
    assert take_up(data, unbroken) is None
    assert trained(data, unbroken) == before


def test_killed_behind_its_end(data, unbroken, tmp_path):
    shutil.copytree(unbroken, tmp_path / "run")
    (tmp_path / "run" / STATE).mkdir()  # killed before it was dropped
    assert take_up(data, tmp_path / "run") is None


def test_it_tells_each_update(data, tmp_path):
    told = []
    trained(data, tmp_path / "run", report=told.append, tokens=5 * 64)
    assert told == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------------- what is kept
def test_the_manifest(data, unbroken):
    manifest = manifest_of(unbroken)
    supply = TextSupply(data, RECIPE)
    assert (manifest["arm"], manifest["step"], manifest["tokens"]) == ("A1", N_STEPS, RECIPE.tokens)
    assert read_recipe(manifest["recipe"]) == RECIPE
    assert manifest["fingerprint"] == RECIPE.fingerprint(supply.sha256)
    assert manifest["pair"] == replace(RECIPE, arm=ARMS["A0"]).pair(supply.sha256)
    assert manifest["saved_steps"] == SAVED
    assert manifest["diverged_at"] is None
    assert manifest["n_spikes"] == 0
    assert manifest["data"] == {"name": "tales"}
    assert manifest["n_parameters"] == sum(parameter.numel() for parameter in make_model(RECIPE).parameters())
    assert set(manifest["held_out_loss"]) == {"1", "2", "4"}


@pytest.mark.parametrize("step", SAVED)
def test_a_saved_step_is_the_model_that_its_note_says(data, unbroken, step):
    folder = unbroken / "steps" / f"{step:08d}"
    note = json.loads((folder / WHOLE).read_text(encoding="utf-8"))
    assert note["step"] == step
    assert note["tokens"] == step * RECIPE.batch * RECIPE.length
    assert note["pair"] == manifest_of(unbroken)["pair"]
    model = LabForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    ids = TextSupply(data, RECIPE).held_out(RECIPE.length, 10_000)  # all that there are
    with torch.no_grad():
        expected = float(model(ids, labels=ids).loss)
    assert note["held_out_loss"] == pytest.approx(expected, rel=1e-5)
    assert {file.name for file in folder.iterdir()} >= {file.name for file in data.tokenizer.iterdir()}


def test_the_first_step_is_the_model_as_drawn_and_the_last_the_trained_one(unbroken):
    drawn = make_model(RECIPE).state_dict()
    first = LabForCausalLM.from_pretrained(unbroken / "steps" / "00000000").state_dict()
    last = LabForCausalLM.from_pretrained(unbroken / "steps" / "00000024")
    assert all(torch.equal(drawn[name], x) for name, x in first.items())
    assert train.provenance.sha256_of_weights(last) == manifest_of(unbroken)["weights_sha256"]


def test_the_last_held_out_losses_at_longer_texts(data, unbroken):
    model = LabForCausalLM.from_pretrained(unbroken / "steps" / "00000024")
    table = pd.read_parquet(unbroken / "held_out.parquet")
    assert table.step.tolist() == [*SAVED, N_STEPS, N_STEPS, N_STEPS]
    assert table.factor.tolist() == [1] * len(SAVED) + [1, 2, 4]
    for factor in (1, 2, 4):
        ids = TextSupply(data, RECIPE).held_out(factor * RECIPE.length, 10_000)
        with torch.no_grad():
            expected = float(model(ids, labels=ids).loss)
        row = table[table.factor == factor].iloc[-1]
        assert row.loss == pytest.approx(expected, rel=1e-5)
        assert row.n_tokens == len(ids) * factor * RECIPE.length
        assert manifest_of(unbroken)["held_out_loss"][str(factor)] == row.loss


def test_the_first_loss_is_that_of_the_first_batch(data, metrics):
    ids = TextSupply(data, RECIPE).batch(0)
    model = make_model(RECIPE)
    loss = model(ids, labels=ids).loss
    loss.backward()
    expected = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters()))
    assert metrics.loss[0] == pytest.approx(float(loss.detach()), rel=1e-6)
    assert metrics.gradient[0] == pytest.approx(expected, rel=1e-5)  # before it is clipped
    for vector in "qk":
        parts = [getattr(layer.self_attn, f"{vector}_proj").weight.grad for layer in model.model.layers]
        squares = sum(float(part.double().square().sum()) for part in parts)
        assert metrics[f"gradient_{vector}"][0] == pytest.approx(math.sqrt(squares), rel=1e-5)


def test_parts_of_updates_are_those_between_saved_steps(unbroken, metrics):
    size = RECIPE.size
    for step in (0, 1, 2):
        was, is_ = (
            LabForCausalLM.from_pretrained(unbroken / "steps" / f"{at:08d}").state_dict() for at in (step, step + 1)
        )
        for vector, n_heads in (("q", size.heads), ("k", size.kv_heads)):
            along, across = [], []
            for layer in range(size.layers):
                name = f"model.layers.{layer}.self_attn.{vector}_proj.weight"
                for head in range(n_heads):
                    rows = slice(head * size.head_dim, (head + 1) * size.head_dim)
                    weights = was[name][rows].double().numpy().ravel()
                    decayed = weights * (1 - RECIPE.rate_at(step) * RECIPE.decay)
                    update = is_[name][rows].double().numpy().ravel() - decayed
                    length = math.sqrt(weights @ weights)
                    along.append(update @ weights / length**2)
                    across.append(np.linalg.norm(update - along[-1] * weights) / length)
            assert metrics[f"radial_{vector}"][step] == pytest.approx(np.mean(along), rel=1e-6, abs=1e-12)
            assert metrics[f"tangential_{vector}"][step] == pytest.approx(np.mean(across), rel=1e-6)


def test_it_learns(unbroken, metrics):
    assert metrics.step.tolist() == list(range(N_STEPS))
    assert metrics.rate.tolist() == [RECIPE.rate_at(step) for step in range(N_STEPS)]
    assert metrics.loss[0] == pytest.approx(math.log(RECIPE.size.vocab_size), rel=0.02)
    assert metrics.loss.tail(4).mean() < metrics.loss.head(4).mean() - 0.4
    held_out = pd.read_parquet(unbroken / "held_out.parquet")
    falls = held_out[held_out.factor == 1].loss.to_numpy()
    assert falls[-1] < falls[0] - 0.4
    assert not metrics.spike.any()


def test_growth_has_a_row_a_layer_and_measured_step(unbroken):
    growth = pd.read_parquet(unbroken / "growth.parquet")
    expected = [(step, layer) for step in growth_steps(N_STEPS) for layer in range(RECIPE.size.layers)]
    assert list(zip(growth.step, growth.layer, strict=True)) == expected
    last = growth.step == N_STEPS  # no update follows
    assert growth.loc[~last, ["cosine_q", "cosine_k", "log_growth_k"]].notna().all(axis=None)
    assert growth.loc[last, ["cosine_q", "cosine_k", "log_growth_k"]].isna().all(axis=None)
    assert growth.turn_k.isna().tolist() == (growth.step == 0).tolist()
    always = [
        "log_length_q",
        "log_length_k",
        "log_projected_q",
        "log_projected_k",
        "max_logit",
        "entropy",
        "first_mass",
    ]
    assert growth[always].notna().all(axis=None)


def test_measuring_does_not_change_the_training(data, unbroken, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "growth_steps", lambda _n_steps: [])
    monkeypatch.setattr(train, "save_steps", lambda n_steps: [n_steps])
    assert trained(data, tmp_path / "run")["weights_sha256"] == manifest_of(unbroken)["weights_sha256"]


# ---------------------------------------------------------------------- divergence
def planted(monkeypatch, step):
    """The loss of an update is NaN."""
    whole = Training.loss

    def loss(self, ids):
        value = whole(self, ids)
        return value * float("nan") if torch.is_grad_enabled() and self.step == step else value

    monkeypatch.setattr(Training, "loss", loss)


@pytest.mark.parametrize("step", [0, 5, 6])
def test_a_training_that_diverges_ends_there(data, unbroken, metrics, tmp_path, monkeypatch, step):
    planted(monkeypatch, step)
    trained(data, tmp_path / "run")
    manifest = manifest_of(tmp_path / "run")  # is JSON
    assert (manifest["diverged_at"], manifest["step"]) == (step, step)
    assert manifest["saved_steps"] == sorted({*(at for at in SAVED if at <= step), step})
    found = pd.read_parquet(tmp_path / "run" / "metrics.parquet")
    assert found.get("loss", pd.Series(dtype=float)).tolist() == metrics.loss[:step].tolist()
    growth = pd.read_parquet(tmp_path / "run" / "growth.parquet")
    assert sorted(set(growth.step)) == list(range(step + 1))
    of_update = growth.loc[growth.step == step].filter(regex="cosine|radial|log_growth")
    assert of_update.isna().all(axis=None)  # there was none
    last = LabForCausalLM.from_pretrained(tmp_path / "run" / "steps" / f"{step:08d}")
    assert train.provenance.sha256_of_weights(last) == manifest["weights_sha256"]
    note = json.loads((tmp_path / "run" / "steps" / f"{step:08d}" / WHOLE).read_text(encoding="utf-8"))
    if step in SAVED:
        assert note == json.loads((unbroken / "steps" / f"{step:08d}" / WHOLE).read_text(encoding="utf-8"))
    else:
        assert note["held_out_loss"] is None
    assert trained(data, tmp_path / "run") == manifest  # finished


@pytest.mark.parametrize("step", [5, 6])
def test_a_training_that_diverged_and_was_killed(data, tmp_path, monkeypatch, step):
    planted(monkeypatch, step)
    monkeypatch.setattr(train, "STATE_EVERY", ALWAYS)
    trained(data, tmp_path / "one")

    class Killed(BaseException):
        """What stands for a kill."""

    def kill(_self, _manifest):
        raise Killed("planted")

    with monkeypatch.context() as patch:
        patch.setattr(TrainingFolder, "finish", kill)
        with pytest.raises(Killed, match="planted"):
            trained(data, tmp_path / "two")
    assert trained(data, tmp_path / "two")["diverged_at"] == step
    for name in TABLES:
        one, two = (pd.read_parquet(tmp_path / run / f"{name}.parquet") for run in ("one", "two"))
        pd.testing.assert_frame_equal(one, two, check_exact=True)


def test_weights_that_are_nan(data, tmp_path, monkeypatch):
    def spoil(step):
        if step == 4:
            with torch.no_grad():
                training.model.model.layers[1].self_attn.k_proj.weight.fill_(float("nan"))

    training = take_up(data, tmp_path / "run")
    training.run(spoil)
    manifest = manifest_of(tmp_path / "run")
    assert (manifest["diverged_at"], manifest["step"]) == (4, 4)
    assert manifest["weights_sha256"]


def test_a_rate_that_is_far_too_high(data, tmp_path):
    manifest = trained(data, tmp_path / "run", arm=ARMS["A0"], rate=9.0, clip=0.0)
    assert manifest_of(tmp_path / "run") == manifest
    losses = pd.read_parquet(tmp_path / "run" / "metrics.parquet").loss
    assert losses.max() > 10 * losses[0]
    if manifest["diverged_at"] is None:
        assert manifest["step"] == N_STEPS
        assert manifest["training_loss"] > losses[0]
    else:
        assert manifest["diverged_at"] == manifest["step"] == len(losses)


# ---------------------------------------------------------------------- spikes and steps
def test_planted_spikes_are_found():
    rng = np.random.default_rng(0)
    loss = 3 + rng.normal(0, 0.1, 400)
    jumps = [64, 150, 151, 399]
    loss[jumps] += 2
    loss[[10, 63]] += 5  # among the first 64
    loss[200] -= 5
    loss[300] += 0.2
    assert np.flatnonzero(spikes(loss)).tolist() == jumps


def test_a_spike_by_hand():
    loss = np.tile([1.0, 2.0, 3.0], 30)[:64]  # median 2, median deviation 1: a spike is above 2 + 6 · 1.4826
    edge = 2 + 6 * 1.4826
    assert spikes(np.append(loss, edge + 1e-6))[-1]
    assert not spikes(np.append(loss, edge - 1e-6))[-1]


def test_no_spikes_without_a_jump():
    step = np.arange(2000)
    rng = np.random.default_rng(1)
    falling = 6 * (step + 1.0) ** -0.2 + rng.normal(0, 0.05, 2000)
    assert not spikes(falling).any()
    assert not spikes(np.full(100, 2.0)).any()
    assert not spikes(np.append(np.full(80, 2.0), np.nan)).any()
    assert spikes(np.empty(0)).tolist() == []
    assert spikes(np.ones(3)).tolist() == [False] * 3


def test_saved_steps_by_hand():
    assert save_steps(1) == [0, 1]
    assert save_steps(24) == SAVED
    assert save_steps(100) == [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 100]


@pytest.mark.parametrize("n_steps", [*range(1, 70), 1000, 1023, 1024, 1025, 123_456])
def test_steps_are_in_order_and_have_both_ends(n_steps):
    saved, growing = save_steps(n_steps), growth_steps(n_steps)
    for steps in (saved, growing):
        assert steps[0] == 0
        assert steps[-1] == n_steps
        assert steps == sorted(set(steps))
    assert {2**octave for octave in range(n_steps.bit_length()) if 2**octave <= n_steps} <= set(saved)
    ratio = 2 ** (1 / PER_OCTAVE)
    assert all(later <= ratio * (step + 0.5) + 0.5 for step, later in itertools.pairwise(saved[1:]))
    assert len(saved) <= 3 + PER_OCTAVE * math.log2(n_steps)
    gaps = np.diff(growing)
    assert gaps.max() - gaps.min() <= 1
    assert len(growing) == min(n_steps, GROWTH_POINTS) + 1


# ---------------------------------------------------------------------- the arms
def test_arms_that_are_the_same_function_train_alike(data, unbroken, tmp_path):
    """RMS norm without gain before RoPE and after it: the rotation keeps lengths."""
    made = {"A1": unbroken}
    for name in ("A0", "A2", "A4"):
        made[name] = tmp_path / name
        trained(data, made[name], arm=ARMS[name])
    assert len({manifest_of(folder)["pair"] for folder in made.values()}) == 1
    weights = {
        name: LabForCausalLM.from_pretrained(folder / "steps" / f"{N_STEPS:08d}").state_dict()
        for name, folder in made.items()
    }

    def apart(one, other):
        both = weights[one].keys() & weights[other].keys()
        return max(float((weights[one][name] - weights[other][name]).abs().max()) for name in both)

    alike, unlike = apart("A2", "A4"), apart("A0", "A1")
    print(f"greatest difference of a weight: A2 and A4 {alike:.2e}, A0 and A1 {unlike:.2e}")  # noqa: T201
    assert alike < 1e-4
    assert unlike > 100 * alike

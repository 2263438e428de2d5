"""What decides a training: its steps, its rates, and the hashes that tell twins."""

import json
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

from geomprobe.errors import InvalidParameter
from geomprobe.lab.arms import ARMS
from geomprobe.lab.recipe import BACKCOPY, PRESETS, Recipe, Size, preset, read_recipe

DATA = "ab" * 32
OTHER = {  # of each field another value, one that says something else
    "arm": ARMS["A6"], "seed": 1, "task": "backcopy", "size": Size(layers=5), "tokens": 3_000_001, "length": 256,
    "batch": 9, "rate": 1e-3, "warmup": 0.1, "decay": 0.0, "clip": 0.0, "renamed": 3, "bos": True, "dtype": "bfloat16",
}  # fmt: skip


def steps_of(n, **changes):
    """A recipe of n steps."""
    return Recipe(length=8, batch=2, tokens=16 * n, **changes)


# ------------------------------------------------------------------ steps and rates
@pytest.mark.parametrize(("tokens", "steps"), [(1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_steps_are_whole(tokens, steps):
    assert Recipe(length=8, batch=2, tokens=tokens).n_steps == steps


def test_the_rate_by_hand():
    """Five steps: two of warm-up, then the cosine at 0, a half and the whole way."""
    recipe = steps_of(5, rate=1.0, warmup=0.4)
    assert [recipe.rate_at(step) for step in range(5)] == pytest.approx([0.5, 1.0, 1.0, 0.55, 0.1])


@pytest.mark.parametrize("n", [4, 10, 733])
@pytest.mark.parametrize("warmup", [0.0, 0.05, 0.5])
def test_warm_up_then_a_cosine_to_a_tenth(n, warmup):
    recipe = steps_of(n, rate=0.02, warmup=warmup)
    rates = np.array([recipe.rate_at(step) for step in range(n)])
    warm = max(1, round(warmup * n))
    assert (rates > 0).all()
    assert rates.max() == pytest.approx(0.02)
    assert rates[:warm] == pytest.approx(0.02 * np.arange(1, warm + 1) / warm)
    assert (np.diff(rates[warm:]) < 0).all()
    assert rates[-1] == pytest.approx(0.002)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("warmup", [0.0, 1.0])
def test_the_shortest_trainings_have_rates(n, warmup):
    recipe = steps_of(n, rate=0.02, warmup=warmup)
    assert all(0 < recipe.rate_at(step) <= 0.02 for step in range(n))


# ------------------------------------------------------------------ hashes
def test_another_value_is_known_for_each_field():
    assert list(OTHER) == [field.name for field in fields(Recipe)]


@pytest.mark.parametrize("name", list(OTHER))
def test_every_field_shows_in_the_fingerprint(name):
    recipe = Recipe()
    changed = replace(recipe, **{name: OTHER[name]})
    assert changed.fingerprint(DATA) != recipe.fingerprint(DATA)
    assert (changed.pair(DATA) == recipe.pair(DATA)) == (name == "arm")


@pytest.mark.parametrize("name", [field.name for field in fields(Size)])
def test_every_width_shows_in_both(name):
    recipe = Recipe(size=Size(vocab_size=8, hidden=8, intermediate=8, layers=8, heads=8, kv_heads=8, head_dim=8))
    changed = replace(recipe, size=replace(recipe.size, **{name: 16 if name == "heads" else 4}))
    assert changed.fingerprint(DATA) != recipe.fingerprint(DATA)
    assert changed.pair(DATA) != recipe.pair(DATA)


def test_all_arms_are_one_pair_and_no_fingerprint_twice():
    recipes = [Recipe(arm=arm) for arm in ARMS.values()]
    assert len({recipe.pair(DATA) for recipe in recipes}) == 1
    assert len({recipe.fingerprint(DATA) for recipe in recipes}) == len(ARMS)


def test_other_data_show_in_both():
    recipe = Recipe()
    assert recipe.fingerprint(DATA) != recipe.fingerprint("cd" * 32)
    assert recipe.pair(DATA) != recipe.pair("cd" * 32)


def test_equal_recipes_have_equal_hashes():
    assert Recipe().fingerprint(DATA) == Recipe(arm=ARMS["A0"], seed=0).fingerprint(DATA)
    assert len(Recipe().fingerprint(DATA)) == 64


# ------------------------------------------------------------------ there and back
@pytest.mark.parametrize("name", [*PRESETS, "backcopy"])
def test_presets_go_into_a_manifest_and_back(name):
    recipe = preset(name, arm=ARMS["A5"], seed=7)
    back = read_recipe(json.loads(json.dumps(recipe.described)))
    assert back == recipe
    assert back.fingerprint(DATA) == recipe.fingerprint(DATA)


def test_a_bos_goes_into_a_manifest_and_back():
    recipe = Recipe(bos=True)
    assert read_recipe(json.loads(json.dumps(recipe.described))) == recipe


def test_trainings_from_before_there_was_a_bos_keep_their_hash():
    assert "bos" not in Recipe().described


def test_reading_leaves_the_description_alone():
    described = Recipe().described
    before = json.dumps(described)
    read_recipe(described)
    assert json.dumps(described) == before


def test_a_preset_with_changes():
    assert preset("nano") == Recipe()
    assert preset("backcopy") == BACKCOPY
    assert preset("micro", tokens=5) == replace(PRESETS["micro"], tokens=5)


# ------------------------------------------------------------------ errors
def test_an_unknown_preset_is_told():
    with pytest.raises(InvalidParameter, match=r"Unknown preset 'mikro'\. Did you mean 'micro'\? Known: backcopy, mic"):
        preset("mikro")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": "poem"}, r"task must be one of 'text', 'backcopy'; got 'poem'\."),
        ({"dtype": "float16"}, r"dtype must be one of 'float32', 'bfloat16'; got 'float16'\."),
        ({"seed": -1}, r"seed must be between 0 and 2147483647; got -1\."),
        ({"seed": 2**31}, r"seed must be between 0 and"),
        ({"length": 7}, r"length must be at least 8; got 7\."),
        ({"batch": 0}, r"batch must be at least 1; got 0\."),
        ({"tokens": 0}, r"tokens must be at least 1; got 0\."),
        ({"task": "backcopy", "bos": True}, r"bos is about texts; leave it out with the task backcopy\."),
        ({"renamed": -1}, r"renamed must be at least 0; got -1\."),
        ({"decay": -0.1}, r"decay must be at least 0; got -0\.1\."),
        ({"clip": float("nan")}, r"clip must be at least 0; got nan\."),
        ({"warmup": 1.1}, r"warmup must be between 0 and 1; got 1\.1\."),
        ({"rate": 0}, r"rate must be between 0 and 10; got 0\."),
        ({"rate": float("nan")}, r"rate must be between 0 and 10; got nan\."),
        ({"task": "backcopy", "renamed": 2}, r"renamed is about texts; leave it out"),
    ],
)
def test_values_outside_their_domain(changes, sentence):
    with pytest.raises(InvalidParameter, match=f"^{sentence}"):
        Recipe(**changes)


@pytest.mark.parametrize("name", [field.name for field in fields(Size)])
def test_widths_below_one(name):
    with pytest.raises(InvalidParameter, match=rf"^{name} must be at least 1; got 0\."):
        Size(**{name: 0})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"vocab_size": 65537}, r"vocab_size must be between 4 and 65536; got 65537\."),
        ({"heads": 3, "kv_heads": 2}, r"heads must be a multiple of kv_heads, 2; got 3\."),
        ({"head_dim": 33}, r"head_dim must be even, as RoPE turns pairs of channels; got 33\."),
    ],
)
def test_widths_that_do_not_go_together(changes, sentence):
    with pytest.raises(InvalidParameter, match=f"^{sentence}"):
        Size(**changes)


def test_size_has_only_whole_numbers():
    assert all(type(value) is int for recipe in PRESETS.values() for value in asdict(recipe.size).values())

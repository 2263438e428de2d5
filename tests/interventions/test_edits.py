"""Each edit against loops in numpy, on vectors of tiny models in float64."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from geomprobe.errors import InvalidParameter
from geomprobe.interventions.edits import EDITS, Setting, displacement, member, parse_edit
from geomprobe.labels import CLASS_INDEX, CLOSED_CLASSES, TOKEN_CLASSES
from tests.interventions.shared import BASES, LENGTH, article_first, reader_of, rotate

CLOSE = 1e-9
TURNED = 1e-5  # transformers has its sines and cosines in float32
FAMILIES = ("llama", "gemma3")
DOSE = "^The dose of swap_angle must be between 0 and 1, or neutral_norm or permute_norm"
EVERY = (
    "sham",
    "neutral_norm",
    "permute_norm",
    "swap_angle:1",
    "swap_angle:0.3",
    "swap_angle:neutral_norm",
    "swap_angle:permute_norm",
    "neutral_query",
    "scale_class:function:0.5",
    "scale_class:all:0.5",
    "equalise_class:function",
)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def reader(family):
    return reader_of(family)


@pytest.fixture(scope="module")
def scenes(reader):
    return reader.scenes()


def edited(scene, text):
    setting = parse_edit(text)
    return EDITS[setting.edit](scene, setting)


def moved_by(scene, key):
    """Mean ‖k' − k‖/‖k‖ past position 0, in numpy."""
    old, new = scene.key.double().numpy()[:, :, 1:], key.double().numpy()[:, :, 1:]
    return (np.linalg.norm(new - old, axis=-1) / np.linalg.norm(old, axis=-1)).mean()


def lengths(x):
    return np.sqrt((x.double().numpy() ** 2).sum(-1))


def directions(x):
    return x.double().numpy() / lengths(x)[..., None]


def content_of(scene):
    return scene.seen.stages("k")["content"]


# ------------------------------------------------------------------ what all have in common
@pytest.mark.parametrize("text", EVERY)
def test_position_0_stays_and_so_does_what_was_given(scenes, text):
    for scene in scenes:
        query, key = scene.query.clone(), scene.key.clone()
        new_query, new_key = edited(article_first(scene), text)
        assert torch.equal(scene.query, query)
        assert torch.equal(scene.key, key)
        assert torch.equal(new_query[:, :, 0], query[:, :, 0])
        assert torch.equal(new_key[:, :, 0], key[:, :, 0])
        assert (new_query.shape, new_key.shape) == (query.shape, key.shape)
        same = torch.equal(new_query, query), torch.equal(new_key, key)
        assert same == {"sham": (True, True), "neutral_query": (False, True)}.get(text, (True, False))


@pytest.mark.parametrize("text", [*EVERY, "temperature:0.5"])
def test_the_dtype_stays(text):
    for scene in reader_of("gemma3", dtype=torch.bfloat16).scenes():
        assert {x.dtype for x in edited(scene, text)} == {torch.bfloat16}


@pytest.mark.parametrize("text", EVERY)
def test_a_key_of_length_0_stays(text):
    scene = reader_of("llama").scenes()[0]
    call = scene.seen.call
    key = call.key.clone()
    key[:, :, 5] = 0
    empty = replace(scene, seen=replace(scene.seen, call=replace(call, key=key)))
    made = edited(empty, text)
    assert all(torch.isfinite(x).all() for x in made)
    assert not made[1][:, :, 5].any()


def test_the_sham_is_a_copy_bit_by_bit(scenes):
    for scene in scenes:
        query, key = edited(scene, "sham")
        assert torch.equal(query, scene.query)
        assert torch.equal(key, scene.key)
        assert key.data_ptr() != scene.key.data_ptr()


# ------------------------------------------------------------------ lengths
def test_neutral_norm_gives_every_key_its_heads_geometric_mean(scenes):
    for scene in scenes:
        _, key = edited(scene, "neutral_norm")
        for head, due in enumerate(scene.known.key.tolist()):
            assert np.abs(lengths(key)[:, head, 1:] - due).max() <= CLOSE * due
        assert np.abs(directions(key) - directions(scene.key)).max() <= CLOSE


def test_neutral_query_does_so_for_queries(scenes):
    for scene in scenes:
        query, key = edited(scene, "neutral_query")
        assert torch.equal(key, scene.key)
        assert len(scene.known.query) == 2 * len(scene.known.key)
        for head, due in enumerate(scene.known.query.tolist()):
            assert np.abs(lengths(query)[:, head, 1:] - due).max() <= CLOSE * due
        assert np.abs(directions(query) - directions(scene.query)).max() <= CLOSE


def test_the_usual_length_is_a_geometric_mean_of_other_windows(reader, family):
    """Of the windows that were calibrated on, position 0 left out."""
    fresh = reader_of(family)
    scenes = fresh.scenes(seed=6)  # the windows of the calibration
    for scene in scenes:
        for vector, x in (("key", scene.key), ("query", scene.query)):
            own = lengths(x)[:, :, 1:]
            for head in range(own.shape[1]):
                product = sum(math.log(value) for value in own[:, head].ravel()) / own[:, head].size
                assert float(getattr(scene.known, vector)[head]) == pytest.approx(math.exp(product), rel=1e-9)


def test_permute_norm_shuffles_lengths_within_a_window(scenes):
    for scene in scenes:
        _, key = edited(scene, "permute_norm")
        before, after = lengths(scene.key), lengths(key)
        assert np.abs(np.sort(before, axis=-1) - np.sort(after, axis=-1)).max() <= CLOSE * before.max()
        assert np.abs(directions(key) - directions(scene.key)).max() <= CLOSE
        order = scene.drawn(LENGTH).numpy()
        for pos in range(LENGTH):
            assert np.allclose(after[:, :, pos], before[:, :, order[pos]], rtol=CLOSE)
        assert (np.abs(after - before) > 1e-6).mean() > 0.8


def test_what_is_drawn_is_a_permutation_that_leaves_0(scenes):
    first, second = scenes[0].drawn(LENGTH), replace(scenes[0], seed=4).drawn(LENGTH)
    assert first[0] == second[0] == 0
    assert first.sort().values.tolist() == list(range(LENGTH))
    assert torch.equal(first, scenes[1].drawn(LENGTH))
    assert not torch.equal(first, second)
    assert scenes[0].drawn(1).tolist() == [0]


@pytest.mark.parametrize("delta", [0.5, -1.25])
@pytest.mark.parametrize(("name", "classes"), [("function", CLOSED_CLASSES), ("punctuation", ("punctuation",))])
def test_scale_class_makes_a_class_longer_and_nothing_else(scenes, name, classes, delta):
    inside = {CLASS_INDEX[part] for part in classes}
    for scene in map(article_first, scenes):
        query, key = edited(scene, f"scale_class:{name}:{delta}")
        assert torch.equal(query, scene.query)
        touched = 0
        for row in range(2):
            for pos in range(LENGTH):
                own, made = scene.key[row, :, pos].numpy(), key[row, :, pos].numpy()
                if pos > 0 and int(scene.token_class[row, pos]) in inside:
                    touched += 1
                    assert np.allclose(made, own * math.exp(delta), rtol=CLOSE, atol=0)
                else:
                    assert np.array_equal(made, own)
        assert touched > 10


def test_equalise_class_gives_a_class_the_usual_length_of_content_words(scenes):
    inside = {CLASS_INDEX[name] for name in CLOSED_CLASSES}
    for scene in map(article_first, scenes):
        _, key = edited(scene, "equalise_class:function")
        usual = np.exp(scene.known.by_class[:, CLASS_INDEX["content"]].numpy())
        for row in range(2):
            for pos in range(LENGTH):
                own, made = scene.key[row, :, pos].numpy(), key[row, :, pos].numpy()
                if pos > 0 and int(scene.token_class[row, pos]) in inside:
                    unit = own / np.linalg.norm(own, axis=-1, keepdims=True)
                    assert np.allclose(made, unit * usual[:, None], rtol=1e-9)
                else:
                    assert np.array_equal(made, own)


def test_equalise_class_without_content_words_changes_nothing(scenes):
    unseen = scenes[0].known.by_class.clone()
    unseen[:, CLASS_INDEX["content"]] = math.nan
    scene = replace(scenes[0], known=replace(scenes[0].known, by_class=unseen))
    assert torch.equal(edited(scene, "equalise_class:function")[1], scene.key)


@pytest.mark.parametrize("beta", [0.5, 1, 2])
def test_temperature_multiplies_every_query(scenes, beta):
    for scene in scenes:
        query, key = edited(scene, f"temperature:{beta}")
        assert torch.equal(key, scene.key)
        assert np.array_equal(query.numpy(), scene.query.numpy() * beta)


# ------------------------------------------------------------------ directions
def test_a_dose_of_0_changes_nothing(scenes):
    for scene in scenes:
        _, key = edited(scene, "swap_angle:0")
        assert (key - scene.key).abs().max() <= CLOSE


@pytest.mark.parametrize("dose", [1.0, 0.4])
def test_swap_angle_takes_the_direction_of_another_content_vector_at_the_own_place(scenes, family, dose):
    for scene in scenes:
        layer = scene.seen.call.layer
        content, own = content_of(scene).numpy(), scene.key.numpy()
        assert np.abs(rotate(content, BASES[family, layer]) - own).max() <= TURNED * np.abs(own).max()
        other = rotate(content[:, :, scene.drawn(LENGTH).numpy()], BASES[family, layer])
        due = np.empty_like(own)
        for row, head, pos in np.ndindex(*own.shape[:3]):
            a, b = own[row, head, pos], other[row, head, pos]
            mixed = (1 - dose) * a / np.linalg.norm(a) + dose * b / np.linalg.norm(b)
            due[row, head, pos] = mixed / np.linalg.norm(mixed) * np.linalg.norm(a) if pos else a
        _, key = edited(scene, f"swap_angle:{dose}")
        assert np.abs(key.numpy() - due).max() <= 10 * TURNED * np.abs(own).max()
        assert np.abs(lengths(key) - lengths(scene.key)).max() <= CLOSE * lengths(key).max()
        assert not np.allclose(key.numpy(), own, atol=0.1)


def test_the_full_dose_is_the_default(scenes):
    assert torch.equal(edited(scenes[0], "swap_angle")[1], edited(scenes[0], "swap_angle:1")[1])


@pytest.mark.parametrize("against", ["neutral_norm", "permute_norm"])
def test_a_swap_set_against_lengths_moves_keys_as_far(scenes, against):
    for scene in scenes:
        target = moved_by(scene, edited(scene, against)[1])
        _, key = edited(scene, f"swap_angle:{against}")
        assert target > 0.01
        assert moved_by(scene, key) == pytest.approx(target, abs=1e-8)
        assert np.abs(lengths(key) - lengths(scene.key)).max() <= CLOSE * lengths(key).max()


@pytest.mark.parametrize("against", ["neutral_norm", "permute_norm"])
def test_its_dose_is_that_of_a_search_over_whole_vectors(scenes, against):
    for scene in scenes:
        target = moved_by(scene, edited(scene, against)[1])
        low, high = 0.0, 1.0
        for _ in range(40):
            dose = (low + high) / 2
            far = moved_by(scene, edited(scene, f"swap_angle:{dose!r}")[1]) > target
            low, high = (low, dose) if far else (dose, high)
        due = edited(scene, f"swap_angle:{low!r}")[1]
        assert 0.01 < low < 0.99
        assert (edited(scene, f"swap_angle:{against}")[1] - due).abs().max() <= 1e-7


def test_it_swaps_with_the_same_tokens_as_the_lengths(scenes):
    for scene in scenes:
        one = replace(scene, seed=4)
        for text in ("permute_norm", "swap_angle:permute_norm"):
            assert not torch.equal(edited(scene, text)[1], edited(one, text)[1])
        target = moved_by(one, edited(one, "permute_norm")[1])
        assert target != moved_by(scene, edited(scene, "permute_norm")[1])
        assert moved_by(one, edited(one, "swap_angle:permute_norm")[1]) == pytest.approx(target, abs=1e-8)


def test_it_stops_at_the_full_dose_where_that_is_not_enough(scenes):
    scene = replace(scenes[0], known=replace(scenes[0].known, key=scenes[0].known.key * 100))
    full, matched = edited(scene, "swap_angle:1")[1], edited(scene, "swap_angle:neutral_norm")[1]
    assert torch.equal(full, matched)


def test_it_moves_nothing_where_lengths_stay(scenes):
    """Keys that are all as long as usual."""
    call = scenes[0].seen.call
    known = scenes[0].known
    key = call.key / call.key.norm(dim=-1, keepdim=True) * known.key[None, :, None, None]
    even = replace(scenes[0], seen=replace(scenes[0].seen, call=replace(call, key=key)))
    for against in ("neutral_norm", "permute_norm"):
        assert (edited(even, f"swap_angle:{against}")[1] - key).abs().max() <= 1e-7


def test_displacement_is_the_mean_over_positions_past_0(scenes):
    for scene in scenes:
        _, key = edited(scene, "swap_angle:0.5")
        old, new = scene.key.numpy(), key.numpy() + 0.01
        found = [
            np.linalg.norm(new[at] - old[at]) / np.linalg.norm(old[at]) for at in np.ndindex(*old.shape[:3]) if at[2]
        ]
        assert displacement(scene, key + 0.01) == pytest.approx(np.mean(found), rel=1e-9)
        assert displacement(scene, scene.key) == 0


def test_where_the_rotation_is_not_known_directions_are_not_swapped(scenes):
    scene = replace(scenes[1], known=replace(scenes[1].known, pairing=None))
    said = r"^swap_angle needs to know how layer 1 rotates its keys, and that is not known; leave the layer out"
    with pytest.raises(InvalidParameter, match=said):
        edited(scene, "swap_angle:1")


# ------------------------------------------------------------------ the gain of the norm
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("family", ["gemma3", "qwen3"])
def test_scalar_gain_is_what_the_model_puts_out_with_such_a_weight(family, layer):
    reader = reader_of(family)
    before = reader.scenes()[layer]
    norm = reader.model.model.layers[layer].self_attn.k_norm
    shift = 1.0 if family == "gemma3" else 0.0  # Gemma multiplies by 1 + w
    with torch.no_grad():
        norm.weight[3] = -0.7 - shift  # one channel is turned around
        reader = type(reader)(reader.model)
        before = reader.scenes()[layer]
        _, key = edited(before, "scalar_gain")
        gain = norm.weight.double() + shift
        level = math.sqrt(sum(value**2 for value in gain.tolist()) / len(gain))
        norm.weight.copy_(torch.tensor([math.copysign(level, value) for value in gain.tolist()]) - shift)
        after = reader.scenes()[layer]
    assert (key[:, :, 1:] - after.key[:, :, 1:]).abs().max() <= TURNED * float(key.abs().max())
    assert (after.key - before.key).abs().max() > 0.1
    assert torch.equal(key[:, :, 0], before.key[:, :, 0])


def test_scalar_gain_without_a_key_norm_is_refused():
    said = r"^scalar_gain needs a key norm with a gain before the rotation, and layer 0 has none that is known; leave"
    with pytest.raises(InvalidParameter, match=said):
        edited(reader_of("llama").scenes()[0], "scalar_gain")


# ------------------------------------------------------------------ classes and words
def test_member():
    token_class = torch.arange(len(TOKEN_CLASSES)).repeat(2, 1)
    token_class[1] = CLASS_INDEX["article"]
    for name, parts in (("function", CLOSED_CLASSES), ("article", ("article",)), ("all", TOKEN_CLASSES[1:])):
        found = member(token_class, name)
        assert found[0].tolist() == [part in parts for part in TOKEN_CLASSES]
        assert found[1].tolist() == [False] + ["article" in parts] * (len(TOKEN_CLASSES) - 1)
    assert not member(token_class, "first").any()


@pytest.mark.parametrize(
    ("text", "due", "shown"),
    [
        ("sham", Setting("sham"), "sham"),
        ("neutral_norm", Setting("neutral_norm"), "neutral_norm"),
        ("permute_norm", Setting("permute_norm"), "permute_norm"),
        ("neutral_query", Setting("neutral_query"), "neutral_query"),
        ("scalar_gain", Setting("scalar_gain"), "scalar_gain"),
        ("swap_angle", Setting("swap_angle", 1.0), "swap_angle(1)"),
        ("swap_angle:0.25", Setting("swap_angle", 0.25), "swap_angle(0.25)"),
        ("swap_angle:neutral_norm", Setting("swap_angle", against="neutral_norm"), "swap_angle(neutral_norm)"),
        ("swap_angle:permute_norm", Setting("swap_angle", against="permute_norm"), "swap_angle(permute_norm)"),
        ("temperature:0.5", Setting("temperature", 0.5), "temperature(0.5)"),
        ("permute_norm@balanced", Setting("permute_norm", gauge="balanced"), "permute_norm@balanced"),
        ("permute_norm@raw", Setting("permute_norm"), "permute_norm"),
        ("sham@balanced", Setting("sham", gauge="balanced"), "sham@balanced"),
        (
            "swap_angle:permute_norm@balanced",
            Setting("swap_angle", against="permute_norm", gauge="balanced"),
            "swap_angle(permute_norm)@balanced",
        ),
        (
            "scale_class:function:0.5@balanced",
            Setting("scale_class", 0.5, "function", gauge="balanced"),
            "scale_class(function, 0.5)@balanced",
        ),
        ("scale_class:function:-0.5", Setting("scale_class", -0.5, "function"), "scale_class(function, -0.5)"),
        ("equalise_class:article", Setting("equalise_class", 1.0, "article"), "equalise_class(article)"),
    ],
)
def test_edits_are_read(text, due, shown):
    assert parse_edit(text) == due
    assert str(parse_edit(text)) == shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("neutral_nrom", r"neutral_nrom.*neutral_norm"),
        ("", r"edit"),
        ("scale_class", r"^scale_class needs a token class behind it, as in scale_class:function; got 'scale_class'\."),
        ("scale_class:verbs:0.5", r"^scale_class needs a token class behind it, .* got 'scale_class:verbs:0\.5'\."),
        ("scale_class:first:0.5", r"^scale_class needs a token class behind it"),
        ("scale_class:function", r"^scale_class needs a strength, as in scale_class:function:0\.5; got"),
        ("scale_class:function:much", r"^The strength of scale_class must be a number; got 'much'\."),
        ("scale_class:function:matched", r"^The strength of scale_class must be a number; got 'matched'\."),
        ("equalise_class", r"^equalise_class needs a token class behind it"),
        ("equalise_class:function:1", r"^equalise_class takes no strength; got 'equalise_class:function:1'\."),
        ("swap_angle:1.5", rf"{DOSE}; got '1\.5'\."),
        ("swap_angle:-0.1", DOSE),
        ("swap_angle:matched", rf"{DOSE}; got 'matched'\."),
        ("swap_angle:neutral_query", rf"{DOSE}; got 'neutral_query'\."),
        ("swap_angle:neutral_norm:0.5", r"^swap_angle takes one strength; got 'swap_angle:neutral_norm:0\.5'\."),
        ("temperature:neutral_norm", r"^The strength of temperature must be a number; got 'neutral_norm'\."),
        ("permute_norm@", r"^The gauge of an edit must be raw or balanced, as in permute_norm@balanced; got"),
        ("permute_norm@even", r"^The gauge of an edit must be raw or balanced, .* got 'permute_norm@even'\."),
        ("permute@balanced", r"permute.*permute_norm"),
        ("temperature:0@balanced", r"^temperature must be above 0; got '0'\."),
        ("scalar_gain@balanced", r"^scalar_gain replaces a gain, which the norm has in the raw gauge; leave out @bal"),
        ("temperature:0", r"^temperature must be above 0; got '0'\."),
        ("temperature:nan", r"^temperature must be above 0; got 'nan'\."),
        ("temperature:warm", r"^The strength of temperature must be a number; got 'warm'\."),
        ("neutral_norm:2", r"^neutral_norm takes no strength; got 'neutral_norm:2'\."),
        ("sham:", r"^sham takes no strength; got 'sham:'\."),
    ],
)
def test_what_is_no_edit_is_refused(text, said):
    with pytest.raises(InvalidParameter, match=said):
        parse_edit(text)


@pytest.mark.parametrize(
    "text",
    [
        "temperature:0.5:7",
        "swap_angle:0.5:1",
        "scale_class:function:0.5:9",
        "temperature:inf",
        "scale_class:function:nan",
        "scale_class:function:inf",
        "swap_angle:nan",
    ],
)
def test_more_than_a_number_and_what_is_none_are_refused(text):
    with pytest.raises(InvalidParameter, match=text.split(":")[0]):
        parse_edit(text)

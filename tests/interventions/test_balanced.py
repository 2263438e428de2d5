"""Edits in the balanced gauge against transforms written out in numpy, and a change of gauge that costs nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from scipy.linalg import sqrtm

from geomprobe.attention.seam import editing, watching
from geomprobe.errors import InvalidParameter
from geomprobe.interventions.calibration import Calibration
from geomprobe.interventions.edits import make, member, parse_edit
from geomprobe.interventions.trial import variants_of
from geomprobe.labels import CLASS_INDEX, TOKEN_CLASSES
from geomprobe.stats.gauge import Gauge
from tests.interventions.shared import BASES, LENGTH, Reader, as_tokens, reader_of, rotate, some_classes, some_ids

ALL = ["sham@balanced"]  # enough that calibration takes the gauge
CLOSE = 1e-9
TURNED = 1e-5  # transformers has its sines and cosines in float32
SMALL = {"vocab_size": 160, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
# (pairs of channels that turn, channels that do not, whether keys are centred)
HALF = [(at, at + 8) for at in range(8)]
SHAPES = {
    "llama": (HALF, [], False),
    "gemma3": (HALF, [], False),
    "gemma2": (HALF, [], False),
    "gpt_oss": (HALF, [], False),
    "gpt2": ([], list(range(8)), True),
    "neox": ([(0, 2), (1, 3)], list(range(4, 8)), True),
}
ROTATED = ("llama", "gemma3")


def gpt2():
    config = transformers.GPT2Config(vocab_size=160, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    return random_weights(transformers.GPT2LMHeadModel(config))


def neox():
    """A quarter of the channels would be two, which is one pair; of half of them four turn."""
    config = transformers.GPTNeoXConfig(
        **SMALL, intermediate_size=48, max_position_embeddings=64, rope_parameters=ROPE, use_parallel_residual=True
    )
    return random_weights(transformers.GPTNeoXForCausalLM(config))


ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}


def random_weights(model):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            random = torch.randn(parameter.shape, generator=generator)
            spread = 0.3 if parameter.dim() == 1 else 2.5 * 32**-0.5
            one = 0.8 if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight", "norm.weight")) else 0.0
            parameter.copy_(random * spread + one)
    return model.double().eval()


def made(family, edits=ALL, dtype=torch.float64):
    if family in ("gpt2", "neox"):
        return Reader({"gpt2": gpt2, "neox": neox}[family]().to(dtype), edits=edits)
    return reader_of(family, "eager" if family in ("gemma2", "gpt_oss") else None, dtype=dtype, edits=edits)


@pytest.fixture(scope="module", params=["llama", "gemma3", "gemma2", "gpt_oss", "gpt2", "neox"])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def reader(family):
    return made(family)


@pytest.fixture(scope="module")
def scenes(reader):
    return reader.scenes()


@pytest.fixture(scope="module")
def calibrated(reader):
    """By layer the vectors of the windows that were calibrated on, (q, k), and their classes."""
    seen = []
    with torch.no_grad(), watching(reader.model, seen.append, stages=False):
        reader.model(some_ids(2, seed=6), use_cache=False)
    vectors = [(found.call.query.numpy(), found.call.key.numpy()) for found in seen]
    return vectors, some_classes(2, seed=6).numpy()


# ------------------------------------------------------------------ by hand
def gauge_of(query, key, family):
    """One key head after the other: (matrix of keys, matrix of queries, centre), from loops over vectors."""
    pairs, free, centred = SHAPES[family]
    width, heads = key.shape[3], key.shape[1]
    group, found = query.shape[1] // heads, []
    for head in range(heads):
        q = query[:, head * group : (head + 1) * group, 1:].reshape(-1, width)
        k = key[:, head, 1:].reshape(-1, width)
        m, w, c = np.zeros((width, width)), np.zeros((width, width)), np.zeros(width)
        for a, b in pairs:
            of_q = np.mean([v[a] ** 2 + v[b] ** 2 for v in q])
            of_k = np.mean([v[a] ** 2 + v[b] ** 2 for v in k])
            m[a, a] = m[b, b] = (of_q / of_k) ** 0.25
            w[a, a] = w[b, b] = (of_k / of_q) ** 0.25
        if free:
            if centred:
                c[free] = k[:, free].mean(0)
            x, y = q[:, free], k[:, free] - c[free]
            of_q, of_k = x.T @ x / len(x), y.T @ y / len(y)
            root = sqrtm(of_k).real
            inverse = np.linalg.inv(root)
            balanced = sqrtm(inverse @ sqrtm(root @ of_q @ root).real @ inverse).real
            m[np.ix_(free, free)], w[np.ix_(free, free)] = balanced, np.linalg.inv(balanced).T
        found.append((m, w, c))
    return found


def taken(query, key, gauge):
    """Queries and keys in a gauge."""
    group = query.shape[1] // key.shape[1]
    k = np.stack([(key[:, head] - c) @ m for head, (m, _, c) in enumerate(gauge)], 1)
    q = np.stack([query[:, head] @ gauge[head // group][1] for head in range(query.shape[1])], 1)
    return q, k


def back(query, key, gauge):
    """And back, by matrices inverted here."""
    group = query.shape[1] // key.shape[1]
    k = np.stack([key[:, head] @ np.linalg.inv(m) + c for head, (m, _, c) in enumerate(gauge)], 1)
    q = np.stack([query[:, head] @ np.linalg.inv(gauge[head // group][1]) for head in range(query.shape[1])], 1)
    return q, k


def size(x):
    return np.linalg.norm(x, axis=-1, keepdims=True)


def usual(x):
    """Geometric mean length by head, position 0 out: (head, 1, 1)."""
    return np.exp(np.log(size(x)[:, :, 1:, 0]).mean((0, 2)))[:, None, None]


def but_first(old, new):
    return np.concatenate([old[:, :, :1], new[:, :, 1:]], 2)


def by_hand(scene, text, gauge, learned):
    """What an edit in a gauge makes of one layer: transform, edit, transform back."""
    query, key = scene.seen.call.query.numpy(), scene.seen.call.key.numpy()
    q, k = taken(query, key, gauge)
    past_q, past_k = taken(*learned[0], gauge)
    order = scene.drawn(LENGTH).numpy()
    name = text.split(":")[0]
    if name == "neutral_norm":
        k = but_first(k, k / size(k) * usual(past_k))
    elif name == "permute_norm":
        k = but_first(k, k / size(k) * size(k)[:, :, order])
    elif name == "neutral_query":
        q = but_first(q, q / size(q) * usual(past_q))
    elif name == "temperature":
        q = q * float(text.split(":")[1])
    elif name == "scale_class":
        inside = member(scene.token_class, text.split(":")[1]).numpy()[:, None, :, None]
        k = np.where(inside, k * math.exp(float(text.split(":")[2])), k)
    elif name == "equalise_class":
        inside = member(scene.token_class, text.split(":")[1]).numpy()[:, None, :, None]
        content = learned[1] == CLASS_INDEX["content"]
        logs = [np.log(size(past_k)[:, head, :, 0])[content].mean() for head in range(k.shape[1])]
        k = np.where(inside, k / size(k) * np.exp(logs)[:, None, None], k)
    return back(q, k, gauge)


TEXTS = (
    "neutral_norm",
    "permute_norm",
    "neutral_query",
    "temperature:0.5",
    "scale_class:function:0.7",
    "equalise_class:function",
)


@pytest.mark.parametrize("text", TEXTS)
def test_an_edit_is_transform_edit_transform_back(scenes, calibrated, family, text):
    vectors, token_class = calibrated
    for scene, past in zip(scenes, vectors, strict=True):
        gauge = gauge_of(*past, family)
        due_q, due_k = by_hand(scene, text, gauge, (past, token_class))
        found = make(scene, parse_edit(f"{text}@balanced"))
        close = CLOSE * np.abs(due_k).max()
        assert np.abs(found.key.numpy() - due_k)[:, :, 1:].max() <= close
        assert np.abs(found.query.numpy() - due_q).max() <= CLOSE * np.abs(due_q).max()
        # Somewhere else than the same edit leaves them in the raw gauge.
        raw = make(scene, parse_edit(text))
        apart = (raw.key - found.key).abs().max() + (raw.query - found.query).abs().max()
        commutes = text.startswith("temperature") or (text.startswith("scale_class") and not SHAPES[family][2])
        assert (apart > 1e-3) is not commutes
        # How far keys went is told in the gauge.
        k, moved = (taken(scene.seen.call.query.numpy(), x, gauge)[1] for x in (scene.seen.call.key.numpy(), due_k))
        assert found.displacement == pytest.approx((size(moved - k) / size(k))[:, :, 1:].mean(), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("family", ROTATED)
@pytest.mark.parametrize("dose", [1.0, 0.4])
def test_directions_are_swapped_in_the_gauge(family, dose):
    """What stands at another place is turned here first and taken to the gauge then."""
    reader = made(family)
    seen = []
    with torch.no_grad(), watching(reader.model, seen.append, stages=False):
        reader.model(some_ids(2, seed=6), use_cache=False)
    for layer, scene in enumerate(reader.scenes()):
        gauge = gauge_of(seen[layer].call.query.numpy(), seen[layer].call.key.numpy(), family)
        query, key = scene.seen.call.query.numpy(), scene.seen.call.key.numpy()
        content = scene.seen.stages("k")["content"].numpy()[:, :, scene.drawn(LENGTH).numpy()]
        _, own = taken(query, key, gauge)
        _, other = taken(query, rotate(content, BASES[family, layer]), gauge)
        mixed = (1 - dose) * own / size(own) + dose * other / size(other)
        _, due = back(query, mixed / size(mixed) * size(own), gauge)
        found = make(scene, parse_edit(f"swap_angle:{dose}@balanced")).key.numpy()
        assert np.abs(found - due)[:, :, 1:].max() <= 10 * TURNED * np.abs(key).max()


@pytest.mark.parametrize("against", ["neutral_norm", "permute_norm"])
def test_a_swap_moves_keys_as_far_as_lengths_do_in_the_gauge(scenes, calibrated, family, against):
    for scene, past in zip(scenes, calibrated[0], strict=True):
        gauge = gauge_of(*past, family)
        query, key = scene.seen.call.query.numpy(), scene.seen.call.key.numpy()
        _, old = taken(query, key, gauge)
        length, angle = (make(scene, parse_edit(f"{text}@balanced")) for text in (against, f"swap_angle:{against}"))
        moved = [taken(query, found.key.numpy(), gauge)[1] for found in (length, angle)]
        far = [(size(new - old) / size(old))[:, :, 1:].mean() for new in moved]
        assert far[0] > 0.01
        assert far[1] == pytest.approx(far[0], abs=1e-7)
        assert np.abs(size(moved[1]) - size(old)).max() <= CLOSE * size(old).max()
        assert np.abs(moved[0] / size(moved[0]) - old / size(old))[:, :, 1:].max() <= CLOSE
        raw = make(scene, parse_edit(f"swap_angle:{against}"))
        assert (raw.key - angle.key).abs().max() > 1e-3


# ------------------------------------------------------------------ what must not change
def test_the_sham_brings_everything_back(scenes):
    for scene in scenes:
        found = make(scene, parse_edit("sham@balanced"))
        for made_of, was in ((found.query, scene.query), (found.key, scene.key)):
            assert (made_of - was).abs().max() <= 1e-11 * was.abs().max()
        assert torch.equal(found.key[:, :, 0], scene.key[:, :, 0])
        assert found.displacement == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_the_models_own_precision_it_does_so_too(dtype):
    reader = made("gpt2" if dtype == torch.float32 else "llama", dtype=dtype)
    for scene in reader.scenes():
        found = make(scene, parse_edit("sham@balanced"))
        assert found.key.dtype == found.query.dtype == dtype
        assert (found.key != scene.key).double().mean() < 0.01
        assert (found.key - scene.key).abs().max() <= torch.finfo(dtype).eps * scene.key.abs().max()


def test_attention_in_the_gauge_is_that_of_the_model(family):
    """Vectors that stay in the balanced gauge give the model's own predictions, centred keys and sinks included."""
    reader = made(family)
    ids = some_ids(2, seed=1)

    def stay(found):
        return reader.known[found.call.name].balanced.gauge.apply(found.call.query, found.call.key)

    with torch.no_grad():
        before = reader.model(ids, use_cache=False).logits
        with editing(reader.model, stay, reader.notebook):
            after = reader.model(ids, use_cache=False).logits
    assert (after - before).abs().max() <= 1e-6 * before.abs().max()


def test_what_an_edit_leaves_alone_stays_to_the_last_bit(scenes):
    for scene in scenes:
        for text in ("neutral_norm", "permute_norm", "scale_class:function:1"):
            found = make(scene, parse_edit(f"{text}@balanced"))
            assert found.query is scene.query
            assert torch.equal(found.key[:, :, 0], scene.key[:, :, 0])
        for text in ("temperature:2", "neutral_query"):
            found = make(scene, parse_edit(f"{text}@balanced"))
            assert found.key is scene.key
            assert found.displacement == 0


@pytest.mark.parametrize("damaged", ["query", "key"])
def test_what_is_no_gauge_would_be_seen_by_the_sham(scenes, damaged):
    for scene in scenes:
        known = scene.known.balanced
        broken = {"key": known.gauge.key, "query": known.gauge.query}
        broken[damaged] = broken[damaged] * 1.01
        gauge = Gauge(broken["key"], broken["query"], known.gauge.centre, 0)
        other = replace(scene, known=replace(scene.known, balanced=replace(known, gauge=gauge)))
        found = make(other, parse_edit("sham@balanced"))
        assert (found.key - scene.key)[:, :, 1:].abs().max() > 1e-3 * scene.key.abs().max()


# ------------------------------------------------------------------ calibration
def test_lengths_are_those_of_the_gauge(reader, calibrated, family):
    vectors, token_class = calibrated
    assert reader.calibration.passes == 2
    for layer, past in zip(reader.spec.layers, vectors, strict=True):
        known = reader.known[layer.module]
        gauge = gauge_of(*past, family)
        q, k = taken(*past, gauge)
        for found, due in ((known.balanced.key, usual(k)), (known.balanced.query, usual(q))):
            np.testing.assert_allclose(found.numpy(), due.ravel(), rtol=1e-9)
        for found, due in ((known.key, usual(past[1])), (known.query, usual(past[0]))):
            np.testing.assert_allclose(found.numpy(), due.ravel(), rtol=1e-9)
        logs = np.log(size(k)[..., 0])
        for name, at in CLASS_INDEX.items():
            inside = (token_class == at) & (np.arange(LENGTH) > 0)
            for head in range(k.shape[1]):
                value = float(known.balanced.by_class[head, at])
                assert (
                    math.isnan(value) if not inside.any() else value == pytest.approx(logs[:, head][inside].mean())
                ), name
        for at, (m, w, c) in enumerate(gauge):
            np.testing.assert_allclose(known.balanced.gauge.key[at].numpy(), m, rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(known.balanced.gauge.query[at].numpy(), w, rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(known.balanced.gauge.centre[at].numpy(), c, rtol=1e-9, atol=1e-12)
        assert known.gauge is None
        assert known.balanced.by_class.shape == (k.shape[1], len(TOKEN_CLASSES))


def test_windows_may_come_one_by_one():
    whole = made("gpt2")
    apart = Calibration(whole.spec, [parse_edit("sham@balanced")])
    ids, token_class = some_ids(2, seed=6), some_classes(2, seed=6)
    for _ in range(apart.passes):
        for row in range(2):
            at = slice(row, row + 1)
            with (
                torch.no_grad(),
                watching(whole.model, lambda seen, at=at: apart.add(seen, token_class[at]), stages=False),
            ):
                whole.model(ids[at], use_cache=False)
        apart.settle()
    for name, known in apart.known().items():
        for own, other in ((known, whole.known[name]), (known.balanced, whole.known[name].balanced)):
            torch.testing.assert_close(own.key, other.key, rtol=1e-9, atol=0)
            torch.testing.assert_close(own.query, other.query, rtol=1e-9, atol=0)


@pytest.mark.parametrize("constant", [{"softcap": 4.0}, {"learned_sinks": True}])
def test_keys_are_not_centred_where_the_softmax_sees_a_constant(constant):
    reader = made("gpt2")
    assert all(known.balanced.gauge.centre.any() for known in reader.known.values())
    spec = replace(reader.spec, layers=tuple(replace(layer, **constant) for layer in reader.spec.layers))
    calibration = Calibration(spec, [parse_edit("sham@balanced")])
    with torch.no_grad(), watching(reader.model, lambda seen: calibration.add(seen, some_classes()), stages=False):
        reader.model(some_ids(2, seed=6), use_cache=False)
    calibration.settle()
    assert not any(known.balanced.gauge.centre.any() for known in calibration.known().values())


def test_without_an_edit_in_the_gauge_windows_are_read_once():
    reader = made("llama", edits=["permute_norm", "temperature:2"])
    assert reader.calibration.passes == 1
    assert all(known.balanced is None for known in reader.known.values())


# ------------------------------------------------------------------ refusals
def test_where_the_pairs_are_not_known_there_is_no_such_gauge(reader):
    said = (
        r"^permute_norm@balanced needs to know in what pairs layer 1 turns its channels, and that is not known; leave"
    )
    spec = replace(reader.spec, layers=tuple(replace(layer, pairs=None) for layer in reader.spec.layers))
    calibration = Calibration(spec, [parse_edit("permute_norm@balanced")])
    assert calibration.passes == 1
    with torch.no_grad(), watching(reader.model, lambda seen: calibration.add(seen, some_classes()), stages=False):
        reader.model(some_ids(2, seed=6), use_cache=False)
    calibration.settle()
    scene = reader.scenes()[1]
    scene = replace(scene, known=calibration.known()[scene.seen.call.name])
    with pytest.raises(InvalidParameter, match=said):
        make(scene, parse_edit("permute_norm@balanced"))
    make(scene, parse_edit("permute_norm"))


# ------------------------------------------------------------------ the table
def tried(reader, edits):
    ids, token_class = some_ids(2, seed=1), some_classes(2, seed=1)
    variants = variants_of([parse_edit(edit) for edit in edits], (0, 1), one_by_one=True)
    return reader.trial.run(iter([(ids, as_tokens(token_class, torch.tensor([0, 1])))]), variants, 2)


def test_rows_name_the_gauge_and_there_is_a_sham_in_it():
    reader = made("llama", dtype=torch.float32)
    edits = ["permute_norm", "permute_norm@balanced", "swap_angle:permute_norm@balanced", "temperature:0.5@balanced"]
    table = tried(reader, [*edits, "temperature:0.5"])
    whole = table[(table["document"] == -1) & (table["layers"] == "all")].set_index("setting")
    assert list(whole.index) == [
        "sham",
        "sham@balanced",
        "permute_norm",
        "permute_norm@balanced",
        "swap_angle(permute_norm)@balanced",
        "temperature(0.5)@balanced",
        "temperature(0.5)",
    ]
    assert list(whole["gauge"]) == ["raw", "balanced", "raw", "balanced", "balanced", "balanced", "raw"]
    assert list(whole["against"]) == ["", "", "", "", "permute_norm", "", ""]
    assert whole["strength"].isna().tolist() == [False, False, False, False, True, False, False]
    assert (whole["n_kept"] == 0).all()
    assert whole.loc["sham@balanced", "delta_ce"] == pytest.approx(0, abs=1e-5)
    for column in ("delta_ce", "kl", "delta_class_sink"):
        pair = whole.loc[["temperature(0.5)", "temperature(0.5)@balanced"], column]
        assert pair.iloc[0] == pytest.approx(pair.iloc[1], rel=1e-4, abs=1e-6)
        pair = whole.loc[["permute_norm", "permute_norm@balanced"], column]
        assert abs(pair.iloc[0] - pair.iloc[1]) > 1e-4
    single = table[(table["document"] == -1) & (table["layers"] != "all")]
    assert not single["edit"].eq("sham").any()
    assert len(single) == 2 * 5


def test_no_sham_in_a_gauge_in_which_nothing_is_edited():
    table = tried(made("llama", dtype=torch.float32), ["permute_norm", "sham"])
    assert set(table["setting"]) == {"sham", "permute_norm"}


def test_pairs_that_keep_their_scale_are_counted():
    reader = made("llama", edits=())
    with torch.no_grad():
        reader.model.model.layers[1].self_attn.k_proj.weight[[3, 11]] = 0  # one pair of the first key head
    reader = Reader(reader.model, edits=ALL)
    table = tried(reader, ["permute_norm@balanced", "permute_norm"])
    kept = table[table["document"] == -1].set_index(["setting", "layers"])["n_kept"]
    assert kept["permute_norm@balanced", "all"] == kept["permute_norm@balanced", "1"] == 1
    assert kept["permute_norm@balanced", "0"] == kept["permute_norm", "all"] == 0

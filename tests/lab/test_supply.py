"""Batches: the same for every arm, each piece once a lap, held-out pieces apart from them."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from geomprobe.errors import CorpusError
from geomprobe.lab.arms import ARMS
from geomprobe.lab.recipe import Recipe
from geomprobe.lab.supply import TextSupply
from geomprobe.lab.text import END_ID
from tests.lab.made_text import counted, prepared

LENGTH, BATCH = 8, 3
N_PIECES = 10
N_TOKENS = N_PIECES * LENGTH + 5  # a rest that is no piece
RECIPE = Recipe(length=LENGTH, batch=BATCH)


@pytest.fixture
def data(tmp_path):
    return counted(tmp_path / "data", N_TOKENS)


@pytest.fixture
def supply(data):
    return TextSupply(data, RECIPE)


def pieces(supply, n_steps):
    """The numbers of the pieces in the order in which they are read."""
    return [int(row[0]) // LENGTH for step in range(n_steps) for row in supply.batch(step)]


def sha256_of_batches(supply, n_steps=24):
    digest = hashlib.sha256()
    for step in range(n_steps):
        digest.update(supply.batch(step).numpy().tobytes())
    return digest.hexdigest()


def test_every_arm_reads_every_batch_of_its_twins(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMPROBE_CACHE", str(tmp_path))
    text = prepared(4)
    recipe = replace(RECIPE, length=16)
    read = {name: sha256_of_batches(TextSupply(text, replace(recipe, arm=arm))) for name, arm in ARMS.items()}
    assert read["A0"] == read["A1"]
    assert len(set(read.values())) == 1


def test_seeds_differ_in_the_order_alone(data):
    supplies = [TextSupply(data, replace(RECIPE, seed=seed)) for seed in range(6)]
    assert len({sha256_of_batches(supply) for supply in supplies}) == 6
    assert len({supply.sha256 for supply in supplies}) == 1


@pytest.mark.parametrize("changes", [{"rate": 1e-4}, {"tokens": 17}, {"decay": 0.0}, {"dtype": "bfloat16"}])
def test_nothing_but_seed_and_shape_decides_the_batches(data, supply, changes):
    assert sha256_of_batches(supply) == sha256_of_batches(TextSupply(data, replace(RECIPE, **changes)))


def test_a_lap_reads_each_piece_once_and_the_next_in_another_order(supply):
    read = pieces(supply, 3 * N_PIECES // BATCH)  # three laps; batches go across their borders
    laps = [tuple(read[lap * N_PIECES : (lap + 1) * N_PIECES]) for lap in range(3)]
    assert all(sorted(lap) == list(range(N_PIECES)) for lap in laps)
    assert len(set(laps)) == 3
    assert tuple(range(N_PIECES)) not in laps


def test_the_last_column_is_the_token_that_follows(supply):
    for step in range(8):
        batch = supply.batch(step)  # (batch, length + 1)
        assert batch.shape == (BATCH, LENGTH + 1)
        assert batch.dtype == torch.int64
        assert (batch[:, 0] % LENGTH == 0).all()
        assert (batch - batch[:, :1] == torch.arange(LENGTH + 1)).all()  # tokens are their places


def test_the_last_token_of_the_text_is_a_target(tmp_path):
    supply = TextSupply(counted(tmp_path, N_PIECES * LENGTH + 1), RECIPE)
    read = torch.cat([supply.batch(step) for step in range(4)])
    assert set(read.flatten().tolist()) == set(range(N_PIECES * LENGTH + 1))


def test_a_batch_does_not_rest_on_those_before(data, supply):
    inorder = [supply.batch(step) for step in range(20)]
    for step in np.random.default_rng(0).permutation(20):
        assert torch.equal(supply.batch(int(step)), inorder[step])
        assert torch.equal(TextSupply(data, RECIPE).batch(int(step)), inorder[step])


def test_a_batch_is_not_part_of_the_text_itself(data, supply):
    before = supply.batch(0)
    supply.batch(0).zero_()
    assert torch.equal(supply.batch(0), before)


def test_a_bos_takes_the_place_of_the_first_token_and_of_no_other(data, supply):
    begun = TextSupply(data, replace(RECIPE, bos=True))
    for read, own in ((begun.batch(3), supply.batch(3)), (begun.held_out(16, 5), supply.held_out(16, 5))):
        assert (own[1:, 0] != END_ID).all()
        assert (read[:, 0] == END_ID).all()
        assert torch.equal(read[:, 1:], own[:, 1:])  # what is predicted, and from what else


@pytest.mark.parametrize(("length", "n"), [(8, 4), (8, 1), (32, 3), (8, 24), (16, 5)])
def test_held_out_pieces_are_spread_and_do_not_overlap(supply, length, n):
    found = supply.held_out(length, n)  # (n, length + 1)
    assert found.shape == (n, length + 1)
    begins = found[:, 0]
    assert (found - begins[:, None] == torch.arange(length + 1)).all()
    assert begins[0] == 0
    if n > 1:
        gaps = begins.diff()
        assert begins[-1] == 200 - length - 1  # the last token is the last target
        assert gaps.max() - gaps.min() <= 1
        assert gaps.min() >= length


def test_fewer_where_the_held_out_text_is_short(supply):
    assert supply.held_out(8, 1000).shape == (199 // 8, 9)
    assert supply.held_out(64, 1000).shape == (3, 65)
    assert supply.held_out(150, 1000).shape == (1, 151)


def test_held_out_tokens_are_never_trained_on(tmp_path):
    data = counted(tmp_path, N_TOKENS)
    np.save(tmp_path / "held_out.npy", np.arange(10_000, 10_200, dtype=np.uint16))
    supply = TextSupply(data, RECIPE)
    assert supply.held_out(8, 1000).min() >= 10_000
    assert max(int(supply.batch(step).max()) for step in range(30)) < N_TOKENS


@pytest.mark.parametrize(
    ("n_train", "n_held_out", "enough"),
    [
        (BATCH * LENGTH, 200, False),
        (BATCH * LENGTH + 1, 200, True),
        (N_TOKENS, 4 * LENGTH, False),
        (N_TOKENS, 4 * LENGTH + 1, True),
    ],
)
def test_a_text_that_is_too_short(tmp_path, n_train, n_held_out, enough):
    data = counted(tmp_path, n_train, n_held_out)
    if enough:
        supply = TextSupply(data, RECIPE)
        assert supply.batch(5).shape == (BATCH, LENGTH + 1)
        assert supply.held_out(4 * LENGTH, 5).shape[1] == 4 * LENGTH + 1
    else:
        with pytest.raises(
            CorpusError, match=rf"{n_train} tokens to train on and {n_held_out} held out; a batch takes 24"
        ):
            TextSupply(data, RECIPE)

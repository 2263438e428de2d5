"""norm_lift of many draws at once against norm_lift of each."""

import numpy as np
import pytest

from geomprobe.stats.lift import lift_draws, norm_lift
from geomprobe.stats.resampling import Draws, means_of_types

DRAWS, CONTENT, OTHERS, DOCUMENTS, BUCKETS = 25, 30, 8, 10, 4
TYPES = CONTENT + OTHERS
FITTED = np.arange(TYPES) < CONTENT


def made(seed, *, rare=()):
    """(n, total, zipf, places by document): some types in one document alone."""
    rng = np.random.default_rng(seed)
    places = rng.poisson(1.2, size=(TYPES, DOCUMENTS, BUCKETS)).astype(float)
    for kind in rare:
        places[kind, 1:] = 0
        places[kind, 0] += 2
    places[:, 0, 0] += places.sum((1, 2)) == 0
    n = places.sum(2)
    return n, n * rng.normal(2.5, 0.3, size=n.shape), rng.uniform(2, 7, TYPES), places


def draws_of(n, total, zipf, places, *, resample=True):
    """Documents and content types drawn: log lengths, places and weights of each draw."""
    drawn = Draws.of(DOCUMENTS, DRAWS)
    documents = drawn.documents if resample else np.ones((DRAWS, DOCUMENTS))
    weights = np.ones((DRAWS, TYPES))
    weights[:, FITTED] = drawn.types(CONTENT, 1)
    return means_of_types(n, total, documents), zipf, np.einsum("dm,tmb->dtb", documents, places), weights


def one_by_one(log_length, zipf, places, weights, *, content=FITTED):
    """norm_lift, a draw at a time."""
    return np.array(
        [
            norm_lift(log_length[draw][None], zipf, places[draw], content, weight=weights[draw]).value[0]
            for draw in range(len(log_length))
        ]
    )


@pytest.mark.parametrize("seed", range(3))
def test_each_draw_is_the_lift_of_what_was_drawn(seed):
    log_length, zipf, places, weights = draws_of(*made(seed))
    found = lift_draws(log_length, zipf, places, FITTED, weights)
    np.testing.assert_allclose(found, one_by_one(log_length, zipf, places, weights), rtol=1e-7, atol=1e-9)


def test_a_weight_is_a_type_that_repeats():
    n, total, zipf, places = made(0)
    log_length, zipf, buckets, weights = draws_of(n, total, zipf, places)
    found = lift_draws(log_length, zipf, buckets, FITTED, weights)
    for draw in range(5):
        times = np.where(FITTED, weights[draw], 1).astype(int)
        again = np.repeat(np.arange(TYPES), times)
        repeated = norm_lift(log_length[draw, again][None], zipf[again], buckets[draw, again], FITTED[again]).value[0]
        np.testing.assert_allclose(found[draw, again], repeated, rtol=1e-7, atol=1e-9)


def test_a_draw_of_everything_once_is_the_estimate():
    n, total, zipf, places = made(1)
    log_length, zipf, buckets, _ = draws_of(n, total, zipf, places, resample=False)
    found = lift_draws(log_length, zipf, buckets, FITTED, np.ones((DRAWS, TYPES)))
    whole = norm_lift((total.sum(1) / n.sum(1))[None], zipf, places.sum(1), FITTED).value[0]
    np.testing.assert_allclose(found, np.broadcast_to(whole, found.shape), rtol=1e-7, atol=1e-9)
    assert np.abs(found[:, FITTED].mean(axis=1)).max() < 1e-9  # content lies at 0


@pytest.mark.parametrize("bucket", [0, 2, 3])
def test_a_bucket_that_no_type_has_changes_nothing(bucket):
    n, total, zipf, places = made(2)
    places[..., bucket] = 0
    n = places.sum(2)
    total = n * np.random.default_rng(0).normal(2.5, 0.3, size=n.shape)
    log_length, zipf, buckets, weights = draws_of(n, total, zipf, places)
    found = lift_draws(log_length, zipf, buckets, FITTED, weights)
    np.testing.assert_allclose(found, one_by_one(log_length, zipf, buckets, weights), rtol=1e-7, atol=1e-9)
    left = np.delete(buckets, bucket, axis=2)
    np.testing.assert_allclose(found, lift_draws(log_length, zipf, left, FITTED, weights), rtol=1e-6, atol=1e-9)


def test_a_type_without_tokens_in_a_draw_has_no_value_and_no_say():
    given = made(3, rare=(0, 5, CONTENT + 1))
    log_length, zipf, places, weights = draws_of(*given)
    missing = np.isnan(log_length)
    assert missing[:, 0].any()
    assert missing[:, CONTENT + 1].any()
    found = lift_draws(log_length, zipf, places, FITTED, weights)
    np.testing.assert_array_equal(np.isnan(found), missing)
    np.testing.assert_allclose(found, one_by_one(log_length, zipf, places, weights), rtol=1e-7, atol=1e-9)
    # As if it were not there.
    draw = int(np.flatnonzero(missing[:, 0])[0])
    kept = ~missing[draw]
    alone = lift_draws(
        log_length[draw : draw + 1, kept], zipf[kept], places[draw : draw + 1, kept], FITTED[kept],
        weights[draw : draw + 1, kept],
    )  # fmt: skip
    np.testing.assert_allclose(found[draw, kept], alone[0], rtol=1e-7, atol=1e-9)


def test_the_fit_is_of_content_types_alone():
    log_length, zipf, places, weights = draws_of(*made(4))
    found = lift_draws(log_length, zipf, places, FITTED, weights)
    longer = lift_draws(log_length + 0.3 * ~FITTED, zipf, places, FITTED, weights)
    np.testing.assert_allclose(longer - found, np.broadcast_to(0.3 * ~FITTED, found.shape), atol=1e-9)
    ignored = lift_draws(log_length, zipf, places, FITTED, np.where(FITTED, weights, 50.0))
    np.testing.assert_allclose(ignored, found, atol=1e-12)


def test_a_lift_that_was_put_there_comes_out_of_every_draw():
    n, _, zipf, places = made(5)
    # Lengths follow from the frequency alone: positions are noise that the fit must see through
    log = 2.0 + 0.1 * zipf + np.log(1.1) * ~FITTED
    log_length, zipf, buckets, weights = draws_of(n, n * log[:, None], zipf, places)
    found = lift_draws(log_length, zipf, buckets, FITTED, weights)
    expected = np.broadcast_to(np.log(1.1) * ~FITTED, found.shape)
    np.testing.assert_allclose(found, np.where(np.isnan(found), np.nan, expected), atol=1e-9)

"""norm_lift of types against other people's regression, and where the answer was put there."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from geomprobe.stats.lift import lift_draws, norm_lift

SERIES, CONTENT, OTHERS, BUCKETS = 3, 40, 12, 5
TYPES = CONTENT + OTHERS
FITTED = np.arange(TYPES) < CONTENT  # content types come first


def made(seed=0):
    """(log_length, zipf, places, content): some content types and some others have no Zipf frequency."""
    rng = np.random.default_rng(seed)
    zipf = np.concatenate([rng.uniform(2, 6, CONTENT), rng.uniform(4, 8, OTHERS)])
    zipf[[3, 7, CONTENT + 1, CONTENT + 4]] = np.nan
    places = rng.integers(0, 30, size=(TYPES, BUCKETS)).astype(float)
    places[:, 2] *= rng.random(TYPES) < 0.7
    return rng.normal(3, 0.4, size=(SERIES, TYPES)), zipf, places, FITTED


def by_another_hand(log_length, zipf, places, content, weight=None):
    """(value, slope) type by type and series by series, by scikit-learn."""
    weight = np.ones(len(zipf)) if weight is None else weight
    shares = np.array([row / row.sum() for row in places])
    value, slope = np.empty_like(log_length), []
    for series, y in enumerate(log_length):
        told = content & ~np.isnan(zipf)
        both = np.column_stack([zipf, shares[:, 1:]])
        by_both = LinearRegression().fit(both[told], y[told], sample_weight=weight[told])
        by_place = LinearRegression().fit(shares[content, 1:], y[content], sample_weight=weight[content])
        slope.append(by_both.coef_[0])
        for kind in range(len(zipf)):
            if np.isnan(zipf[kind]):
                fitted = by_place.predict(shares[kind : kind + 1, 1:])
            else:
                fitted = by_both.predict(both[kind : kind + 1])
            value[series, kind] = y[kind] - fitted[0]
    return value, np.array(slope)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_another_regression(seed, weighted):
    given = made(seed)
    weight = np.random.default_rng(seed).integers(1, 5, TYPES).astype(float) if weighted else None
    found = norm_lift(*given, weight=weight)
    value, slope = by_another_hand(*given, weight=weight)
    np.testing.assert_allclose(found.value, value, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.slope, slope, rtol=1e-9, atol=1e-9)


def test_a_class_is_as_much_longer_as_it_was_made():
    """log ‖k‖ = .3·Zipf + what the bucket adds, 5 % more in one class: that is all that is left."""
    _, zipf, places, content = made()
    known = ~np.isnan(zipf)
    shares = places / places.sum(axis=1, keepdims=True)
    article = np.arange(TYPES) >= TYPES - 3
    log = 0.3 * np.nan_to_num(zipf) + shares @ [1.0, 1.4, 0.2, 0.9, 2.0] + math.log(1.05) * article
    found = norm_lift(log[None], zipf, places, content)
    np.testing.assert_allclose(found.value[0, article], math.log(1.05), atol=1e-12)
    np.testing.assert_allclose(found.value[0, known & ~article], 0, atol=1e-12)
    np.testing.assert_allclose(found.slope, 0.3, atol=1e-12)


def test_what_has_no_zipf_is_held_against_positions_alone():
    _, zipf, places, content = made()
    shares = places / places.sum(axis=1, keepdims=True)
    log = shares @ [1.0, 1.4, 0.2, 0.9, 2.0] + 0.07 * np.isnan(zipf) * ~content
    found = norm_lift(log[None], zipf, places, content)
    np.testing.assert_allclose(found.value[0], 0.07 * np.isnan(zipf) * ~content, atol=1e-12)
    # By hand: one bucket, so the fit is the mean of all content types, those without a Zipf frequency among them.
    log, zipf = np.array([[1.0, 2.0, 3.0, 6.0, 5.0]]), np.array([2.0, 4.0, 6.0, np.nan, np.nan])
    found = norm_lift(log, zipf, np.ones((5, 1)), np.array([True, True, True, True, False]))
    np.testing.assert_allclose(found.value, [[0, 0, 0, 3, 2]], atol=1e-12)
    np.testing.assert_allclose(found.slope, [0.5], atol=1e-12)


def test_types_of_the_fit_average_to_nothing():
    log, zipf, places, content = made()
    inside = content & ~np.isnan(zipf)
    weight = np.random.default_rng(2).uniform(0.5, 3, TYPES)
    np.testing.assert_allclose(norm_lift(log, zipf, places, content).value[:, inside].mean(axis=1), 0, atol=1e-12)
    value = norm_lift(log, zipf, places, content, weight=weight).value
    np.testing.assert_allclose(value[:, inside] @ weight[inside], 0, atol=1e-10)
    assert np.abs(value[:, inside].mean(axis=1)).max() > 1e-3


def test_a_weight_is_so_many_of_a_type():
    log, zipf, places, content = made()
    weight = np.random.default_rng(1).integers(0, 4, TYPES)
    weight[np.nanargmax(np.where(content, zipf, np.nan))] = 0  # the most frequent content type is out of the fit
    found = norm_lift(log, zipf, places, content, weight=weight.astype(float))
    # Each type once to be asked, which is no content, and the content types as often as they count.
    often = np.repeat(np.arange(TYPES), np.where(content, weight, 0))
    order = np.concatenate([np.arange(TYPES), often])
    asked = np.arange(len(order)) < TYPES
    repeated = norm_lift(log[:, order], zipf[order], places[order], ~asked)
    np.testing.assert_allclose(found.value, repeated.value[:, asked], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.slope, repeated.slope, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.extrapolated, repeated.extrapolated[asked])


def test_extrapolated_is_what_is_more_frequent_than_the_fit():
    log, zipf, places, content = made()
    highest = np.nanmax(zipf[content])
    zipf[-1], zipf[-2] = highest, np.nextafter(highest, 9)
    found = norm_lift(log, zipf, places, content)
    np.testing.assert_array_equal(found.extrapolated, np.nan_to_num(zipf) > highest)
    assert found.extrapolated[-2]
    assert not found.extrapolated[-1]
    assert not found.extrapolated[content].any()
    # A content type that is not in the fit holds nothing down, and lies outside itself.
    top = int(np.nanargmax(np.where(content, zipf, np.nan)))
    log[0, top] = np.nan
    found = norm_lift(log, zipf, places, content)
    second = np.nanmax(np.delete(zipf, top)[: CONTENT - 1])
    assert found.extrapolated[top]
    np.testing.assert_array_equal(found.extrapolated, np.nan_to_num(zipf) > second)


def test_types_without_keys_or_places_are_left_out():
    log, zipf, places, content = made()
    log[:, 5] = np.nan
    log[0, CONTENT + 2] = np.nan  # no key in one series
    places[9] = 0
    places[CONTENT + 6] = 0
    gone = [5, 9, CONTENT + 2, CONTENT + 6]
    found = norm_lift(log, zipf, places, content)
    assert np.isnan(found.value[:, gone]).all()
    kept = np.setdiff1d(np.arange(TYPES), gone)
    alone = norm_lift(log[:, kept], zipf[kept], places[kept], content[kept])
    np.testing.assert_allclose(found.value[:, kept], alone.value, rtol=1e-9, atol=1e-9)


def test_a_bucket_that_holds_nothing_and_a_type_s_tokens_do_not_matter():
    log, zipf, places, content = made()
    found = norm_lift(log, zipf, places, content)
    wider = np.hstack([places, np.zeros((TYPES, 3))])
    np.testing.assert_allclose(norm_lift(log, zipf, wider, content).value, found.value, rtol=1e-9, atol=1e-9)
    more = places * np.random.default_rng(4).integers(1, 9, size=(TYPES, 1))
    np.testing.assert_allclose(norm_lift(log, zipf, more, content).value, found.value, rtol=1e-9, atol=1e-9)
    one = norm_lift(log[1:2], zipf, places, content)
    np.testing.assert_allclose(one.value[0], found.value[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("lack", ["content", "keys", "zipf"])
def test_without_anything_to_fit_there_is_no_number(lack):
    log, zipf, places, content = made()
    if lack == "content":
        content = np.zeros(TYPES, dtype=bool)
    elif lack == "keys":
        log = np.full_like(log, np.nan)
    else:
        zipf = np.where(content, np.nan, zipf)
    found = norm_lift(log, zipf, places, content)
    assert np.isnan(found.slope).all()
    assert not found.extrapolated.any()
    if lack == "zipf":  # positions remain, for what has no Zipf frequency
        assert np.isfinite(found.value[:, np.isnan(zipf)]).all()
        assert np.isnan(found.value[:, ~np.isnan(zipf)]).all()
    else:
        assert np.isnan(found.value).all()


def test_draws_are_lifts_one_by_one():
    """Types that come several times or not at all, in other places and of other lengths, in every draw."""
    rng = np.random.default_rng(3)
    _, zipf, _, content = made()
    zipf = np.nan_to_num(zipf, nan=5.0)
    n = 20
    log = rng.normal(3, 0.4, size=(n, TYPES))
    log[rng.random(log.shape) < 0.1] = np.nan
    places = rng.integers(0, 30, size=(n, TYPES, BUCKETS)).astype(float)
    places[: n // 2, :, 2] = 0  # a bucket that no type has
    weight = rng.integers(0, 4, size=(n, TYPES)).astype(float)
    found = lift_draws(log, zipf, places, content, weight)
    expected = [norm_lift(y[None], zipf, p, content, w).value[0] for y, p, w in zip(log, places, weight, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
    assert np.isnan(found).sum() == np.isnan(log).sum()


@pytest.mark.parametrize("n", [1, 2, BUCKETS + 1, BUCKETS + 2])
def test_a_fit_with_no_more_types_than_columns_gives_no_number(n):
    """One, Zipf and four of the five shares are six columns, which seven types settle and six only meet."""
    rng = np.random.default_rng(0)
    places = rng.integers(1, 30, size=(n + 4, BUCKETS)).astype(float)
    found = norm_lift(rng.normal(size=(2, n + 4)), rng.uniform(3, 7, n + 4), places, np.arange(n + 4) < n)
    told = n > BUCKETS + 1
    assert np.isfinite(found.slope).all() == np.isfinite(found.value).all() == told
    assert np.isnan(found.value).all() != told


def test_types_that_are_all_as_frequent_tell_no_slope():
    found = norm_lift(
        np.array([[2.0, 2.1, 2.5, 3.0]]), np.array([4.0, 4.0, 4.0, 7.0]), np.ones((4, 1)), np.arange(4) < 3
    )
    assert np.isnan(found.value).all()
    assert np.isnan(found.slope).all()


def test_what_is_given_stays_as_it_was():
    given = made()
    before = [x.copy() for x in given]
    norm_lift(*given, weight=np.ones(TYPES))
    for now, then in zip(given, before, strict=True):
        np.testing.assert_array_equal(now, then)

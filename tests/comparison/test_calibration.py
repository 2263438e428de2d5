"""Two seeds of the same: intervals hold 0 in about 95 % of comparisons, and all of a family together err in 5 %."""

import math
from pathlib import Path

import numpy as np
import pytest

from geomprobe import pooling
from geomprobe.comparison import measured
from geomprobe.comparison.measured import differences, of_documents
from geomprobe.comparison.quantities import Quantity
from geomprobe.comparison.sides import WHOLE, Sides
from geomprobe.pooling import ByDocument, Pooled
from geomprobe.run.reading import Run
from tests.comparison.made import manifest

SHARED, OWN = 1.0, 0.5  # spread of what both runs have of a document, and of what each has
FAMILY = 12


def pooled(run, _layers, *, place):
    """A mean over rows, straight from numbers in a run."""
    value, n = run.tables["value"][place], run.tables["n"]
    data = ByDocument({"weighted": (value * n)[None], "n_rows": n[None]}, np.arange(len(n)))
    return Pooled(data, pooling._mean_of_layers)


QUANTITIES = [
    Quantity(f"q{place}", "q", "nats", lambda run, layers, place=place: pooled(run, layers, place=place))
    for place in range(FAMILY)
]


def two_seeds(rng, n, *, together=0.0, skewed=False):
    """A pair of runs whose documents differ by chance alone; `together` is the correlation of its statistics."""
    told = manifest("one", [f"text {number}" for number in range(n)], 1, 1)
    rows = rng.integers(3, 8, size=n).astype(float)
    document = SHARED * rng.normal(size=(FAMILY, n))
    sides = []
    for _ in range(2):
        common, own = rng.normal(size=n), rng.normal(size=(FAMILY, n))
        noise = math.sqrt(together) * common + math.sqrt(1 - together) * own
        noise = np.exp(noise) if skewed else noise
        tables = {"value": document + OWN * noise, "n": rows}
        sides.append(Run(Path("made"), told, tables))
    return Sides.of(sides)


def tables(n, pairs, seed, **more):
    """The differences of so many pairs, one frame a pair."""
    rng = np.random.default_rng(seed)
    for _ in range(pairs):
        sides = two_seeds(rng, n, **more)
        yield differences([of_documents(sides, one, WHOLE, draws=2000) for one in QUANTITIES], sides)


def coverage(n, pairs, seed, **more):
    """Share of intervals that hold 0, and how many there were."""
    held = [((table["low"] <= 0) & (table["high"] >= 0)) for table in tables(n, pairs, seed, **more)]
    return float(np.concatenate(held).mean()), FAMILY * pairs


def noise(share, n, often=3.5):
    """So many standard errors of a share of n."""
    return often * math.sqrt(share * (1 - share) / n)


@pytest.mark.parametrize(("n", "seed"), [(8, 1), (12, 2), (32, 3)])
def test_intervals_of_two_seeds_hold_0_in_95_of_100(n, seed):
    """1,200 independent statistics: 3.5 standard errors are 2.2 points, so from 92.8 to 97.2 %."""
    share, of = coverage(n, 100, seed)
    assert abs(share - 0.95) < noise(0.95, of), share


def test_intervals_of_skewed_noise_hold_0_as_often():
    """The difference of two alike is symmetric, whatever the documents are like."""
    share, of = coverage(12, 100, 4, skewed=True)
    assert 0.95 - noise(0.95, of) < share, share


def test_without_the_expansion_they_hold_0_too_seldom(monkeypatch):
    """A plain percentile interval of eight documents holds 0 in some 89 %."""
    monkeypatch.setattr(measured, "expanded", lambda _n, level=0.05: level)
    share, of = coverage(8, 100, 1)
    assert share < 0.95 - noise(0.95, of), share
    assert share > 0.8


@pytest.mark.parametrize(("n", "together", "rate"), [(8, 0.5, 0.08), (12, 0.0, 0.05), (12, 0.7, 0.05), (32, 0.7, 0.05)])
def test_a_family_of_statistics_errs_in_5_of_100(n, together, rate):
    """200 families of 12: one should be beyond in 5 %, and 3.5 standard errors are 5.4 points.

    Draws of eight documents have thinner tails than documents have, so that of these it is 8 %.
    """
    erred = [bool(table["beyond"].any()) for table in tables(n, 200, [n, round(10 * together)], together=together)]
    assert np.mean(erred) < rate + noise(rate, len(erred)), np.mean(erred)


def test_single_intervals_of_a_family_err_more_often():
    """So the band of all together is no idle caution."""
    apart = [bool(((table["low"] > 0) | (table["high"] < 0)).any()) for table in tables(12, 100, 5)]
    assert np.mean(apart) > 0.3

import numpy as np
import pytest

from geomprobe.corpus.rarity import band, zipf
from geomprobe.errors import InvalidParameter


def test_published_frequencies():
    assert zipf(["the", "Word", "frequency", "zipf"]).tolist() == [7.73, 5.26, 4.36, 1.49]


def test_what_wordfreq_does_not_know_is_nan():
    values = zipf([",", "\n", "", "qqxzzv", "the"])
    assert values.dtype == np.float64
    assert np.isnan(values).tolist() == [True, True, True, True, False]
    assert zipf([]).shape == (0,)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2.99, "rare"), (3.0, "mid"), (5.0, "mid"), (5.01, "frequent"), (np.nan, None)],
)
def test_bands(value, expected):
    assert band(value) == expected


def test_an_unknown_language():
    with pytest.raises(InvalidParameter, match=r"Unknown language 'tlh'\..* Known: .*en"):
        zipf(["the"], "tlh")

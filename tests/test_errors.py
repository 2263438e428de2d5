"""One sentence a mistake: what it must be, what it is, and what to do."""

import math

import pytest

from geomprobe import errors
from geomprobe.errors import GeomprobeError, InvalidParameter, at_least, between, did_you_mean, one_of, unknown_name

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


def test_every_error_is_a_geomprobe_error():
    assert len(KINDS) == 7
    assert all(issubclass(kind, GeomprobeError) for kind in KINDS)
    assert issubclass(InvalidParameter, ValueError)
    assert not any(issubclass(kind, ValueError) for kind in KINDS if kind is not InvalidParameter)
    assert all(kind.__doc__ for kind in KINDS)


def test_one_of():
    one_of("bos", "never", ("default", "never"))
    with pytest.raises(InvalidParameter, match=r"^bos must be one of 'default', 'never'; got 'maybe'\.$"):
        one_of("bos", "maybe", (name for name in ("default", "never")))


def test_at_least():
    at_least("window", 2, 2)
    with pytest.raises(InvalidParameter, match=r"^window must be at least 2; got 1\.$"):
        at_least("window", 1, 2)
    with pytest.raises(InvalidParameter, match="got nan"):
        at_least("window", math.nan, 2)


def test_between():
    between("epsilon", 0, 0, 1)
    between("epsilon", 1, 0, 1)
    for value in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidParameter, match=rf"^epsilon must be between 0 and 1; got {value}\.$"):
            between("epsilon", value, 0, 1)


def test_did_you_mean():
    assert did_you_mean("nroms", ["norms", "sinks"]) == " Did you mean 'norms'?"
    assert did_you_mean("xyz", ["norms", "sinks"]) == ""
    assert did_you_mean("norms", []) == ""


def test_unknown_name():
    said = "Unknown table 'nroms'. Did you mean 'norms'? Known: norms, sinks."
    assert unknown_name("table", "nroms", iter(["sinks", "norms"])) == said

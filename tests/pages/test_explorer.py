"""The map of heads: every quantity is its table's, head by head."""

import json

import numpy as np
import pytest

from geomprobe import tables
from geomprobe.labels import CLASS_ROWS
from geomprobe.pages import explorer as module
from geomprobe.pages.explorer import explorer
from geomprobe.pages.head_quantities import LOOKS, QUANTITIES
from tests.synthetic_edits import write_synthetic_edits
from tests.synthetic_run import rewrite, write_synthetic_run


def read(run) -> dict:
    return {one["name"]: one for one in json.loads(explorer(run).block)["quantities"]}


def test_all_quantities(plain) -> None:
    found = read(plain)
    assert list(found) == [quantity.name for quantity in QUANTITIES]
    assert len(set(found)) == len(QUANTITIES)
    for quantity in found.values():
        assert quantity["said"].endswith(".")
        assert quantity["look"] in LOOKS
        for one in quantity["classes"]:
            assert np.shape(one["values"]) == (len(quantity["layers"]), len(quantity["heads"]))
        names = [one["name"] for one in quantity["classes"]]
        assert names == [""] or set(names) <= set(CLASS_ROWS)


def test_values_are_the_tables(plain) -> None:
    found = read(plain)
    table = plain.tables["class_attention"]
    rows = table[table["token_class"] == "article"]
    for name in ("class_sink", "lift"):
        (one,) = [given for given in found[name]["classes"] if given["name"] == "article"]
        np.testing.assert_allclose(one["values"], tables.by_head(rows, name, "q_head"), rtol=1e-5)
    (one,) = found["first_mass"]["classes"]
    assert one["n"] == 4096
    (one,) = found["geo_mean"]["classes"]
    assert np.shape(one["values"]) == (6, 2)  # key heads
    assert found["geo_mean"]["head"] == "key head"


def test_layers_of_unlike_width_have_gaps(tmp_path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=2)
    sinks = run.tables["sinks"]
    run = rewrite(run, sinks=sinks[(sinks["layer"] == 0) | (sinks["q_head"] < 2)])
    (one,) = read(run)["first_mass"]["classes"]
    assert one["values"][1][2:] == [None, None]
    assert None not in one["values"][0]


def test_a_run_without_such_tables(tmp_path) -> None:
    assert explorer(write_synthetic_edits(tmp_path)) is None


def test_what_would_be_too_much_is_left_out(plain, monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 3 * 24)
    assert explorer(plain).names == ("first_mass", "entropy_no_first", "entropy")


@pytest.mark.parametrize("kind", ["plain", "normed"])
def test_layers_that_see_everything(kind, request) -> None:
    run = request.getfixturevalue(kind)
    assert json.loads(explorer(run).block)["full"] == tables.full_layers(run)

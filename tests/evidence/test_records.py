"""Records of runs: one table of them, pairs by seed, and numbers read off at equal loss."""

import json
import math

import numpy as np
import pytest

from geomprobe.errors import RunError
from geomprobe.evidence.records import at_equal_loss, read_records
from tests.evidence.made import made, made_group, written


def line(record, points):
    """A record whose last measured steps have these losses and numbers x."""
    *earlier, (last, value) = points
    record["on_the_way"] = [{"step": i, "loss": loss, "numbers": {"x": x}} for i, (loss, x) in enumerate(earlier)]
    record["losses"] = [{"step": 0, "loss": 9.0}, {"step": 9, "loss": last}]
    record["numbers"]["x"] = value


def lines(**by_run):
    """Records of runs "A0_s0", each with its points."""
    whole = {}
    for name, points in by_run.items():
        arm, seed = name.split("_s")
        whole |= made_group("nano", [arm], [int(seed)])
        line(whole[f"nano-{arm}-s{seed}"], points)
    return made(whole)


# ---------------------------------------------------------------------- the table
def test_a_row_a_run_with_its_numbers(tmp_path):
    whole = {
        **made_group("nano", ["A0", "A1"], 2),
        **made_group("stability", ["A0"], 1, rates=(3e-4, 1e-2)),
    }
    records = read_records(written(whole, tmp_path))
    assert list(records.table["name"]) == sorted(whole)
    assert records.rates("stability") == [3e-4, 1e-2]
    assert records.rates("nano") == [2e-3]
    assert records.seeds("nano", "A1") == [0, 1]
    assert records.one("stability", "A0", "loss_1x", 1e-2).tolist() == [
        whole["stability-A0-r0.01-s0"]["numbers"]["loss_1x"]
    ]
    assert records.whole.keys() == whole.keys()


def test_pairs_are_of_the_seeds_that_both_arms_have():
    whole = {**made_group("nano", ["A0"], [4, 1, 0]), **made_group("nano", ["A1"], [1, 4, 7])}
    for name, record in whole.items():
        record["numbers"]["x"] = 10.0 * ("A1" in name) + record["recipe"]["seed"] * (1 if "A1" in name else 3)
    records = made(whole)
    assert records.seeds("nano", "A0") == [0, 1, 4]
    found = records.paired("nano", "A1", "A0", "x")
    assert found.tolist() == [10 + 1 - 3, 10 + 4 - 12]  # by seed: 1, 4


def test_a_number_that_is_missing_takes_its_pair_along():
    whole = made_group("nano", ["A0", "A1"], 3)
    whole["nano-A0-s1"]["numbers"]["tv"] = None
    records = made(whole)
    assert len(records.paired("nano", "A1", "A0", "tv")) == 2
    assert records.one("nano", "A0", "tv").index.tolist() == [0, 2]
    assert len(records.paired("nano", "A1", "A0", "no such number")) == 0
    assert len(records.paired("nano", "A1", "A9", "tv")) == 0


@pytest.mark.parametrize("text", ["{", "", "{'arm': 1}"])
def test_a_damaged_record_is_named(tmp_path, text):
    written(made_group("nano", ["A0"], 1), tmp_path)
    (tmp_path / "nano-A1-s0.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"nano-A1-s0\.json' is not valid JSON \(.*\); measure that run again\.$"):
        read_records(tmp_path)


def test_a_folder_without_records(tmp_path):
    (tmp_path / "notes.txt").write_text("{}", encoding="utf-8")
    with pytest.raises(RunError, match=r"holds no records \(\*\.json\); `geomprobe sweep`"):
        read_records(tmp_path)


def test_null_is_no_number(tmp_path):
    whole = made_group("nano", ["A0"], 1)
    whole["nano-A0-s0"]["numbers"]["loss_4x"] = None
    records = read_records(written(whole, tmp_path))
    assert math.isnan(records.table.loc[0, "loss_4x"])
    assert json.loads((tmp_path / "nano-A0-s0.json").read_text())["numbers"]["loss_4x"] is None


# ---------------------------------------------------------------------- at equal loss
def test_the_arm_that_went_further_is_read_where_the_other_ended():
    # A1 ends at 4.6 and passed A0's 4.8 three quarters of the way from 5.4 (x = .4) down to 4.6 (x = .8).
    records = lines(A0_s0=[(6, 0.1), (5, 0.3), (4.8, 0.35)], A1_s0=[(6, 0.2), (5.4, 0.4), (4.6, 0.8)])
    read = at_equal_loss(records, "nano", ("A0", "A1"), "x")
    assert read["A0"].to_dict() == {0: 0.35}
    assert read["A1"].to_dict() == {0: pytest.approx(0.4 + 0.4 * 0.75)}


def test_each_seed_has_a_loss_of_its_own():
    records = lines(
        A0_s0=[(6, 0.0), (5, 1.0), (4, 2.0)],
        A1_s0=[(6, 0.0), (5, 1.0), (4.5, 1.5)],
        A0_s1=[(6, 0.0), (5, 1.0), (4.2, 5.0)],
        A1_s1=[(6, 0.0), (5, 1.0), (3.2, 1.9)],
    )
    read = at_equal_loss(records, "nano", ("A0", "A1"), "x")
    assert read["A0"].to_dict() == {0: pytest.approx(1.5), 1: 5.0}
    assert read["A1"].to_dict() == {0: 1.5, 1: pytest.approx(1 + 0.9 * 0.8 / 1.8)}


def test_a_loss_that_went_up_again_is_read_all_the_same():
    records = lines(A0_s0=[(5, 1.0), (4.5, 2.0), (4.7, 1.8)], A1_s0=[(5, 1.0), (4.4, 3.0), (4.6, 2.9)])
    read = at_equal_loss(records, "nano", ("A0", "A1"), "x")
    assert read["A0"].to_dict() == {0: 1.8}
    assert read["A1"].to_dict() == {0: pytest.approx(2.9 - 1.9 * 0.1 / 0.4)}


def test_a_seed_that_cannot_be_read_in_every_arm_is_left_out():
    records = lines(
        A0_s0=[(4.9, 1.0), (4.8, 2.0), (4.7, 3.0)],  # begins below the loss at which A1 ended
        A1_s0=[(6.0, 1.0), (5.5, 2.0), (5.0, 3.0)],
        A0_s1=[(6.0, 1.0), (5.0, 2.0)],  # has no twin
        A0_s2=[(6.0, 1.0), (5.0, 2.0)],
        A1_s2=[(6.0, 1.0), (5.0, None)],  # was not measured at its end
    )
    read = at_equal_loss(records, "nano", ("A0", "A1"), "x")
    assert [len(values) for values in read.values()] == [0, 0]
    assert list(read) == ["A0", "A1"]


def test_twins_that_are_one_do_not_differ():
    whole = made_group("nano", ["A0"], 4)
    whole |= {name.replace("A0", "A1"): {**record, "arm": "A1"} for name, record in whole.items()}
    records = made(whole)
    read = at_equal_loss(records, "nano", ("A0", "A1"), "auc_keys")
    assert (read["A1"] - read["A0"]).tolist() == [0, 0, 0, 0]
    assert np.array_equal(records.paired("nano", "A1", "A0", "loss_1x"), np.zeros(4))

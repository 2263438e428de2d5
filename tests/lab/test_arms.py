"""The table of arms: each differs from the others, by name and by what it says."""

from dataclasses import fields, replace

import pytest

from geomprobe.errors import InvalidParameter
from geomprobe.lab.arms import ARMS, IN_WORDS, Arm, find_arm, name_of


def test_ten_arms_that_all_differ():
    assert list(ARMS) == list(IN_WORDS) == [f"A{number}" for number in range(10)]
    assert len(set(ARMS.values())) == len(set(IN_WORDS.values())) == 10


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        ("A0", "A1", "qk_norm"), ("A1", "A2", "qk_norm"), ("A1", "A3", "order"), ("A2", "A4", "order"),
        ("A1", "A5", "axis"), ("A1", "A7", "scale"), ("A6", "A8", "scale"), ("A0", "A9", "scale"),
    ],
)  # fmt: skip
def test_neighbours_differ_in_one_thing(one, other, field):
    a, b = ARMS[one].fields, ARMS[other].fields
    assert [name for name in a if a[name] != b[name]] == [field]


@pytest.mark.parametrize("name", list(ARMS))
def test_an_arm_is_found_in_any_case_and_knows_its_name(name):
    assert find_arm(name) is find_arm(name.lower()) is ARMS[name]
    assert name_of(ARMS[name]) == name_of(Arm(**ARMS[name].fields)) == name


def test_an_arm_of_no_table_goes_by_its_fields():
    assert name_of(Arm(qk_norm="l2", order="after_rope")) == "l2-head-after_rope-rsqrt_d"


def test_fields_are_those_of_the_arm():
    assert list(Arm().fields) == [field.name for field in fields(Arm)]


def test_an_unknown_name_names_them_all():
    with pytest.raises(InvalidParameter, match=r"Unknown arm 'B1'\..* Known: A0, A1, .*, A9\.$"):
        find_arm("B1")


@pytest.mark.parametrize("field", ["qk_norm", "axis", "order", "scale"])
def test_an_unknown_field_is_refused(field):
    with pytest.raises(InvalidParameter, match=rf"^{field} must be one of .*; got 'other'\.$"):
        replace(Arm(), **{field: "other"})


@pytest.mark.parametrize("norm", ["none", "rms", "l2"])
def test_no_norm_over_all_heads_behind_rope(norm):
    with pytest.raises(InvalidParameter, match=r"^order must be 'before_rope' where the axis is 'full'"):
        Arm(qk_norm=norm, axis="full", order="after_rope")

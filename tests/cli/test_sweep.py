"""`geomprobe sweep`: what it prints, what it passes on, how it ends."""

import json
import re

import pandas as pd
import pytest

from geomprobe.cli.app import run as run_app
from geomprobe.cli.sweep import array_of
from geomprobe.errors import InvalidParameter
from geomprobe.evidence import sweep as module
from geomprobe.evidence.plan import read_plan
from geomprobe.evidence.sweep import command_of

# Runs the command in sys.argv and shows on stdout's last line which heavy modules that has loaded.
LOOK = """
import sys
from geomprobe.cli.app import run
code = run()
print("loaded:", *sorted({names} & set(sys.modules)))
sys.exit(code)
"""
PLAN = """
name: p
groups:
  - {name: b, preset: backcopy, arms: [A0, A1], seeds: 2, rates: [1e-3]}
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def plan(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN, encoding="utf-8")
    return file


@pytest.fixture
def done(plan, tmp_path):
    """The folder of a sweep, with one run finished, one under way, one failed and one in which nothing is."""
    jobs = read_plan(plan).jobs
    out = tmp_path / "out"
    notes = [{"recipe": job.recipe.described, "fingerprint": "x"} for job in jobs]
    for job, note in zip(jobs[:3], notes, strict=False):
        (out / job.name / "steps" / "00000128").mkdir(parents=True)
        (out / job.name / "begun.json").write_text(json.dumps(note), encoding="utf-8")
    ended = notes[0] | {"diverged_at": None, "held_out_loss": {"1": 2.25}, "step": 3000, "seconds": 90.0}
    (out / jobs[0].name / "training.json").write_text(json.dumps(ended), encoding="utf-8")
    (out / jobs[2].name / "failed.txt").write_text("planted", encoding="utf-8")
    return out


@pytest.fixture
def said(monkeypatch, capsys):
    """Run `geomprobe …` in this process: (code, stdout, stderr)."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["geomprobe", *map(str, words)])
        return run_app(), *capsys.readouterr()

    return run


@pytest.fixture
def asked(monkeypatch):
    """What reaches the sweep, which does nothing; its table has the states that the test puts in."""
    seen = {"states": ["trained"]}

    def sweep(plan, **options):
        seen.update(plan=plan, options=options)
        rows = {"job": "b-A0-r1e-3-s0", "state": seen["states"], "step": 1, "n_steps": 2}
        return pd.DataFrame({**rows, "held_out_loss": 1.5, "seconds": 60.0})

    monkeypatch.setattr(module, "sweep", sweep)
    return seen


# ---------------------------------------------------------------------- without torch
def test_help_loads_nothing(call):
    done = call("sweep", "--help", code=LOOK.format(names={"torch", "transformers", "pandas", "numpy", "yaml"}))
    assert (done.returncode, done.stderr) == (0, "")
    shown, loaded = done.stdout.rsplit("loaded:", 1)
    assert loaded.split() == []
    assert "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" in shown


def test_a_list_of_what_is_done_without_torch(call, plan, done):
    shown = call("sweep", plan, "--out", done, "--list", code=LOOK.format(names={"torch", "transformers"}))
    assert (shown.returncode, shown.stderr) == (0, "")
    table, loaded = shown.stdout.rsplit("loaded:", 1)
    assert loaded.split() == []
    lines = [" ".join(line.split()) for line in table.strip().splitlines()]
    assert sorted(lines[0].split(", ")) == ["1 failed", "1 trained", "1 training", "1 waiting"]
    assert lines[1:] == [
        "run state held-out loss minutes",
        "b-A0-r1e-3-s0 trained 2.2500 1.5",
        "b-A1-r1e-3-s0 training, step 128 of 2,000 – –",
        "b-A0-r1e-3-s1 failed – –",
        "b-A1-r1e-3-s1 waiting – –",
    ]
    assert not (done / "sweep.csv").exists()


def test_a_part_of_the_list(said, plan, done):
    code, shown, error = said(
        "sweep", plan, "--out", done, "--list", "--only", "*-s0", "--only", "*-A1-*", "--array", "1/2"
    )
    assert (code, error) == (0, "")
    assert re.findall(r"b-A\d-r1e-3-s\d", shown) == ["b-A1-r1e-3-s0"]


# ---------------------------------------------------------------------- what is passed on, and the end
def test_defaults(said, asked, plan, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, shown, error = said("sweep", plan)
    assert (code, error) == (0, "")
    assert shown.splitlines()[-1] == "sweeps/p/sweep.csv"
    assert "1 trained" in shown
    assert asked["plan"] == read_plan(plan)
    assert {name: str(value) for name, value in asked["options"].items()} == {
        "out": "sweeps/p", "jobs": "1", "only": "()", "array": "None", "device": "auto", "quiet": "False",
    }  # fmt: skip


def test_options_reach_the_sweep(said, asked, plan, tmp_path):
    options = ("--jobs", "3", "--only", "b-*", "--array", "1/2", "--device", "cpu", "-q")
    code, shown, _ = said("sweep", plan, "--out", tmp_path / "o", *options)
    assert (code, shown) == (0, f"{tmp_path / 'o' / 'sweep.csv'}\n")
    assert asked["options"] == {
        "out": tmp_path / "o", "jobs": 3, "only": ("b-*",), "array": (1, 2), "device": "cpu", "quiet": True,
    }  # fmt: skip


def test_a_process_of_many_asks_for_the_same(said, asked, plan, tmp_path):
    words = command_of(read_plan(plan), tmp_path / "o", ("b-*", "*-s0"), (0, 2), "cpu")
    assert said(*words[3:])[0] == 0
    assert asked["options"] == {
        "out": tmp_path / "o", "jobs": 1, "only": ("b-*", "*-s0"), "array": (0, 2), "device": "cpu", "quiet": False,
    }  # fmt: skip


def test_a_run_that_failed_is_told_by_the_code(said, asked, plan):
    asked["states"] = ["trained", "failed"]
    code, shown, error = said("sweep", plan)
    assert (code, error) == (1, "")
    assert "1 trained, 1 failed" in shown
    assert shown.splitlines()[-1] == "sweeps/p/sweep.csv"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nowhere.yaml",), "There is no plan 'nowhere.yaml'; give a YAML file."),
        (("PLAN", "--array", "2/2"), "array must be I/N with I from 0 to N - 1; got '2/2'."),
        (("PLAN", "--array", "1"), "array must be I/N with I from 0 to N - 1; got '1'."),
        (
            ("PLAN", "--list", "--only", "x"),
            "only must fit a run of the plan, as 'b-A0-r1e-3-s0', and may hold * and ?; got 'x'.",
        ),
        (("PLAN", "--jobs", "0"), "jobs must be at least 1; got 0."),
    ],
)
def test_a_mistake_is_one_line(said, plan, words, error):
    code, shown, told = said("sweep", *(plan if word == "PLAN" else word for word in words))
    assert (code, shown, told) == (2, "", f"geomprobe: {error}\n")


@pytest.mark.parametrize(
    ("given", "environment", "part"),
    [
        (None, {}, None),
        ("3/4", {}, (3, 4)),
        (None, {"RANK": "2", "WORLD_SIZE": "8"}, (2, 8)),
        ("0/3", {"RANK": "2", "WORLD_SIZE": "8"}, (0, 3)),
        (None, {"RANK": "2"}, None),
        (None, {"RANK": "x", "WORLD_SIZE": "y"}, None),
    ],
)
def test_parts_are_typed_or_torchruns(given, environment, part):
    assert array_of(given, environment) == part


@pytest.mark.parametrize("given", ["4/4", "a/4", "1", "/", "-1/4", "1/4/2", ""])
def test_parts_that_are_none(given):
    with pytest.raises(InvalidParameter, match=r"array must be I/N with I from 0 to N - 1; got "):
        array_of(given, {})

"""`geomprobe claims`: from run folders to a ledger, without torch; and every way in which it may fail."""

import json
import re

import pandas as pd
import pytest

from geomprobe.cli.app import run as run_app
from geomprobe.ledger.ledger import CLAIMS, EVIDENCE
from geomprobe.ledger.thresholds import thresholds
from tests.ledger.made import edits, made_run, made_trial, written

TURNED = edits(0.01, 0.09)
# Runs the command in sys.argv and shows on stdout's last line which heavy modules that has loaded.
LOOK = """
import sys
from geomprobe.cli.app import run
code = run()
print("loaded:", *sorted({"torch", "transformers"} & set(sys.modules)))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An analysis, edits of the same checkpoint, edits in another dtype, an analysis of another family."""
    root = tmp_path_factory.mktemp("runs")
    run = made_run("org/one", share=0.2, sink=0.5, lift=0.1, part=0.1)
    other = made_run("org/other", share=0.8, family="gpt2")
    made = {
        "one": run,
        "edits": made_trial(run, TURNED),
        "half": made_trial(run, TURNED, dtype="bfloat16"),
        "other": other,
    }
    for name, each in made.items():
        written(each, root / name)
    return root


@pytest.fixture
def claims(monkeypatch, capsys):
    """Run `geomprobe claims …` in this process: (code, stdout, stderr)."""
    monkeypatch.setitem(thresholds()["statistics"], "draws", 400)
    monkeypatch.setitem(thresholds()["statistics"], "permutations", 199)

    def said(*words):
        monkeypatch.setattr("sys.argv", ["geomprobe", "claims", *map(str, words)])
        code = run_app()
        return code, *capsys.readouterr()

    return said


# ------------------------------------------------------------------ a ledger
def test_a_table_of_every_claim_without_torch(call, folders):
    done = call("claims", folders / "one", folders / "edits", code=LOOK)
    assert (done.returncode, done.stderr) == (0, "")
    shown, loaded = done.stdout.rsplit("loaded:", 1)
    assert loaded.split() == []
    assert "org/one" in shown
    for claim in ("C1", "C2", "C2a", "C2b", "C2c", "C3", "C6s", "C7a", "C7c", "C8"):
        assert re.search(rf"\b{claim}\b", shown), claim
    row = next(line for line in shown.splitlines() if line.lstrip("│┃ ").startswith("C1 "))
    assert "refuted" in row
    assert "primary endpoints" in shown
    assert str(thresholds()["dated"]) in shown


def test_edits_join_the_checkpoint_that_they_are_of(claims, folders):
    code, shown, error = claims(folders / "one")
    assert (code, error) == (0, "")
    assert "--edit permute_norm" in " ".join(shown.split())  # what is missing, as it is typed
    _, joined, _ = claims(folders / "edits", folders / "one")
    assert joined.count("which claims hold") == 1
    assert "not known" not in joined
    _, several, _ = claims(folders / "other", folders / "edits", folders / "one")
    assert several.count("which claims hold") == 2
    assert several.index("org/other") < several.index("org/one")


def test_files_are_a_page_two_tables_and_a_picture(claims, folders, tmp_path):
    code, shown, error = claims(folders / "one", folders / "edits", "--out", tmp_path / "a" / "ledger", "--quiet")
    assert (code, error) == (0, "")
    names = [f"org--one.{ending}" for ending in ("md", "claims.csv", "evidence.csv", "png", "svg")]
    assert shown.split() == [str(tmp_path / "a" / "ledger" / name) for name in names]
    assert sorted(file.name for file in (tmp_path / "a" / "ledger").iterdir()) == sorted(names)
    folder = tmp_path / "a" / "ledger"
    table = pd.read_csv(folder / "org--one.claims.csv")
    assert tuple(table.columns) == CLAIMS
    assert table.set_index("claim").loc["C1", "verdict"] == "refuted"
    evidence = pd.read_csv(folder / "org--one.evidence.csv", keep_default_na=False)
    assert tuple(evidence.columns) == EVIDENCE
    assert (folder / "org--one.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "org--one.svg").read_text(encoding="utf-8")


def test_the_same_runs_give_the_same_files(claims, folders, tmp_path):
    for name in ("one", "two"):
        assert claims(folders / "one", folders / "edits", "--out", tmp_path / name, "-q")[0] == 0
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_two_reports_of_one_name_do_not_overwrite_each_other(claims, folders, tmp_path):
    again = written(made_run("org/one", share=0.2, seed=5), tmp_path / "again").path
    claims(folders / "one", again, "--out", tmp_path / "out", "-q")
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"org--one.md", "org--one-2.md", "org--one.svg", "org--one-2.svg"} <= names
    one, two = ((tmp_path / "out" / f"org--one{end}.evidence.csv").read_text() for end in ("", "-2"))
    assert one != two


def test_families_are_counted_where_asked_for(claims, folders, tmp_path):
    code, shown, _ = claims(folders / "one", folders / "other", "--family", "--out", tmp_path)
    assert code == 0
    assert "Signs over families" in shown
    page = (tmp_path / "family.md").read_text(encoding="utf-8")
    assert "| C1 | norm_share | 2 | 2 | 1 | 1 | 0.5 |" in page
    assert "| | claim | org/one | org/other |" in page
    assert "Signs over families" not in claims(folders / "one", folders / "other")[1]


def test_a_page_says_what_is_behind_each_number(claims, folders, tmp_path):
    claims(folders / "one", folders / "edits", "--out", tmp_path, "-q")
    page = (tmp_path / "org--one.md").read_text(encoding="utf-8")
    evidence = pd.read_csv(tmp_path / "org--one.evidence.csv", keep_default_na=False)
    for name in set(evidence["quantity"]):
        assert f"- `{name}`: " in page, name  # every word is explained
    for rule in set(evidence["rule"]) - {""}:
        assert rule in page
    assert "14 types, 12 documents" in page
    assert "geomprobe analyze --model org/one\ngeomprobe intervene --model org/one" in page
    assert "nan" not in page
    for line in page.splitlines():  # all rows of a table are as wide as its head
        if line.startswith("| ") and "norm_share" in line:
            assert line.count("|") == 10


# ------------------------------------------------------------------ mistakes
def check_is_a_sentence(found, *parts):
    code, shown, error = found
    assert (code, shown) == (2, ""), error
    assert error.startswith("geomprobe: ")
    assert error.count("\n") == 1
    assert error.endswith(".\n")
    for part in parts:
        assert part in error


def test_no_folder(claims, folders, tmp_path):
    check_is_a_sentence(claims(tmp_path / "nowhere"), "There is no folder", "nowhere")
    check_is_a_sentence(claims(folders / "one", tmp_path / "nowhere"), "There is no folder", "nowhere")


def test_an_empty_folder(claims, tmp_path):
    check_is_a_sentence(claims(tmp_path), "is not a finished run")


def test_edits_alone(claims, folders):
    check_is_a_sentence(claims(folders / "edits"), "holds interventions on org/one", "geomprobe analyze")


def test_edits_in_another_dtype_are_of_another_checkpoint(claims, folders, tmp_path):
    check_is_a_sentence(claims(folders / "one", folders / "half", "--out", tmp_path / "out"), "same dtype")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("schema", [0, 2, None])
def test_a_folder_of_another_schema(claims, folders, tmp_path, schema):
    run = written(made_run(), tmp_path / "run")
    (run.path / "run.json").write_text(json.dumps({**run.manifest, "schema": schema}), encoding="utf-8")
    check_is_a_sentence(claims(folders / "one", run.path), f"has schema {schema}", "analyze again")


def test_no_run_at_all_is_a_matter_of_usage(claims):
    code, _, error = claims()
    assert code == 2
    assert "runs" in error.lower()


def test_help_names_what_there_is(claims):
    code, shown, _ = claims("--help")
    assert code == 0
    for word in ("--family", "--out", "--quiet"):
        assert word in shown

"""`geomprobe evidence`: from records to a page, without torch; and every way in which it may fail."""

import pandas as pd
import pytest

from geomprobe.cli.app import run as run_app
from geomprobe.evidence import page as paging
from tests.evidence.made import LIKELY, made_group, written

# Runs the command in sys.argv, its pictures left out, and shows on stdout's last line which heavy modules that loaded.
LOOK = """
import sys
from geomprobe.cli.app import run
from geomprobe.evidence import page
page.save = lambda picture, evidence, file: file.write_bytes(b"png")
code = run()
print("loaded:", *sorted({"torch", "transformers"} & set(sys.modules)))
sys.exit(code)
"""


@pytest.fixture
def runs(tmp_path):
    """Records of two arms."""
    far = {**LIKELY["A1"], "tv": 0.3, "tv_balanced": 0.3}
    return written(made_group("nano", ["A0", "A1"], 3, planted={"A1": far}), tmp_path / "report" / "runs")


@pytest.fixture
def evidence(monkeypatch, capsys):
    """Run `geomprobe evidence …` in this process, pictures left out: (code, stdout, stderr)."""
    monkeypatch.setattr(paging, "save", lambda _picture, _evidence, file: file.write_bytes(b"png"))

    def said(*words):
        monkeypatch.setattr("sys.argv", ["geomprobe", "evidence", *map(str, words)])
        code = run_app()
        return code, *capsys.readouterr()

    return said


def test_a_page_beside_the_records_without_torch(call, runs):
    done = call("evidence", runs, code=LOOK)
    assert (done.returncode, done.stderr) == (0, "")
    shown, loaded = done.stdout.rsplit("loaded:", 1)
    assert loaded.split() == []
    lines = shown.rstrip().splitlines()
    assert lines[-1] == str(runs.parent / "README.md")
    row = next(line for line in lines if line.startswith("│C3 "))
    assert "refuted" in row
    names = {"README.md", "evidence.html", "decisions.csv", "contrasts.csv", "numbers.csv", "figures", "runs"}
    assert {file.name for file in runs.parent.iterdir()} == names


def test_the_folder_may_be_named(evidence, runs, tmp_path):
    code, shown, error = evidence(runs, "--out", tmp_path / "a" / "page", "--quiet")
    assert (code, error) == (0, "")
    assert shown == f"{tmp_path / 'a' / 'page' / 'README.md'}\n"
    claims = pd.read_csv(tmp_path / "a" / "page" / "decisions.csv")
    assert len(claims) == 8
    assert not (runs.parent / "README.md").exists()


def test_a_folder_may_be_named_from_inside(evidence, runs, monkeypatch):
    monkeypatch.chdir(runs)
    code, shown, _ = evidence(".", "-q")
    assert code == 0
    assert shown == f"{runs.parent / 'README.md'}\n"


# ------------------------------------------------------------------ mistakes
def check_is_a_sentence(found, *parts):
    code, shown, error = found
    assert (code, shown) == (2, ""), error
    assert error.startswith("geomprobe: ")
    assert error.count("\n") == 1
    assert error.endswith(".\n")
    for part in parts:
        assert part in error


def test_no_records(evidence, tmp_path):
    check_is_a_sentence(evidence(tmp_path), "holds no records", "geomprobe sweep")
    check_is_a_sentence(evidence(tmp_path / "nowhere"), "holds no records")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_record(evidence, runs):
    (runs / "nano-A1-s1.json").write_text("{", encoding="utf-8")
    check_is_a_sentence(evidence(runs), "nano-A1-s1.json", "is not valid JSON", "measure that run again")
    assert [file.name for file in runs.parent.iterdir()] == ["runs"]


def test_a_file_in_the_way(evidence, runs, tmp_path):
    (tmp_path / "taken").write_text("", encoding="utf-8")
    check_is_a_sentence(evidence(runs, "--out", tmp_path / "taken"), "is a file")


def test_no_folder_at_all_is_a_matter_of_usage(evidence):
    code, _, error = evidence()
    assert code == 2
    assert "records" in error.lower()


def test_help_names_what_there_is(evidence):
    code, shown, _ = evidence("--help")
    assert code == 0
    for word in ("--out", "--quiet", "README.md"):
        assert word in shown

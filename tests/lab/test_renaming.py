"""Pseudo-rare words: how many occurrences lose their token, which words are taken, and that it can be undone."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from geomprobe.corpus.function_words import function_words
from geomprobe.errors import CorpusError
from geomprobe.lab.renaming import AT_LEAST, HALF, RARE_DECILE, Renamed, rename
from geomprobe.lab.text import TextPlan, prepare_text
from tests.lab.made_text import source

N_RENAMED = 6
VOCABULARY = 900  # most of the made-up words are whole tokens
MADE = {"n": 20, "paragraphs": 12, "n_words": 400}
BOUND = 4  # standard deviations


def silent(_sentence):
    """Is told the long steps."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The same text with renamed words and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOMPROBE_CACHE", str(tmp_path_factory.mktemp("cache")))
        text = source(**MADE)
        renamed = prepare_text(text, TextPlan(VOCABULARY + N_RENAMED, N_RENAMED), say=silent)
        return renamed, prepare_text(text, TextPlan(VOCABULARY), say=silent)


@pytest.fixture(scope="module")
def counts(pair):
    """How often each token stands in the training text before any is renamed."""
    return np.bincount(pair[1].train, minlength=VOCABULARY)


@pytest.fixture(scope="module")
def rare(pair, counts):
    """The median count of the rarest decile of whole words, from the tokenizer's file alone."""
    vocabulary = json.loads((pair[1].tokenizer / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    seen = []
    for token, index in vocabulary.items():
        letters = token.removeprefix("Ġ")
        whole = (
            token != letters and len(letters) >= 3 and all(x.lower() in "abcdefghijklmnopqrstuvwxyz" for x in letters)
        )
        if whole and counts[index] > 0:
            seen.append(int(counts[index]))
    seen.sort()
    return float(np.median(seen[: int(len(seen) * RARE_DECILE)]))


def test_the_new_ids_are_behind_the_vocabulary(pair):
    renamed, plain = pair
    assert [word.new_id for word in renamed.renamed] == list(range(VOCABULARY, VOCABULARY + N_RENAMED))
    assert len(AutoTokenizer.from_pretrained(plain.tokenizer)) == VOCABULARY
    assert len(AutoTokenizer.from_pretrained(renamed.tokenizer)) == VOCABULARY + N_RENAMED
    for stream in (renamed.train, renamed.held_out):
        assert set(range(VOCABULARY, VOCABULARY + N_RENAMED)) >= set(np.unique(stream[stream >= VOCABULARY]).tolist())


def test_giving_the_parents_back_gives_the_text_back(pair):
    renamed, plain = pair
    parent = {word.new_id: word.parent_id for word in renamed.renamed}
    for name in ("train", "held_out"):
        changed, whole = getattr(renamed, name), getattr(plain, name)
        undone = changed.copy()
        for new_id, parent_id in parent.items():
            undone[changed == new_id] = parent_id
        assert np.array_equal(undone, whole)
        assert set(whole[changed != whole].tolist()) <= set(parent.values())
        assert (changed != whole).any()


def test_every_second_word_loses_a_half(pair, counts):
    halved = [word for word in pair[0].renamed if not word.rare]
    assert len(halved) == N_RENAMED // 2
    for word in halved:
        n, lost = counts[word.parent_id], int((pair[0].train == word.new_id).sum())
        assert word.share == HALF
        assert abs(lost - n * HALF) <= BOUND * (n * HALF * (1 - HALF)) ** 0.5


def test_every_other_word_loses_as_many_as_a_rare_word_has(pair, counts, rare):
    rares = [word for word in pair[0].renamed if word.rare]
    assert len(rares) == N_RENAMED // 2
    for word in rares:
        n, lost = counts[word.parent_id], int((pair[0].train == word.new_id).sum())
        assert n >= AT_LEAST * rare
        assert word.share == pytest.approx(rare / n)
        assert abs(lost - rare) <= BOUND * (rare * (1 - rare / n)) ** 0.5
        assert 0 < lost < n / 4


def test_held_out_occurrences_are_renamed_at_the_same_share(pair):
    renamed, plain = pair
    for word in renamed.renamed:
        n, lost = int((plain.held_out == word.parent_id).sum()), int((renamed.held_out == word.new_id).sum())
        assert n > 0
        assert abs(lost - n * word.share) <= BOUND * (n * word.share * (1 - word.share)) ** 0.5


def test_the_words_are_spread_over_the_ranks_of_those_frequent_enough(pair, counts, rare):
    own = Tokenizer.from_file(str(pair[1].tokenizer / "tokenizer.json"))
    taken = pair[0].renamed
    assert [word.parent for word in taken] == [own.id_to_token(word.parent_id).removeprefix("Ġ") for word in taken]
    assert len({word.parent_id for word in taken}) == N_RENAMED
    often = [int(counts[word.parent_id]) for word in taken]
    assert often == sorted(often, reverse=True)
    fitting = sorted(
        (
            int(counts[index])
            for token, index in own.get_vocab().items()
            if len(token) > 3 and token[0] == "Ġ" and token[1:].isalpha() and token[1:].islower() and counts[index] > 0
            if token[1:] not in function_words("en") and counts[index] >= AT_LEAST * rare
        ),
        reverse=True,
    )
    assert often[0] == fitting[0]
    assert often[-1] == fitting[-1]
    places = [(fitting.index(n) + len(fitting) - 1 - fitting[::-1].index(n)) / 2 for n in often]
    assert np.abs(np.diff(places) - (len(fitting) - 1) / (N_RENAMED - 1)).max() < 2


def test_a_renamed_word_is_read_as_its_parent_with_a_tilde(pair):
    tokenizer = AutoTokenizer.from_pretrained(pair[0].tokenizer)
    for word in pair[0].renamed:
        assert word.written == f" {word.parent}~"
        at = int(np.flatnonzero(pair[0].train == word.new_id)[0])
        text = tokenizer.decode(pair[0].train[at - 3 : at + 4].tolist())
        assert word.written in text
        assert text.replace("~", "") == tokenizer.decode(pair[1].train[at - 3 : at + 4].tolist())


def test_it_is_the_same_each_time(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMPROBE_CACHE", str(tmp_path))
    plan = TextPlan(VOCABULARY + N_RENAMED, N_RENAMED)
    again = prepare_text(source(**MADE), plan, say=silent)
    assert again.folder != pair[0].folder
    assert again.renamed == pair[0].renamed
    assert again.sha256 == pair[0].sha256 != pair[1].sha256


def test_which_occurrences_go_does_not_rest_on_their_place(pair):
    for word in pair[0].renamed:
        if word.rare:
            continue
        at = np.flatnonzero(pair[1].train == word.parent_id)
        gone = pair[0].train[at] == word.new_id
        halves = gone[: len(gone) // 2], gone[len(gone) // 2 :]
        assert abs(halves[0].mean() - halves[1].mean()) <= BOUND * (1 / len(gone)) ** 0.5


def test_too_few_frequent_words(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMPROBE_CACHE", str(tmp_path))
    with pytest.raises(
        CorpusError, match=r"Only \d+ words are frequent enough to be renamed in part, 100 are asked for"
    ):
        prepare_text(source(20), TextPlan(500, 100), say=silent)
    assert list((tmp_path / "lab").iterdir()) == []


class Vocabulary:
    """A tokenizer of whole words, the end of a document first."""

    def __init__(self, *tokens):
        self.tokens = ("<|end|>", *tokens)

    def get_vocab(self):
        return {token: index for index, token in enumerate(self.tokens)}

    def get_vocab_size(self):
        return len(self.tokens)


def test_a_case_by_hand():
    # The rarest decile of eleven words is the rarest alone, which stands twice: what stands 40 times at least fits, but
    # for a function word, a capital, a number, two letters, and what begins no word.
    counted = {
        "Ġharbour": 60,
        "Ġthe": 900,
        "Ġlamp": 50,
        "ing": 70,
        "ĠMary": 80,
        "Ġox": 45,
        "Ġ1234": 90,
        "Ġwindow": 40,
        "Ġroof": 39,
        "Ġoxen": 3,
        "Ġrare": 2,
        **{f"Ġcommon{letter}": 30 for letter in "abcd"},
        "Ġnever": 0,
    }
    stream = np.repeat(np.arange(1, len(counted) + 1), list(counted.values())).astype(np.uint16)
    stream = np.random.default_rng(0).permutation(stream)
    stream = np.stack((stream, np.zeros_like(stream)), axis=1).ravel()  # each behind an end, so none within a word
    streams = {"train": stream.copy(), "held_out": stream[:100].copy()}
    found = rename(streams, Vocabulary(*counted), 3)
    first = len(counted) + 1
    assert found == (
        Renamed("harbour", 1, first, " harbour~", 0.5, rare=False),
        Renamed("lamp", 3, first + 1, " lamp~", 2 / 50, rare=True),
        Renamed("window", 8, first + 2, " window~", 0.5, rare=False),
    )
    with pytest.raises(CorpusError, match=r"Only 3 words are frequent enough to be renamed in part, 4 are asked for"):
        rename({"train": stream}, Vocabulary(*counted), 4)


def test_the_beginning_of_a_longer_word_is_no_word():
    # "dist" is never a word; "plan" is one 40 times, and the beginning of "planing" as often.
    counted = {"Ġdist": 0, "ing": 0, "Ġplan": 0, ".": 0, "Ġrare": 0}
    one, two, three = ([1, 2], 200), ([3, 2], 40), ([3, 4], 40)
    written = [pair for pair, n in (one, two, three) for _ in range(n)] + [[5, 4], [5, 4]]
    stream = np.random.default_rng(0).permutation(np.array(written)).ravel().astype(np.uint16)
    streams = {"train": stream.copy(), "held_out": stream.copy()}
    (word,) = rename(streams, Vocabulary(*counted), 1)
    assert (word.parent, word.share) == ("plan", 0.5)
    at = np.flatnonzero(streams["train"] == word.new_id)
    assert 8 <= len(at) <= 32
    assert set(stream[at + 1].tolist()) == {4}
    with pytest.raises(CorpusError, match="Only 1 words are frequent enough"):
        rename({"train": stream}, Vocabulary(*counted), 2)

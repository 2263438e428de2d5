"""Words in context: equally many places of each chosen type in a text, found by words and not by token ids.

The places depend on the text alone, so that models with other tokenizers are asked about the same ones; a type that is
no single token of a model is left out there.
"""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geomprobe.corpus.classes import spans
from geomprobe.corpus.rarity import zipf
from geomprobe.corpus.sources import Source
from geomprobe.corpus.tokenizing import BosChoice, bos_of
from geomprobe.errors import CorpusError, at_least

Ints = npt.NDArray[np.int64]

CONTEXT: Final = 64  # tokens of a window, the word at its end included
LEAST_BEFORE: Final = 16  # tokens before the word
CLUSTER_CONTEXTS: Final = 8  # of each type that has a category
CONTRAST_CONTEXTS: Final = 16  # of each type of the frequency contrasts
MAX_TYPES: Final = 400
CATEGORY_WORDS: Final = 8  # of a category, before the next one is taken, where max_types is small
BANDS: Final = 10
NO_BAND: Final = -1
BAG_WIDTH: Final = 256  # channels of the random vectors in `Contexts.bags`
CAPITAL_NOUNS: Final = ("de",)  # where a capital says noun and not name
_CHARACTERS_A_TOKEN: Final = 12  # enough text for a window: far more than a token covers
_MARKS: Final = "".join(char for char in map(chr, range(0x20000)) if unicodedata.category(char)[0] == "M")
# A word between one blank and no letter, digit, apostrophe or hyphen, not at the head of a line: there it is one token
# or it is none, whatever else the tokenizer does.
_WORD = re.compile(rf"(?<=\S )[^\W\d_](?:[^\W\d_]|[{_MARKS}])*(?![\w'’\-{_MARKS}])")

_ANY_WORD = re.compile(r"\w+")


@dataclass(frozen=True, eq=False)
class WordIndex:
    """Every word of a text that has enough text before it.

    Attributes
    ----------
    forms : tuple of str
        As they stand, case kept.
    counts : ndarray (form,), int64
    document, start : ndarray (occurrence,), int64
        Sorted by form, then by place.
    first : ndarray (form + 1,), int64
        Where the occurrences of a form begin.
    """

    forms: tuple[str, ...]
    counts: Ints
    document: Ints
    start: Ints
    first: Ints

    def places(self, form: int) -> slice:
        """The occurrences of a form."""
        return slice(int(self.first[form]), int(self.first[form + 1]))


@dataclass(frozen=True)
class WordType:
    """A type that is looked at in context.

    Attributes
    ----------
    word : str
    category : str
        Empty without one.
    zipf : float
    count : int
        Occurrences in the text that could be taken.
    band : int
        Decile of the count among all words of the text with enough contexts, 0 the rarest; −1 where it is in no
        frequency contrast.
    """

    word: str
    category: str
    zipf: float
    count: int
    band: int

    @property
    def n_contexts(self) -> int:
        """How many of its contexts are looked at."""
        return CLUSTER_CONTEXTS if self.band == NO_BAND else CONTRAST_CONTEXTS


@dataclass(frozen=True, eq=False)
class Contexts:
    """The windows that a model reads, each with a chosen word as its last token.

    Attributes
    ----------
    types : tuple of WordType
    type_index : ndarray (context,), int64
        Contexts of a type follow one another.
    document, start : ndarray (context,), int64
        The word's document in the source, and its first character there.
    ids : ndarray (context, token), int64
        Token ids, a BOS in front where the tokenizer puts one.
    document_names : tuple of str
    left_out : dict from reason to int
        Words that were not taken: of a category and too rare, often enough but with a word of their category before
        them, no single token, not known to wordfreq, capitalised.
    """

    types: tuple[WordType, ...]
    type_index: Ints
    document: Ints
    start: Ints
    ids: Ints
    document_names: tuple[str, ...]
    left_out: dict[str, int]

    @property
    def n_contexts(self) -> int:
        """How many windows there are."""
        return len(self.ids)

    def rows(self, chosen: Sequence[int], n: int) -> Ints:
        """The first n contexts of some types: (type, context)."""
        first = np.searchsorted(self.type_index, np.asarray(chosen))
        return first[:, None] + np.arange(n)

    def bags(self, chosen: Sequence[int], n: int) -> npt.NDArray[np.float32]:
        """What the contexts tell without the word: the mean of a random vector for every token before it.

        A model with random weights that mixes tokens evenly makes just this of a context; what a trained one knows is
        what lies above it.

        Parameters
        ----------
        chosen, n
            As in `rows`.

        Returns
        -------
        ndarray (type, context, BAG_WIDTH), float32
        """
        rows = self.rows(chosen, n)
        tokens, at = np.unique(self.ids[rows.ravel(), :-1], return_inverse=True)
        drawn = np.random.default_rng(0).standard_normal((len(tokens), BAG_WIDTH), dtype=np.float32)
        at = at.reshape(rows.size, -1)
        mean = np.stack([drawn[context].mean(axis=0) for context in at])
        return mean.reshape(*rows.shape, BAG_WIDTH)

    @property
    def labelled(self) -> list[int]:
        """The types that have a category."""
        return [index for index, kind in enumerate(self.types) if kind.category]

    @property
    def contrasted(self) -> list[int]:
        """The types of the frequency contrasts."""
        return [index for index, kind in enumerate(self.types) if kind.band != NO_BAND]


def index_words(source: Source, context: int = CONTEXT) -> WordIndex:
    """Find every word of a source that has text enough before it."""
    lead = context * _CHARACTERS_A_TOKEN  # no tokenizer has too few tokens there, so that all have the same places
    number: dict[str, int] = {}
    forms, documents, starts = [], [], []
    for document_index, document in enumerate(source.documents):
        for match in _WORD.finditer(document.text, lead):
            forms.append(number.setdefault(match.group(), len(number)))
            documents.append(document_index)
            starts.append(match.start())
    form = np.array(forms, dtype=np.int64)
    order = np.argsort(form, kind="stable")
    counts = np.bincount(form, minlength=len(number))
    return WordIndex(
        forms=tuple(number),
        counts=counts,
        document=np.array(documents, dtype=np.int64)[order],
        start=np.array(starts, dtype=np.int64)[order],
        first=np.concatenate([[0], np.cumsum(counts)]),
    )


@dataclass(frozen=True, kw_only=True)
class ContextPlan:
    """Which words are looked at, and how.

    Attributes
    ----------
    categories : mapping from category to words
        Empty where clusters are not asked for.
    contrasts : bool
        Whether words of all frequencies are looked at.
    language : str
        For Zipf frequencies.
    context : int
        Tokens of a window, at least 17.
    max_types : int
        Of the frequency contrasts, and of the categories.
    seed : int
        Of the draw of words and places.
    bos : 'default', 'always' or 'never'
    """

    categories: Mapping[str, tuple[str, ...]]
    contrasts: bool = True
    language: str = "en"
    context: int = CONTEXT
    max_types: int = MAX_TYPES
    seed: int = 0
    bos: BosChoice = "default"

    def __post_init__(self) -> None:
        at_least("context", self.context, LEAST_BEFORE + 1)
        at_least("max_types", self.max_types, BANDS)


def find_contexts(source: Source, tokenizer: Any, plan: ContextPlan) -> Contexts:
    """Choose types and places, and cut the windows.

    Parameters
    ----------
    source : Source
    tokenizer : transformers tokenizer
        A fast one.
    plan : ContextPlan

    Returns
    -------
    Contexts
        Of each category's words that occur often enough, and, where the text has enough words, of as many words of
        each decile of frequency.

    Raises
    ------
    CorpusError
        Where the text has no word often enough.
    """
    return _Search(source, tokenizer, plan).run()


class _Search:
    """The work of `find_contexts`."""

    def __init__(self, source: Source, tokenizer: Any, plan: ContextPlan) -> None:
        self.source, self.tokenizer, self.plan = source, tokenizer, plan
        self.bos = bos_of(tokenizer, plan.bos)
        self.index = index_words(source, plan.context)
        self.number = {form: index for index, form in enumerate(self.index.forms)}
        self.windows: dict[str, list[tuple[int, int, Ints]]] = {}  # by word: document, start, ids
        self.left_out = dict.fromkeys(("too_rare", "beside_mates", "no_single_token", "unknown_word", "capitalised"), 0)
        self.refused: dict[str, str] = {}  # words that were tried and not taken, with the reason
        self.mates = {
            word: {other.lower() for other in words} - {word.lower()}
            for words in plan.categories.values()
            for word in words
        }

    def run(self) -> Contexts:
        chosen = {kind.word: kind for kind in self._contrasts()} if self.plan.contrasts else {}
        for kind in self._categories():
            old = chosen.get(kind.word)
            chosen[kind.word] = (
                kind if old is None else WordType(kind.word, kind.category, old.zipf, old.count, old.band)
            )
        if not chosen:
            raise CorpusError(
                f"The text {self.source.name!r} has no word that occurs {CLUSTER_CONTEXTS} times with "
                f"{self.plan.context} tokens before it; give more text with --text, or leave clusters and neighbours "
                "out with --probes."
            )
        kinds = sorted(chosen.values(), key=lambda kind: (kind.category, kind.band, kind.word))
        taken = [
            (index, *window)
            for index, kind in enumerate(kinds)
            for window in self.windows[kind.word][: kind.n_contexts]
        ]
        return Contexts(
            types=tuple(kinds),
            type_index=np.array([index for index, *_ in taken], dtype=np.int64),
            document=np.array([document for _, document, _, _ in taken], dtype=np.int64),
            start=np.array([start for *_, start, _ in taken], dtype=np.int64),
            ids=np.stack([ids for *_, ids in taken]),
            document_names=tuple(document.name for document in self.source.documents),
            left_out=self.left_out | dict(Counter(self.refused.values())),
        )

    def _categories(self) -> Iterator[WordType]:
        """The words of the categories that occur often enough, at most max_types, as many of each as can be."""
        most = max(CATEGORY_WORDS, self.plan.max_types // max(1, len(self.plan.categories)))
        left = self.plan.max_types
        for category, words in self.plan.categories.items():
            known = zipf(words, self.plan.language)
            found = 0
            for word, frequency in zip(words, known, strict=True):
                if found < most and left and self._take(word, CLUSTER_CONTEXTS):
                    found, left = found + 1, left - 1
                    yield WordType(word, category, float(frequency), self._count(word), NO_BAND)

    def _contrasts(self) -> Iterator[WordType]:
        """As many words of each decile of frequency as can be, drawn in an order that the seed alone decides."""
        eligible = self._eligible()
        counts = np.array([self.index.counts[form] for form, _ in eligible])
        order = np.argsort(counts, kind="stable")
        a_band = self.plan.max_types // BANDS
        for band, members in enumerate(np.array_split(order, BANDS)):
            by_draw = sorted(members.tolist(), key=lambda at: self._draw(self.index.forms[eligible[at][0]]))
            found = 0
            for at in by_draw:
                form, frequency = eligible[at]
                word = self.index.forms[form]
                if found < a_band and self._take(word, CONTRAST_CONTEXTS):
                    found += 1
                    yield WordType(word, "", frequency, int(self.index.counts[form]), band)

    def _eligible(self) -> list[tuple[int, float]]:
        """The forms of the text that may be contrasted, with their Zipf frequency."""
        often = np.flatnonzero(self.index.counts >= CONTRAST_CONTEXTS)
        plain = [form for form in often if self._plain(self.index.forms[form])]
        self.left_out["capitalised"] = len(often) - len(plain)
        known = zipf((self.index.forms[form] for form in plain), self.plan.language)
        self.left_out["unknown_word"] = int(np.isnan(known).sum())
        return [(int(form), float(value)) for form, value in zip(plain, known, strict=True) if not np.isnan(value)]

    def _plain(self, word: str) -> bool:
        return word == word.lower() or self.plan.language in CAPITAL_NOUNS

    def _draw(self, word: str) -> int:
        return zlib.crc32(f"{self.plan.seed} {word}".encode())

    def _count(self, word: str) -> int:
        return int(self.index.counts[self.number[word]]) if word in self.number else 0

    def _take(self, word: str, n: int) -> bool:
        """Whether a word has n windows; they are kept, and so is the reason why it has not."""
        if len(self.windows.get(word, [])) < n:
            if self._count(word) >= n and not self._is_token(word):
                self.refused[word] = "no_single_token"
                return False
            self.windows[word], beside = self._cut(word, n) if self._count(word) >= n else ([], 0)
            if len(self.windows[word]) < n:
                self.refused[word] = "beside_mates" if len(self.windows[word]) + beside >= n else "too_rare"
                return False
        self.refused.pop(word, None)
        return True

    def _is_token(self, word: str) -> bool:
        return self._window(f"the {word}", word, 2) is not None

    def _cut(self, word: str, n: int) -> tuple[list[tuple[int, int, Ints]], int]:
        """The first n windows of a word, its places in an order drawn for it, and how many places had a mate."""
        places = self.index.places(self.number[word])
        drawn = np.random.default_rng([self.plan.seed, zlib.crc32(word.encode())]).permutation(
            np.arange(places.start, places.stop)
        )
        found: list[tuple[int, int, Ints]] = []
        beside = 0
        for at in drawn:
            document, start = int(self.index.document[at]), int(self.index.start[at])
            head = max(0, start - self.plan.context * _CHARACTERS_A_TOKEN)
            text = self.source.documents[document].text[head : start + len(word)]
            if self._has_mate(text, word):
                beside += 1
                continue
            ids = self._window(text, word, self.plan.context - (self.bos is not None))
            if ids is not None:
                found.append((document, start, ids if self.bos is None else np.concatenate([[self.bos], ids])))
            if len(found) == n:
                break
        return found, beside

    def _has_mate(self, text: str, word: str) -> bool:
        """Whether another word of its category stands among the words before it, as many as a window has tokens.

        "Gold and silver": such a context tells what is of a kind before any weight does. Counted in words, so that all
        models are asked about the same places.
        """
        mates = self.mates.get(word)
        if not mates:
            return False
        before = _ANY_WORD.findall(text.lower())[-self.plan.context : -1]
        return not mates.isdisjoint(before)

    def _window(self, text: str, word: str, n: int) -> Ints | None:
        """The last n tokens of a text that ends in a word; None where there are fewer, or the word is several."""
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ids = encoded["input_ids"]
        if len(ids) < n:
            return None
        start, end = spans(text, encoded["offset_mapping"])[-1]
        return np.array(ids[-n:], dtype=np.int64) if text[start:end].strip() == word else None

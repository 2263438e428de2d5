"""Which class a token has, read from the text that it covers and never from a tokenizer's marks."""

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from geomprobe.corpus.function_words import function_words
from geomprobe.labels import CLASS_INDEX

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
APOSTROPHES = "'’"
SEPARATORS = ",."  # inside a number


@dataclass(frozen=True, eq=False)
class _Characters:
    """What stands at each of the n characters of a text.

    All masks are (n + 1,), the last entry False, so that the place after the end can be asked.
    """

    blank: Mask
    line_break: Mask
    punctuation: Mask
    letter: Mask  # letters, with the marks that sit on them
    number: Mask
    separator: Mask
    word: Mask  # letters and numbers, and an apostrophe between one of them and a letter that ends no elided word
    elision: Mask  # an apostrophe before a letter that ends an elided word


def classify(
    text: str,
    ids: npt.ArrayLike,
    offsets: npt.ArrayLike,
    *,
    special_ids: Collection[int],
    language: str = "en",
) -> Ints:
    """Give each token of a whole document its class (`first` apart: windows assign it).

    The first that applies: `special` by id · `newline` only white space, with a line break in it · `punctuation` only
    Unicode P*, white space aside · `number` digits (Unicode N*) with `,` and `.` among them, white space aside ·
    `subword` a piece that holds a letter and does not start a word, or whose word goes on behind it · a closed class ·
    `content` every other whole word · `other` the rest: blanks, symbols, emoji, digits with symbols ("10%"), several
    words in one token.

    A piece starts a word when it begins, white space aside, with a letter or digit and the character before that is not
    in a word; the word goes on when the piece ends inside a word and the next character is in it too. In a word are
    letters with their combining marks, digits, and an apostrophe, straight or curly, between one of these and a letter.
    So "don" + "'t", "don" + "'" + "t" and "John" + "'s" are pieces of one word (the lone "'" is punctuation, which
    comes first), the same in every tokenizer; a hyphen or a dot parts words ("co-operate", "U.S" are two). A character
    cut into several tokens (byte-level pieces) continues in all but the first. Words with a symbol or punctuation in
    front in the same token ("(the") are no words but pieces: `subword`.

    Elided words end with their apostrophe: those that the list has so (French "l'", "qu'"; English has none), at the
    start of what would be a word. "l'homme" is two words, "aujourd'hui" and "quelqu'un" are one. A token "l" before
    the apostrophe is looked up as "l'", a token "'homme" as "homme", and a token with two words ("l'homme") is `other`.

    Parameters
    ----------
    text : str
        The document, n_characters long.
    ids : array-like, (n_tokens,) int
    offsets : array-like, (n_tokens, 2) int
        Characters where a token starts and ends, with or without the blanks before it.
    special_ids : collection of int
        The tokenizer's special tokens.
    language : str
        Whose function words are looked up, in lower case.

    Returns
    -------
    ndarray, (n_tokens,) int64
        Indices into `labels.TOKEN_CLASSES`.

    Raises
    ------
    InvalidParameter
        Where the language has no function words.
    """
    closed = function_words(language)
    ids = np.asarray(ids, dtype=np.int64)  # (n_tokens,)
    span = spans(text, offsets)  # (n_tokens, 2)
    chars = _characters(text, _elided(language))
    start, end = span[:, 0], span[:, 1]
    begin, stop = _trimmed(chars.blank, span)  # without the blanks at both ends; nothing is left of a blank token
    begin = begin + (chars.elision[begin] & (begin + 1 < stop))  # "'homme": the apostrophe is of the word before

    def count(mask: Mask) -> Ints:
        before = np.concatenate([[0], np.cumsum(mask[:-1])])  # (n_characters + 1,)
        return before[stop] - before[begin]  # (n_tokens,)

    empty = stop == begin
    solid = stop - begin - count(chars.blank)  # characters that are no blanks
    numbers, letters = count(chars.number), count(chars.letter)
    breaks = np.concatenate([[0], np.cumsum(chars.line_break[:-1])])
    shared = np.zeros(len(ids), dtype=bool)  # begins in a character that the token before has begun
    shared[1:] = start[1:] < np.maximum.accumulate(end)[:-1]
    starts = chars.word[begin] & ~_before(chars.word, begin) & ~shared
    goes_on = _before(chars.word, end) & chars.word[end]
    goes_on[:-1] |= shared[1:]
    one_word = (count(chars.blank) == 0) & (count(chars.elision) == _before(chars.elision, stop))

    rules = (  # the first that applies
        ("special", np.isin(ids, list(special_ids))),
        ("newline", empty & (breaks[end] > breaks[start])),
        ("punctuation", ~empty & (count(chars.punctuation) == solid)),
        ("number", (numbers > 0) & (numbers + count(chars.separator) == solid)),
        ("subword", (letters > 0) & (~starts | goes_on)),
        ("content", (letters > 0) & one_word),
    )
    classes = np.select(
        [mask for _, mask in rules], [CLASS_INDEX[name] for name, _ in rules], default=CLASS_INDEX["other"]
    ).astype(np.int64)  # (n_tokens,)
    for index in np.flatnonzero(classes == CLASS_INDEX["content"]):
        classes[index] = _word_class(text[begin[index] : stop[index]], text[stop[index] : stop[index] + 1], closed)
    return classes


def spans(text: str, offsets: npt.ArrayLike) -> Ints:
    """The characters that each token covers, the blanks between it and the token before included.

    Tokenizers differ in whether a token's offsets hold the blanks in front of it, and some give a blank token no
    character at all; here each token has them. Other characters that no token covers stay uncovered.

    Parameters
    ----------
    text : str
        n_characters long.
    offsets : array-like, (n_tokens, 2) int
        Start and end of each token, in characters.

    Returns
    -------
    ndarray, (n_tokens, 2) int64
    """
    span = np.array(offsets, dtype=np.int64).reshape(-1, 2)  # (n_tokens, 2), a copy
    if not len(span):
        return span
    blank = np.concatenate([[0], np.cumsum([char.isspace() for char in text], dtype=np.int64)])  # (n_characters + 1,)
    reached = np.concatenate([[0], np.maximum.accumulate(span[:, 1])[:-1]])  # (n_tokens,)
    gap = span[:, 0] - reached
    only_blanks = (gap > 0) & (blank[span[:, 0]] - blank[np.minimum(reached, span[:, 0])] == gap)
    span[only_blanks, 0] = reached[only_blanks]
    return span


def _word_class(word: str, following: str, closed: Mapping[str, str]) -> int:
    form = word.lower().replace("’", "'")
    elided = closed.get(form + "'") if following and following in APOSTROPHES else None  # "l" before an apostrophe
    return CLASS_INDEX[elided or closed.get(form, "content")]


@lru_cache
def _elided(language: str) -> re.Pattern[str] | None:
    """What finds the elided words of a language, inside of other words too; None where it has none."""
    forms = [re.escape(form.removesuffix("'")) for form in function_words(language) if form.endswith("'")]
    return re.compile(f"(?:{'|'.join(forms)})[{APOSTROPHES}]", re.IGNORECASE) if forms else None


def _before(mask: Mask, index: Ints) -> Mask:
    """`mask[index - 1]`, False at the head of the text."""
    return (index > 0) & mask[np.maximum(index - 1, 0)]


def _trimmed(blank: Mask, span: Ints) -> tuple[Ints, Ints]:
    """Start and end of each token without the blanks at its ends, equal where nothing is left; both (n_tokens,)."""
    n = len(blank) - 1
    at = np.arange(n)
    following = np.full(n + 1, n, dtype=np.int64)  # the first character from here on that is no blank
    following[:n] = np.minimum.accumulate(np.where(blank[:n], n, at)[::-1])[::-1]
    ended = np.zeros(n + 1, dtype=np.int64)  # one behind the last character before here that is no blank
    ended[1:] = np.maximum.accumulate(np.where(blank[:n], 0, at + 1))
    begin = np.minimum(following[span[:, 0]], span[:, 1])
    return begin, np.maximum(ended[span[:, 1]], begin)


def _characters(text: str, elided: re.Pattern[str] | None) -> _Characters:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")  # (n_characters,)
    distinct, where = np.unique(points, return_inverse=True)

    def mask_of(property_holds: list[bool]) -> Mask:
        return np.append(np.array(property_holds, dtype=bool)[where], False)  # (n_characters + 1,)

    chars = [chr(point) for point in distinct]
    kinds = [unicodedata.category(char)[0] for char in chars]
    letter, number = (mask_of([kind == wanted for kind in kinds]) for wanted in "LN")
    mark = mask_of([kind == "M" for kind in kinds])
    for index in np.flatnonzero(mark):  # a mark belongs to what it sits on
        letter[index] = index > 0 and letter[index - 1]
    apostrophe = mask_of([char in APOSTROPHES for char in chars])
    word = letter | number
    word[1:-1] |= apostrophe[1:-1] & word[:-2] & letter[2:]
    whole = word.copy()
    for match in elided.finditer(text) if elided else ():
        if match.start() == 0 or not word[match.start() - 1]:  # not inside a word, as qu' is in quelqu'un
            word[match.end() - 1] = False
    return _Characters(
        blank=mask_of([char.isspace() for char in chars]),
        line_break=mask_of([char in LINE_BREAKS for char in chars]),
        punctuation=mask_of([kind == "P" for kind in kinds]),
        letter=letter,
        number=number,
        separator=mask_of([char in SEPARATORS for char in chars]),
        word=word,
        elision=whole & ~word,
    )

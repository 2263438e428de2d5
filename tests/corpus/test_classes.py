import random
import re
import unicodedata
from itertools import pairwise

import numpy as np
import pytest

from geomprobe.corpus.classes import classify, spans
from geomprobe.corpus.function_words import function_words
from geomprobe.corpus.tokenizing import tokenize
from geomprobe.errors import InvalidParameter
from geomprobe.labels import CLASS_INDEX, TOKEN_CLASSES


def classes_of(*pieces, special=()):
    """The classes of a text cut by hand into these pieces, whose ids are their places."""
    ends = np.cumsum([len(piece) for piece in pieces])
    offsets = [(end - len(piece), end) for piece, end in zip(pieces, ends, strict=True)]
    classes = classify("".join(pieces), range(len(pieces)), offsets, special_ids=special)
    return [TOKEN_CLASSES[index] for index in classes]


def classed(tokenizer, text):
    """What the tokenizer makes of a text: pairs of the text covered and its class."""
    tokens = tokenize(tokenizer, text)
    return [(tokens.covered(index), TOKEN_CLASSES[token_class]) for index, token_class in enumerate(tokens.token_class)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (("Don", "'t", " stop"), ("subword", "subword", "content")),
        (("Don", "'", "t", " stop"), ("subword", "punctuation", "subword", "content")),
        (("Don", "’", "t", " stop"), ("subword", "punctuation", "subword", "content")),
        (("don'", "t"), ("subword", "subword")),
        (("don't", " stop"), ("auxiliary", "content")),
        (("don’t", " stop"), ("auxiliary", "content")),
        ((" John", "'s", " dog"), ("subword", "subword", "content")),
        ((" States", "'", " dog"), ("content", "punctuation", "content")),
        ((" '", "the", "'"), ("punctuation", "article", "punctuation")),
        (("the", " 1990", "'s"), ("article", "number", "subword")),
        ((" co", "-", "operate"), ("content", "punctuation", "content")),
        ((" co", "-operate"), ("content", "subword")),
        ((" co-operate",), ("content",)),
        ((" U", ".", "S", "."), ("content", "punctuation", "content", "punctuation")),
        ((" U.S", "."), ("content", "punctuation")),
        ((" 1", ",", "234", ".", "5"), ("number", "punctuation", "number", "punctuation", "number")),
        ((" 1,234.5", " ½"), ("number", "number")),
        ((" 3", "rd"), ("number", "subword")),
        ((" 3rd",), ("content",)),
        ((" A", "4"), ("subword", "number")),
        ((" 10%", " $", "5", " $5"), ("other", "other", "number", "other")),
        ((" I", " a", "m", " a", "."), ("pronoun", "subword", "subword", "article", "punctuation")),
        (("the ", "dog ", "s"), ("article", "content", "content")),
        (("a", "\n", "\n\n  ", "\nThe", "\t", "  "), ("article", "newline", "newline", "article", "other", "other")),
        (("x", "\u2028", "\r"), ("content", "newline", "newline")),
        ((".\n", " . ", ". .", '."'), ("punctuation",) * 4),
        ((" of the", "re"), ("subword", "subword")),
        ((" of the", " end"), ("other", "content")),
        (("(the", " (", "the"), ("subword", "punctuation", "article")),
        ((" _", "under", "_", "Camel", "Case"), ("punctuation", "preposition", "punctuation", "subword", "subword")),
        ((" na", "i", "\u0308", "ve"), ("subword",) * 4),
        ((" nai\u0308ve", " naïve"), ("content", "content")),
        ((" ❤", "\ufe0f", " +", " €"), ("other",) * 4),
        (("THE", " The", " tHe"), ("article",) * 3),
    ],
)
def test_a_text_cut_by_hand(pieces, expected):
    assert classes_of(*pieces) == list(expected)


def test_special_tokens_come_first_and_part_words():
    assert classes_of("the", "<|end|>", "the", special={1}) == ["article", "special", "article"]
    assert classes_of("the", "\n", special={1}) == ["article", "special"]


def test_pieces_of_one_character_continue_it():
    text = " é’😀s"
    offsets = [(0, 2), (1, 2), (2, 3), (2, 3), (3, 4), (3, 4), (4, 5)]
    classes = [TOKEN_CLASSES[c] for c in classify(text, range(7), offsets, special_ids=())]
    assert classes == ["subword", "subword", "punctuation", "punctuation", "other", "other", "content"]


def test_nothing_to_class():
    assert classify("", [], [], special_ids=()).shape == (0,)
    assert classify("word", [], [], special_ids=()).dtype == np.int64
    assert [TOKEN_CLASSES[c] for c in classify("word", [0], [(0, 0)], special_ids=())] == ["other"]


def test_an_unknown_language_is_named_with_the_known_ones():
    with pytest.raises(InvalidParameter, match=r"Unknown language 'xx'\..*Known: .*en"):
        classify("word", [0], [(0, 4)], special_ids=(), language="xx")


def test_spans_take_blanks_but_no_other_character():
    assert spans("a  b\nc d", [(0, 1), (2, 2), (3, 4), (5, 6), (7, 8)]).tolist() == [
        [0, 1],
        [1, 2],
        [2, 4],
        [4, 6],
        [6, 8],
    ]
    assert spans("a-b", [(0, 1), (2, 3)]).tolist() == [[0, 1], [2, 3]]


DONT = "Don't stop: John's dog isn't in the U.S. or “so”."


def test_byte_level_contractions(byte_level, byte_level_trimmed):
    expected = [
        ("Don", "subword"),
        ("'t", "subword"),
        (" stop", "content"),
        (":", "punctuation"),
        (" ", "other"),
        ("John", "subword"),
        ("'s", "subword"),
        (" dog", "content"),
        (" isn", "subword"),
        ("'t", "subword"),
        (" in", "preposition"),
        (" the", "article"),
        (" U", "content"),
        (".", "punctuation"),
        ("S", "content"),
        (".", "punctuation"),
        (" or", "conjunction"),
        (" “", "punctuation"),
        ("so", "content"),
        ("”", "punctuation"),  # a character in two tokens
        ("”", "punctuation"),
        (".", "punctuation"),
    ]
    assert classed(byte_level, DONT) == expected
    assert classed(byte_level_trimmed, DONT) == expected


def test_metaspace_contractions(metaspace):
    assert classed(metaspace, DONT) == [
        ("Don", "subword"),
        ("'", "punctuation"),
        ("t", "subword"),
        (" stop", "content"),
        (":", "punctuation"),
        (" John", "subword"),
        ("'", "punctuation"),
        ("s", "subword"),
        (" dog", "content"),
        (" isn", "subword"),
        ("'", "punctuation"),
        ("t", "subword"),
        (" in", "preposition"),
        (" the", "article"),
        (" U", "content"),
        (".", "punctuation"),
        ("S", "content"),
        (".", "punctuation"),
        (" or", "conjunction"),
        (" ", "other"),
        ("“", "punctuation"),
        ("so", "content"),
        ("”", "punctuation"),
        (".", "punctuation"),
    ]


PLAN = "The 3rd plan is 1,234.5 years old\n\n  and they’re co-operate short-run"
PLAN_END = [
    (" and", "conjunction"),
    (" they", "subword"),
    ("’", "punctuation"),
    ("re", "subword"),
    (" co", "content"),
    ("-", "punctuation"),
    ("operate", "content"),
    (" short", "content"),
    ("-", "punctuation"),
    ("run", "content"),
]
PLAN_NUMBER = [
    (" 1", "number"),
    (",", "punctuation"),
    ("234", "number"),
    (".", "punctuation"),
    ("5", "number"),
    (" years", "content"),
    (" old", "content"),
]


def test_byte_level_numbers_hyphens_and_line_breaks(byte_level, byte_level_trimmed):
    expected = [
        ("The", "article"),
        (" 3", "number"),
        ("rd", "subword"),
        (" plan", "content"),
        (" is", "auxiliary"),
        *PLAN_NUMBER,
        ("\n", "newline"),
        ("\n", "newline"),
        (" ", "other"),
        *PLAN_END,
    ]
    assert classed(byte_level, PLAN) == expected
    assert classed(byte_level_trimmed, PLAN) == expected


def test_metaspace_numbers_hyphens_and_line_breaks(metaspace):
    assert classed(metaspace, PLAN) == [
        ("The", "article"),
        (" 3rd", "content"),
        (" plan", "content"),
        (" is", "auxiliary"),
        *PLAN_NUMBER,
        ("\n\n", "newline"),
        (" ", "other"),
        *PLAN_END,
    ]


def test_letters_and_emoji_in_bytes_and_special_tokens(byte_level, metaspace):
    text = "é 😀 <|mark|>the<bos>a"
    assert classed(byte_level, text) == [
        ("é", "subword"),
        ("é", "subword"),
        (" ", "other"),
        *[("😀", "other")] * 4,
        (" ", "other"),
        ("<|mark|>", "special"),
        ("the", "article"),
        ("<", "other"),
        ("b", "subword"),
        ("o", "subword"),
        ("s", "subword"),
        (">", "other"),
        ("a", "article"),
    ]
    assert classed(metaspace, "é 😀 the<bos>a") == [
        ("", "other"),  # the blank that the tokenizer puts in front; the text has none
        ("é", "subword"),
        ("é", "subword"),
        (" ", "other"),
        *[("😀", "other")] * 4,
        (" the", "article"),
        ("<bos>", "special"),
        ("a", "article"),
    ]


def test_a_blank_put_in_front_takes_no_character(metaspace):
    assert classed(metaspace, "\nThe word") == [
        ("", "other"),
        ("\n", "newline"),
        ("The", "article"),
        (" word", "content"),
    ]


def slow_classes(pieces):
    """The rule written a second time: words by a regular expression, tokens as intervals against them."""
    text = "".join(pieces)
    letter = r"(?:[^\W\d_]|(?<=[^\W\d_])\u0308)"
    words = [m.span() for m in re.finditer(rf"(?:{letter}|\d)(?:{letter}|\d|['’](?={letter}))*", text)]
    inside = {at for start, end in words for at in range(start, end)}
    heads = {start for start, _ in words}
    names, start = [], 0
    for piece in pieces:
        end = start + len(piece)
        bare = piece.strip()
        begin = start + len(piece) - len(piece.lstrip())
        if not bare:
            names.append("newline" if "\n" in piece else "other")
        elif all(unicodedata.category(c)[0] == "P" or c.isspace() for c in bare):
            names.append("punctuation")
        elif re.fullmatch(r"[\d,.\s]*\d[\d,.\s]*", bare):
            names.append("number")
        elif not re.search(r"[^\W\d_]|\u0308", bare) or (bare == "\u0308" and begin not in inside):
            names.append("other")
        elif begin not in heads or any(a < end < b for a, b in words):
            names.append("subword")
        elif re.search(r"\s", bare):
            names.append("other")
        else:
            names.append(function_words().get(bare.lower().replace("’", "'"), "content"))
        start = end
    return names


def test_random_cuts_agree_with_a_slow_rule():
    dice = random.Random(7)
    parts = [
        "the",
        "dog",
        "I",
        "don't",
        "they’re",
        "12",
        "3",
        "a\u0308",
        "é",
        " ",
        "  ",
        "\n",
        "-",
        ".",
        "'",
        "’",
        "$",
        "(",
        "%",
    ]
    for _ in range(2000):
        text = "".join(dice.choices(parts, k=8))
        cuts = sorted({0, len(text), *(dice.randrange(len(text)) for _ in range(5))})
        pieces = [text[a:b] for a, b in pairwise(cuts)]
        assert classes_of(*pieces) == slow_classes(pieces), pieces


def test_blanks_in_the_offsets_or_not_is_the_same():
    dice = random.Random(8)
    for _ in range(300):
        pieces = [
            dice.choice(["", " ", "  ", "\n "]) + dice.choice(["the", "do", "g", "'s", "12", ",", "$"])
            for _ in range(8)
        ]
        text = "".join(pieces)
        ends = np.cumsum([len(piece) for piece in pieces])
        bare = [(end - len(piece.lstrip()), end) for piece, end in zip(pieces, ends, strict=True)]
        trimmed = classify(text, range(8), bare, special_ids=())
        assert [TOKEN_CLASSES[c] for c in trimmed] == classes_of(*pieces)


def test_no_token_of_a_document_is_first(byte_level):
    assert CLASS_INDEX["first"] not in tokenize(byte_level, "The word").token_class

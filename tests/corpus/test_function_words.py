from collections import Counter

import pytest

from geomprobe.corpus.function_words import function_words, languages, parse
from geomprobe.errors import GeomprobeError
from geomprobe.labels import CLOSED_CLASSES

SENTENCE = (
    "she/pronoun had/auxiliary not/particle told/- them/pronoun that/conjunction the/article old/- house/- "
    "on/preposition which/pronoun they/pronoun all/determiner spent/- much/- money/- would/auxiliary be/auxiliary "
    "sold/- to/particle an/article owner/- who/pronoun came/- from/preposition another/determiner town/- "
    "because/conjunction no/determiner neighbour/- or/conjunction friend/- could/auxiliary pay/- for/preposition "
    "it/pronoun and/conjunction its/pronoun garden/- so/- we/pronoun went/- home/- without/preposition a/article "
    "word/- when/- don't/auxiliary i'm/pronoun "
)


def test_a_sentence_tagged_by_hand():
    tagged = [word.split("/") for word in SENTENCE.split()]
    assert [function_words().get(form, "-") for form, _ in tagged] == [category for _, category in tagged]


def test_the_english_list_covers_every_closed_class():
    words = function_words("en")
    assert set(words.values()) == set(CLOSED_CLASSES)
    assert 180 <= len(words) <= 240
    assert Counter(words.values())["article"] == 3
    assert all(form == form.lower().strip() and "’" not in form for form in words)


def test_the_list_cannot_be_changed():
    with pytest.raises(TypeError, match="does not support item assignment"):
        function_words()["dog"] = "article"


def test_an_unknown_language():
    assert "en" in languages()
    with pytest.raises(GeomprobeError, match=r"Unknown language 'xx'\..* Known: .*en"):
        function_words("xx")


def test_damaged_lists_are_noticed():
    assert parse("# a remark\n\narticle: a an\narticle: the\n") == {"a": "article", "an": "article", "the": "article"}
    with pytest.raises(ValueError, match="'a' stands twice: under article and under preposition"):
        parse("article: a\npreposition: a\n")
    with pytest.raises(ValueError, match="'noun' is no closed class"):
        parse("noun: dog\n")

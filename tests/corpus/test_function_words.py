import io
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from geomprobe.corpus.function_words import function_words, is_approximate, languages, most_frequent, parse
from geomprobe.errors import GeomprobeError, InvalidParameter
from geomprobe.labels import CLOSED_CLASSES
from reports.function_words import judge, read_gold, report

GOLD = Path(__file__).parents[3] / "shared" / "data" / "function_words_gold.tar.xz"

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


@pytest.mark.parametrize("language", ["de", "en", "es", "fr", "pt", "ru"])
def test_each_list_is_in_its_form(language):
    words = function_words(language)
    assert not is_approximate(language)
    assert 180 <= len(words) <= 340
    expected = set(CLOSED_CLASSES) - ({"article"} if language == "ru" else set())
    assert set(words.values()) == expected
    assert all(form == form.lower().strip() and not set(form) & set("’-") for form in words)


FORMS = {
    "fr": (
        "l'/article d'/preposition j'/pronoun qu'/conjunction n'/particle s'/pronoun c'/pronoun m'/pronoun t'/pronoun "
        "jusqu'/preposition lorsqu'/conjunction puisqu'/conjunction du/preposition des/preposition au/preposition "
        "aux/preposition les/article une/article dont/pronoun leur/determiner est/auxiliary ont/auxiliary pas/particle "
        "quelqu'un/pronoun quelqu'/- aujourd'/- presqu'/- maison/- donc/- fait/-"
    ),
    "de": (
        "zum/preposition zur/preposition im/preposition am/preposition vom/preposition beim/preposition "
        "ins/preposition ans/preposition der/article einem/article mich/pronoun keine/determiner unserem/determiner "
        "wird/auxiliary muß/auxiliary konnte/auxiliary daß/conjunction und/conjunction nicht/particle zu/particle "
        "noch/- haus/-"
    ),
    "ru": (
        "не/particle ни/particle бы/particle ли/particle же/particle ведь/particle в/preposition со/preposition "
        "и/conjunction чтобы/conjunction которую/pronoun её/determiner ее/determiner нами/pronoun моего/determiner "
        "этими/determiner была/auxiliary будут/auxiliary дом/- когда/- ещё/-"
    ),
    "pt": (
        "do/preposition da/preposition dos/preposition das/preposition no/preposition na/preposition ao/preposition "
        "à/preposition pelo/preposition numa/preposition deste/preposition dela/preposition d'/preposition o/article "
        "as/article uma/article lhe/pronoun mas/conjunction foi/auxiliary está/auxiliary seus/determiner não/particle "
        "casa/- tem/- mais/-"
    ),
    "es": (
        "del/preposition al/preposition el/article unas/article lo/pronoun nosotros/pronoun y/conjunction "
        "porque/conjunction ha/auxiliary puede/auxiliary están/auxiliary cuyo/determiner sus/determiner no/particle "
        "hay/- casa/- más/- d'/-"
    ),
}


@pytest.mark.parametrize("language", sorted(FORMS))
def test_forms_of_a_language(language):
    tagged = [entry.split("/") for entry in FORMS[language].split()]
    words = function_words(language)
    assert [(form, words.get(form, "-")) for form, _ in tagged] == [tuple(entry) for entry in tagged]


def test_only_languages_that_elide_have_forms_with_an_apostrophe_at_the_end():
    assert [language for language in languages() if any(form[-1] == "'" for form in function_words(language))] == [
        "fr",
        "pt",
    ]


def test_the_list_cannot_be_changed():
    with pytest.raises(TypeError, match="does not support item assignment"):
        function_words()["dog"] = "article"


def test_an_unknown_language():
    assert "en" in languages()
    with pytest.raises(GeomprobeError, match=r"Unknown language 'xx'\..* Known: .*en.*it.*uk"):
        function_words("xx")


@pytest.mark.parametrize("language", ["ja", "ko", "zh"])
def test_a_language_whose_words_wordfreq_does_not_count(language):
    with pytest.raises(InvalidParameter, match=rf"Unknown language '{language}'\..* Known: ar,"):
        function_words(language)


@pytest.mark.parametrize(("language", "some"), [("it", "di il che"), ("pl", "w nie się"), ("hi", "है में हैं")])
def test_a_language_without_a_list_has_its_most_frequent_words(language, some):
    assert is_approximate(language)
    assert language not in languages()
    words = function_words(language)
    assert set(words.values()) == {"particle"}
    assert len(words) == 120
    assert {*some.split()} <= set(words)
    assert not any(char.isdigit() or char in ".-'" for form in words for char in form)


def test_more_frequent_words_come_first():
    assert most_frequent("it", 10) == most_frequent("it")[:10]
    assert most_frequent("it", 2) == ("di", "e")


LINES = """The\tDET
dog’s\tNOUN+PART
don’t\tAUX+PART

,\tPUNCT
two\tNUM
to\tPART
like\tVERB
like\tADP
"""


def test_words_are_judged_by_hand():
    gold = read_gold(LINES.splitlines(keepends=True))
    assert gold == {
        ("the", True): 1,
        ("dog's", False): 1,
        ("don't", True): 1,
        ("to", True): 1,
        ("like", False): 1,
        ("like", True): 1,
    }
    precision, recall, n = judge({"the", "like", "to", "of"}, gold)
    assert (precision, recall, n) == (3 / 4, 3 / 4, 6)


@pytest.mark.skipif(not GOLD.exists(), reason="the gold tags are not beside the repository")
@pytest.mark.parametrize("language", ["de", "en", "es", "fr", "pt", "ru"])
def test_against_gold_tags(language):
    with tarfile.open(GOLD) as archive:
        [name] = [name for name in archive.getnames() if name.endswith(f"{language}_dev.tsv")]
        text = archive.extractfile(name).read().decode("utf-8")
    precision, recall, n = judge(function_words(language), read_gold(io.StringIO(text)))
    assert precision >= 0.93
    assert recall >= 0.93
    assert n > 9000


def test_the_report(tmp_path):
    for language in languages():
        form = next(iter(function_words(language)))
        lines = f"{form}\tDET\n{most_frequent(language)[0]}\tADP\nxyzzy\tNOUN\n"
        (tmp_path / f"{language}_dev.tsv").write_text(lines, encoding="utf-8")
    said = report(tmp_path)
    assert "| en | 219 | 1.000 | 1.000 | 3 |" in said
    assert said.count("\n| ") == 6 + 1 + 6 + 1 + 5  # the tables' rows, and the heads of the second and the third


def test_damaged_lists_are_noticed():
    assert parse("# a remark\n\narticle: a an\narticle: the\n") == {"a": "article", "an": "article", "the": "article"}
    with pytest.raises(ValueError, match="'a' stands twice: under article and under preposition"):
        parse("article: a\npreposition: a\n")
    with pytest.raises(ValueError, match="'noun' is no closed class"):
        parse("noun: dog\n")

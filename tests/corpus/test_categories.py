import re
from collections import Counter

import pytest

from geomprobe.corpus.categories import languages, packaged, read_categories
from geomprobe.corpus.sources import sotu
from geomprobe.errors import CorpusError, InvalidParameter


def read(tmp_path, text):
    path = tmp_path / "own.txt"
    path.write_text(text, encoding="utf-8")
    return read_categories(path)


def test_the_english_list():
    categories = packaged("en")
    words = [word for members in categories.values() for word in members]
    assert len(categories) >= 20
    assert min(map(len, categories.values())) >= 20
    assert all(re.fullmatch("[a-z]+", word) for word in words)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in categories)
    assert len(set(words)) == len(words)
    assert "ship" in categories["vehicles"]
    assert "silver" in categories["metals"]


def test_the_default_text_has_enough_of_it():
    word = re.compile(r"(?<=\S )[a-z]+(?=.)(?![^\W_]|['’-])", re.DOTALL)
    counts = Counter(hit[0] for document in sotu().documents for hit in word.finditer(document.text, 600))
    usable = {name: sum(counts[word] >= 16 for word in members) for name, members in packaged().items()}
    assert sum(n >= 8 for n in usable.values()) >= 12


def test_the_list_cannot_be_changed():
    with pytest.raises(TypeError, match="does not support item assignment"):
        packaged()["fish"] = ("cod",)
    assert packaged() is packaged()


def test_an_unknown_language():
    assert "en" in languages()
    with pytest.raises(
        InvalidParameter, match=r"Unknown language 'xx'\. Known: .*en.*\. Give a file .* --categories\."
    ):
        packaged("xx")


def test_a_file_of_ones_own(tmp_path):
    text = "\ufeff# Tiere und Länder\r\nTiere: Hund\tKatze\r\n\r\n  # mehr\r\nLänder : Öland hund  Çelebi\r\n"
    categories = read(tmp_path, text)
    assert list(categories.items()) == [("Tiere", ("Hund", "Katze")), ("Länder", ("Öland", "hund", "Çelebi"))]
    with pytest.raises(TypeError, match="does not support item assignment"):
        categories["Tiere"] = ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: x\n\nb y z\n", r"must be written 'name: word word …'; got 'b y z' on line 3 of the file '.*own\.txt'\.$"),
        ("a: x\n: y\n", r"must be written 'name: word word …'; got ': y' on line 2 of the file"),
        ("# none\na: \nb: x\n", r"at least one word; 'a' has none on line 2 of the file '.*own\.txt'\.$"),
        ("a: x\nb: y\na: z\n", r"on one line; 'a' stands a second time on line 3 of the file '.*own\.txt'\.$"),
        ("a: x y\nb: z y\n", r"'y' on line 2 of the file '.*own\.txt' stands under 'b' and under 'a'\.$"),
        ("a: x x\nb: z\n", r"'x' on line 1 of the file '.*own\.txt' stands under 'a' and under 'a'\.$"),
        ("a: x y\n", r"at least 2 categories; got 1 on lines 1 to 1 of the file '.*own\.txt'\.$"),
        ("# nothing\n", r"at least 2 categories; got 0"),
    ],
)
def test_a_damaged_file(tmp_path, text, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        read(tmp_path, text)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(CorpusError, match="cannot be read"):
        read_categories(tmp_path / "missing.txt")
    with pytest.raises(CorpusError, match="is empty"):
        read(tmp_path, "\n")

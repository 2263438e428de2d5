import pytest

from geomprobe.corpus.sources import Document, clean, read_texts, sotu
from geomprobe.errors import CorpusError


def test_a_file_is_a_document(tmp_path):
    file = tmp_path / "story.txt"
    file.write_bytes("\ufeffOne\r\ntwo\rthree\n\r\nvier – fünf".encode())
    source = read_texts([file])
    assert source.name == "story"
    assert source.documents == (Document("story", "One\ntwo\nthree\n\nvier – fünf"),)


def test_a_folder_is_read_in_order(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_text(name, encoding="utf-8")
    (tmp_path / "notes.md").write_text("no", encoding="utf-8")
    source = read_texts([str(tmp_path)])
    assert source.name == tmp_path.name
    assert [document.text for document in source.documents] == ["a", "b", "c"]


def test_names_of_several_files(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    files = [tmp_path / "a.txt", other / "a.txt", tmp_path / "b.txt", tmp_path / "c.txt"]
    for file in files:
        file.write_text("text", encoding="utf-8")
    assert read_texts(files[:2]).name == "a+a"
    source = read_texts(files)
    assert source.name == "a+3"
    assert [document.name for document in source.documents] == ["a", "a#2", "b", "c"]


@pytest.mark.parametrize(
    ("data", "offset"),
    [(b"\xef\xbb\xbfabc\xff", 6), (b"ni\xf1o", 2), (b"cut \xe2\x80", 4), (b"\xff\xfea\x00", 0)],
)
def test_a_byte_that_is_not_utf8_is_named(tmp_path, data, offset):
    file = tmp_path / "latin.txt"
    file.write_bytes(data)
    with pytest.raises(CorpusError, match=rf"latin\.txt' must be UTF-8; byte 0x{data[offset]:02x} at offset {offset} "):
        read_texts([file])


def test_texts_that_are_not_there(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"\xef\xbb\xbf \r\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CorpusError, match=r"empty\.txt' is empty"):
        read_texts([tmp_path / "empty.txt"])
    with pytest.raises(CorpusError, match=r"There is no text .*missing\.txt"):
        read_texts([tmp_path / "missing.txt"])
    with pytest.raises(CorpusError, match=r"folder' has no \*\.txt file"):
        read_texts([tmp_path / "folder"])
    with pytest.raises(CorpusError, match="No text was given"):
        read_texts([])


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(CorpusError, match="'x' must hold Unicode text; character 2 "):
        Document("x", "ab\ud800")


def test_only_a_bom_at_the_head_is_dropped():
    assert clean("\ufeffa\ufeff") == "a\ufeff"


def test_the_default_text():
    source = sotu()
    assert source.name == "sotu"
    assert len(source.documents) == 249
    assert source.documents[0].name == "1790-Washington-1"
    assert source.documents[0].text.startswith("Fellow-Citizens of the Senate")
    assert not any("\r" in document.text for document in source.documents)

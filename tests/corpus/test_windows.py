import hashlib
import logging
from collections import Counter

import numpy as np
import pytest

from geomprobe.corpus.sources import Document, Source
from geomprobe.corpus.tokenizing import bos_of, tokenize
from geomprobe.corpus.windows import WindowPlan, cut_windows
from geomprobe.errors import CorpusError, InvalidParameter
from geomprobe.labels import TOKEN_CLASSES


def source_of(*texts):
    return Source("test", tuple(Document(f"d{index}", text) for index, text in enumerate(texts)))


def words(n):
    """A text of n tokens, in both tokenizers."""
    return " ".join(("the", "dog", "is", "in", "the", "yard", "and", "old")[index % 8] for index in range(n))


THREE = (words(10), words(3), words(2), words(6))  # the last is exactly two windows of 3


def test_windows_are_taken_in_turn(byte_level):
    corpus = cut_windows(source_of(*THREE), byte_level, plan=WindowPlan(window=3, windows=6))
    assert corpus.document.tolist() == [0, 1, 2, 0, 2, 0]
    assert corpus.document_names == ("d0", "d1", "d3")  # d2 is too short for a window
    assert corpus.token_start.tolist() == [0, 0, 0, 3, 3, 6]
    assert corpus.ids.shape == corpus.token_class.shape == corpus.token_text.shape == (6, 3)
    assert (corpus.n_windows, corpus.window, corpus.n_tokens, corpus.bos) == (6, 3, 18, False)
    assert corpus.token_text.tolist() == [
        ["the", " dog", " is"],
        ["the", " dog", " is"],
        ["the", " dog", " is"],
        [" in", " the", " yard"],
        [" in", " the", " yard"],
        [" and", " old", " the"],
    ]
    assert [[TOKEN_CLASSES[c] for c in row] for row in corpus.token_class[3:]] == [
        ["first", "article", "content"],
        ["first", "article", "content"],
        ["first", "content", "article"],
    ]
    assert corpus.char_start.tolist() == [0, 0, 0, 10, 10, 22]
    assert corpus.char_end.tolist() == [10, 10, 10, 22, 22, 34]


def test_the_order_does_not_depend_on_the_number_of_windows(byte_level):
    all_of_them = cut_windows(source_of(*THREE), byte_level, plan=WindowPlan(window=3, windows=6))
    for n in range(1, 6):
        fewer = cut_windows(source_of(*THREE), byte_level, plan=WindowPlan(window=3, windows=n))
        assert np.array_equal(fewer.ids, all_of_them.ids[:n])
        assert fewer.document.tolist() == all_of_them.document[:n].tolist()


@pytest.mark.parametrize(
    ("kind", "bos"),
    [
        *((kind, bos) for kind in ("byte_level", "metaspace") for bos in ("default", "always", "never")),
        ("byte_level_trimmed", "default"),
    ],
)
def test_windows_are_slices_of_the_whole_document(kind, bos, request):
    tokenizer = request.getfixturevalue(kind)
    texts = ("The house isn't old;\n\nJohn's é 😀  dog is\n here.", words(20))
    corpus = cut_windows(source_of(*texts), tokenizer, plan=WindowPlan(window=4, windows=99, bos=bos, allow_short=True))
    lead = int(corpus.bos)
    assert corpus.bos == (bos == "always" or (bos, kind) == ("default", "metaspace"))
    for row in range(corpus.n_windows):
        whole = tokenize(tokenizer, texts[corpus.document[row]])
        piece = slice(corpus.token_start[row], corpus.token_start[row] + 4 - lead)
        assert corpus.ids[row, lead:].tolist() == whole.ids[piece].tolist()
        assert corpus.token_class[row, 1:].tolist() == whole.token_class[piece].tolist()[1 - lead :]
        start, end = corpus.char_start[row], corpus.char_end[row]
        assert start == whole.span[piece.start, 0]
        assert end == whole.span[piece.stop - 1, 1]
        assert all(text in whole.text[start:end] for text in corpus.token_text[row, lead:])
    assert {TOKEN_CLASSES[c] for c in corpus.token_class[:, 0]} == {"first"}
    assert "first" not in {TOKEN_CLASSES[c] for c in corpus.token_class[:, 1:].ravel()}


def test_bos_stands_in_front_of_each_window(metaspace):
    corpus = cut_windows(source_of(words(9)), metaspace, plan=WindowPlan(window=4, windows=3))
    assert corpus.ids[:, 0].tolist() == [metaspace.bos_token_id] * 3
    assert corpus.token_text[:, 0].tolist() == ["<bos>"] * 3
    assert corpus.token_start.tolist() == [0, 3, 6]
    never = cut_windows(source_of(words(9)), metaspace, plan=WindowPlan(window=3, windows=3, bos="never"))
    assert np.array_equal(never.ids, corpus.ids[:, 1:])


def test_bos_by_what_the_tokenizer_does(byte_level, byte_level_trimmed, metaspace):
    assert [bos_of(tokenizer) for tokenizer in (byte_level, byte_level_trimmed)] == [None, None]
    assert bos_of(metaspace) == bos_of(metaspace, "always") == metaspace.bos_token_id
    assert bos_of(byte_level, "always") == byte_level.bos_token_id
    assert bos_of(metaspace, "never") is None
    with pytest.raises(CorpusError, match=r"has no BOS token .* use --bos default"):
        bos_of(byte_level_trimmed, "always")
    with pytest.raises(InvalidParameter, match="bos must be one of 'default', 'always', 'never'; got 'yes'"):
        bos_of(metaspace, "yes")


def test_only_the_documents_that_are_due_are_tokenized(byte_level):
    seen = Counter()

    class Counting:
        is_fast = True

        def __call__(self, text, **options):
            seen[text] += 1
            return byte_level(text, **options)

        def __getattr__(self, name):
            return getattr(byte_level, name)

    texts = [f"{words(7)} {'the ' * index}" for index in range(5)]
    cut_windows(source_of(*texts), Counting(), plan=WindowPlan(window=3, windows=3, bos="never"))
    assert dict(seen) == dict.fromkeys(texts[:3], 1)
    seen.clear()
    cut_windows(source_of(*texts), Counting(), plan=WindowPlan(window=3, windows=9, bos="never"))
    assert dict(seen) == dict.fromkeys(texts, 1)  # kept for the second round


def test_too_few_windows(byte_level):
    plan = WindowPlan(window=3, windows=7)
    with pytest.raises(CorpusError, match=r"'test' gives 6 of the 7 .* --allow-short.* --windows.* --text"):
        cut_windows(source_of(*THREE), byte_level, plan=plan)
    short = WindowPlan(window=3, windows=7, allow_short=True)
    assert cut_windows(source_of(*THREE), byte_level, plan=short).n_windows == 6
    with pytest.raises(CorpusError, match=r"gives 0 of the 7 .* no document is that long; use a smaller --window"):
        cut_windows(source_of(words(2), ""), byte_level, plan=short)


def test_plans():
    assert WindowPlan().n_windows == 32
    assert WindowPlan(window=4, tokens=8).n_windows == 2
    assert WindowPlan(window=4, tokens=9).n_windows == 3
    with pytest.raises(InvalidParameter, match="Give windows or tokens, not both; got 2 and 9"):
        WindowPlan(windows=2, tokens=9)
    with pytest.raises(InvalidParameter, match="window must be at least 2; got 1"):
        WindowPlan(window=1)
    with pytest.raises(InvalidParameter, match="tokens must be at least 1; got 0"):
        WindowPlan(tokens=0)
    with pytest.raises(InvalidParameter, match="bos must be one of"):
        WindowPlan(bos="maybe")


def test_checksums(byte_level):
    plan = WindowPlan(window=3, windows=2)
    texts = (words(3), words(4) + " é")
    corpus = cut_windows(source_of(*texts), byte_level, plan=plan)
    expected = hashlib.sha256()
    for text in texts:
        expected.update(len(text.encode()).to_bytes(8, "little") + text.encode())
    assert corpus.sha256 == expected.hexdigest()
    raw = b"".join(int(token).to_bytes(8, "little") for token in corpus.ids.ravel())
    assert corpus.tokens_sha256 == hashlib.sha256(raw).hexdigest()
    more = cut_windows(source_of(*texts, words(9)), byte_level, plan=plan)
    assert (more.sha256, more.tokens_sha256) == (corpus.sha256, corpus.tokens_sha256)  # the third document is not used
    moved = cut_windows(source_of(words(4), words(3)), byte_level, plan=plan)
    assert moved.sha256 != cut_windows(source_of(words(3), words(4)), byte_level, plan=plan).sha256


def test_a_tokenizer_without_offsets_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(CorpusError, match="Slow does not say where in the text its tokens stand"):
        tokenize(Slow(), "text")


def test_long_texts_are_read_whole_and_in_silence(byte_level, caplog, capfd):
    byte_level.backend_tokenizer.enable_truncation(4)
    with caplog.at_level(logging.DEBUG):
        assert len(tokenize(byte_level, words(50))) == 50  # model_max_length is 8
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    assert not byte_level.deprecation_warnings


def test_an_unknown_language(byte_level):
    with pytest.raises(InvalidParameter, match="Unknown language 'xx'"):
        cut_windows(source_of(words(9)), byte_level, plan=WindowPlan(window=3, windows=1), language="xx")

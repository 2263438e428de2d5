import numpy as np
import pytest

from geomprobe.corpus.sources import Document, Source
from geomprobe.corpus.types import index_types, type_name
from geomprobe.corpus.windows import WindowPlan, cut_windows


@pytest.fixture
def corpus(byte_level):
    source = Source("t", (Document("one", "a\nThe dog\n  is"), Document("two", "A dog, the dogs.")))
    return cut_windows(source, byte_level, plan=WindowPlan(window=7, windows=2))


def test_types_by_hand(corpus):
    assert corpus.token_text.tolist() == [
        ["a", "\n", "The", " dog", "\n", " ", " is"],
        ["A", " dog", ",", " the", " dog", "s", "."],
    ]
    index = index_types(corpus)
    assert index.types == (
        ("\\n", "newline"),
        (",", "punctuation"),
        (".", "punctuation"),
        ("dog", "subword"),  # of "dogs"
        ("s", "subword"),
        ("the", "article"),
        ("is", "auxiliary"),
        ("dog", "content"),
        ("␣", "other"),
    )
    assert index.type_index.tolist() == [[-1, 0, 5, 7, 0, 8, 6], [-1, 7, 1, 5, 3, 4, 2]]
    assert np.isnan(index.zipf).tolist() == [True, True, True, False, False, False, False, False, True]
    assert index.zipf[5] == 7.73


def test_cells_are_types_in_documents(corpus):
    index = index_types(corpus)
    assert index.cells.tolist() == [
        [0, 0],
        [1, 1],
        [2, 1],
        [3, 1],
        [4, 1],
        [5, 0],
        [5, 1],
        [6, 0],
        [7, 0],
        [7, 1],
        [8, 0],
    ]
    assert (index.cell_index[:, 0] == -1).all()
    for row, place in np.argwhere(index.cell_index >= 0):
        cell = index.cells[index.cell_index[row, place]]
        assert cell.tolist() == [index.type_index[row, place], corpus.document[row]]


def test_tokens_are_ids_in_classes(corpus, byte_level):
    index = index_types(corpus)
    dog = byte_level.convert_tokens_to_ids("Ġdog")
    assert [entry for entry in index.tokens if entry[0] == dog] == [(dog, "subword", " dog"), (dog, "content", " dog")]
    assert [entry[0] for entry in index.tokens] == sorted(entry[0] for entry in index.tokens)
    assert (index.token_index[:, 0] == -1).all()
    for row, place in np.argwhere(index.token_index >= 0):
        token_id, _, text = index.tokens[index.token_index[row, place]]
        assert token_id == corpus.ids[row, place]
        assert text == corpus.token_text[row, place]


def test_names():
    assert [type_name(text) for text in (" The", "\n\n ", "\t", "", "É ")] == ["the", "\\n\\n␣", "\\t", "␣", "é"]

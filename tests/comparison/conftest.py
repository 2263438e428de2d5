"""Fewer draws where exactness does not hang on their number."""

import pytest

from geomprobe.comparison import depths, kinds, measured, words
from geomprobe.comparison.comparison import Comparison, compare_runs
from tests.comparison.made import made_run, with_words

N_DRAWS = 300


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many draws of documents in place of 2,000, and of nouns in place of 400."""
    for function in (measured.of_documents, kinds.class_sinks, depths.by_depth):
        monkeypatch.setitem(function.__kwdefaults__, "draws", N_DRAWS)
    monkeypatch.setattr(words, "AUC_DRAWS", 60)
    return N_DRAWS


@pytest.fixture(scope="package")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two runs of other depths and heads with words, compared as the package does it."""
    root = tmp_path_factory.mktemp("pair")
    one = with_words(made_run("one", layers=6, heads=2, seed=1), root / "one", seed=1)
    other = with_words(made_run("other", layers=3, heads=3, seed=2), root / "other", seed=2)
    return compare_runs([one, other])

"""What the tests of the ledger share."""

import pytest

from geomprobe.ledger.thresholds import thresholds


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer draws and permutations than the package has: what is asked here does not hang on their number."""
    monkeypatch.setitem(thresholds()["statistics"], "draws", 600)
    monkeypatch.setitem(thresholds()["statistics"], "permutations", 999)

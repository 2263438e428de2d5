"""The two synthetic runs, written once for this folder's tests; tests that change a run write their own."""

import pytest

from geomprobe.run.reading import Run
from tests.synthetic_run import write_synthetic_run


@pytest.fixture(scope="package")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model without QK norm, all layers alike."""
    return write_synthetic_run(tmp_path_factory.mktemp("plain"), qk_norm=False)


@pytest.fixture(scope="package")
def normed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model with QK norm and sliding windows."""
    return write_synthetic_run(tmp_path_factory.mktemp("normed"), qk_norm=True)

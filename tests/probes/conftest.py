"""Lets the tests of this folder import their helpers by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("halved")  # its assertions say what they compared

"""The command line in fresh processes: a hub on loopback, a small text, a cache of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HUB = Path(__file__).parents[1] / "models" / "hub.py"


@pytest.fixture(scope="session")
def hub():
    """The fake hub of the tests of models."""
    spec = importlib.util.spec_from_file_location("geomprobe_tests_cli_hub", HUB)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def served_gemma(hub, tmp_path_factory):
    """A tiny Gemma; not to be changed by a test."""
    return hub.make_tiny_gemma(tmp_path_factory.mktemp("served") / "gemma")


@pytest.fixture(scope="session")
def text(hub, tmp_path_factory):
    """A file of some 2000 tokens."""
    file = tmp_path_factory.mktemp("texts") / "tale.txt"
    drawn = np.random.default_rng(0).choice(len(hub.SENTENCES), size=60)
    file.write_text("\n".join(hub.SENTENCES[i] for i in drawn), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def call():
    """Run `geomprobe …`, or other Python code, in a process of its own; how it ended."""

    def run(*words, env=None, cwd=None, code=None):
        start = ["-m", "geomprobe"] if code is None else ["-c", code]
        return subprocess.run(
            [sys.executable, *start, *map(str, words)],
            env=dict(os.environ) if env is None else env,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run

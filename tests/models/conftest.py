"""Tiny checkpoints, a hub to serve them, and a way to ask in a fresh process."""

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ASK = """
import json, logging, sys
from geomprobe.errors import GeomprobeError
from geomprobe.models.resolve import resolve

handler = logging.StreamHandler()
logging.getLogger("geomprobe").addHandler(handler)
logging.getLogger("geomprobe").setLevel("INFO")
try:
    found = resolve(sys.argv[1], **json.loads(sys.argv[2]))
except GeomprobeError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(2)
assert "torch" not in sys.modules
print(json.dumps({"path": str(found.path), "id": found.id, "revision": found.revision, "source": found.source}))
"""


def by_path(name: str) -> ModuleType:
    """A module beside this file: under importlib mode the folder is on no path."""
    spec = importlib.util.spec_from_file_location(f"geomprobe_tests_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def hub() -> ModuleType:
    return by_path("hub")


@pytest.fixture(scope="session")
def gguf_file() -> ModuleType:
    return by_path("gguf_file")


@pytest.fixture(scope="session")
def served_gemma(hub: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Gemma; not to be changed by a test."""
    return hub.make_tiny_gemma(tmp_path_factory.mktemp("served") / "gemma")


@pytest.fixture
def gemma(served_gemma: Path, tmp_path: Path) -> Path:
    """A copy of the tiny Gemma that a test may damage."""
    return Path(shutil.copytree(served_gemma, tmp_path / "gemma"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GEOMPROBE_CACHE", str(folder))
    return folder


@pytest.fixture
def ask() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Resolve a name in a fresh process with the given environment."""

    def run(environment: dict[str, str], name: str, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", ASK, name, json.dumps(options)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    return run


@pytest.fixture
def edit_config() -> Callable[..., None]:
    """Change entries of a folder's config.json; None removes one."""

    def edit(folder: Path, **changes: Any) -> None:
        file = folder / "config.json"
        config = {**json.loads(file.read_text(encoding="utf-8")), **changes}
        kept = {key: value for key, value in config.items() if value is not None}
        file.write_text(json.dumps(kept), encoding="utf-8")

    return edit

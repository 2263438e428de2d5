"""What importing the package costs, and what it gives."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import geomprobe

HEAVY = ("torch", "transformers", "matplotlib", "pandas", "numpy", "rich", "huggingface_hub")


def loaded_after(code, *names):
    """Which of some modules are loaded after a piece of code, in a fresh process."""
    code = f"{code}\nimport sys\nprint(*sorted(set({names!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        "import geomprobe",
        "import geomprobe; dir(geomprobe); geomprobe.__version__; geomprobe.GeomprobeError",
        "import geomprobe.labels, geomprobe.errors, geomprobe.registry, geomprobe.cli.app",
    ],
)
def test_importing_costs_nothing(code):
    assert loaded_after(code, *HEAVY) == []


@pytest.mark.parametrize(
    "code",
    [
        "import geomprobe; geomprobe.open_run; geomprobe.Run",
        "import geomprobe.run.reading, geomprobe.pages.page, geomprobe.figures.catalogue, geomprobe.tables",
    ],
)
def test_reading_a_run_needs_no_torch(code):
    assert loaded_after(code, "torch", "transformers") == []


def test_public_names():
    assert set(dir(geomprobe)) == set(geomprobe.__all__)
    assert set(geomprobe._HOMES) == set(geomprobe.__all__) - {"__version__"}
    for name in geomprobe.__all__:
        assert getattr(geomprobe, name) is not None
    from geomprobe import errors

    assert geomprobe.GeomprobeError is errors.GeomprobeError


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'geomprobe' has no attribute 'analyse'"):
        geomprobe.analyse  # noqa: B018
    assert not hasattr(geomprobe, "__wrapped__")


def test_the_version_is_the_projects():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert geomprobe.__version__ == project["project"]["version"]

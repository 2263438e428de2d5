"""The rules' numbers, from one dated file of the package."""

import tomllib
from datetime import date
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

NAME: Final = "thresholds.toml"


@lru_cache(maxsize=1)
def thresholds() -> MappingProxyType[str, Any]:
    """By claim, and "statistics"; "dated" is when they were fixed."""
    text = files("geomprobe.data").joinpath(NAME).read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))


def of(claim: str, name: str) -> float:
    """One number."""
    return float(thresholds()[claim][name])


def dated() -> date:
    """When the thresholds were fixed."""
    found = thresholds()["dated"]
    assert isinstance(found, date)
    return found

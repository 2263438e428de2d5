"""A finished run, opened for reading."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from geomprobe.errors import RunError, did_you_mean
from geomprobe.run.manifest import read_manifest


class Tables(Mapping[str, pd.DataFrame]):
    """The tables of a run by name; each is read when it is first asked for, and kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = tuple(sorted(file.stem for file in folder.glob("*.parquet")))
        self._read: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._names:
            hint = did_you_mean(name, self._names)
            raise RunError(f"This run has no table {name!r}.{hint} It has: {', '.join(self._names) or 'none'}.")
        if name not in self._read:
            self._read[name] = pd.read_parquet(self._folder / f"{name}.parquet")
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Tables({', '.join(self._names)})"


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its manifest and its tables.

    Attributes
    ----------
    path : Path
        The run folder.
    manifest : dict
        What run.json says (docs/schema.md).
    tables : Tables
        Tables by name: ``run.tables["norms"]`` is a DataFrame.
    """

    path: Path
    manifest: dict[str, Any] = field(repr=False)
    tables: Tables = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The model's name, as it was asked for."""
        return str(self.manifest["model"]["name"])

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        # By its name, as the package root does: pages lie above what they read, and only a notebook asks for this.
        return str(import_module("geomprobe.pages.showing").page_in_brief(self))


def open_run(path: str | Path) -> Run:
    """Open a finished run folder.

    Raises
    ------
    RunError
        Where the folder holds no finished run of this schema.
    """
    folder = Path(path)
    return Run(folder, read_manifest(folder), Tables(folder / "tables"))

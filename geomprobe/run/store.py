"""Writing a run folder so that it is there whole or not at all."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from geomprobe.errors import RunError
from geomprobe.run.manifest import NAME, sha256_of, write_manifest

STATE = "state"
RESUMABLE = ("progress.json", "collection.json")  # notes of how far a pass is, the windows' and the words'
_BEGUN = "begun.json"  # in state/: which settings the unfinished run has


@dataclass(frozen=True)
class RunFolder:
    """A run folder in the making.

    Attributes
    ----------
    path : Path
    fingerprint : str
        Of everything that decides the numbers; a run resumes only what has the same.
    finished : bool
        Whether it already holds a finished run of this fingerprint.
    """

    path: Path
    fingerprint: str
    finished: bool = False

    @property
    def state(self) -> Path:
        """Where the state of an unfinished run is kept."""
        return self.path / STATE

    def abandon(self) -> None:
        """Remove the folder, unless a stopped run can go on from it or the run in it is whole."""
        begun = any((self.state / note).exists() for note in RESUMABLE)
        if not begun and not (self.path / NAME).exists():
            shutil.rmtree(self.path, ignore_errors=True)

    def write_tables(self, tables: Mapping[str, pd.DataFrame], *, csv: bool = False) -> dict[str, str]:
        """Write tables as Parquet, and as CSV where asked; the sha256 of the Parquet files by path."""
        folder = self.path / "tables"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, table in tables.items():
            table.to_parquet(folder / f"{name}.parquet", index=False, compression="zstd")
            if csv:
                table.to_csv(folder / f"{name}.csv", index=False)
        return {f"tables/{name}.parquet": sha256_of(folder / f"{name}.parquet") for name in sorted(tables)}

    def finish(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, last, and drop what only an unfinished run needs."""
        write_manifest(self.path, manifest)
        shutil.rmtree(self.state, ignore_errors=True)


def _read(file: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is none that can be read."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _begun_with(folder: Path) -> str | None:
    note = folder / STATE / _BEGUN
    return str(_read(note).get("fingerprint", "damaged")) if note.exists() else None


def _is_run(folder: Path) -> bool:
    """Whether geomprobe made the folder; one with some run.json of another tool is not ours to delete."""
    return "geomprobe" in _read(folder / NAME) or _begun_with(folder) is not None


def _check(folder: Path, fingerprint: str, *, named: bool) -> bool:
    """Whether a folder that is not empty holds the finished run; raises where it is in the way."""
    where = str(folder)
    if (folder / NAME).exists():
        if _read(folder / NAME).get("fingerprint") == fingerprint and not named:
            return True
        raise RunError(f"{where!r} holds a finished run; give another --out, or --overwrite to replace it.")
    begun = _begun_with(folder)
    if begun is None:
        raise RunError(f"{where!r} is not empty and holds no run of geomprobe; give another --out.")
    if begun != fingerprint:
        raise RunError(
            f"{where!r} holds an unfinished run with other settings; give another --out, or --overwrite to drop it."
        )
    return False


def open_folder(path: Path, fingerprint: str, *, named: bool, overwrite: bool) -> RunFolder:
    """Make or take up a run folder.

    Parameters
    ----------
    path : Path
    fingerprint : str
    named : bool
        Whether a person chose the folder; one that geomprobe named by its fingerprint may be found finished.
    overwrite : bool
        Whether to drop a run that is there.

    Raises
    ------
    RunError
        Where the folder is in the way: another run, other settings, or something that is no run.
    """
    if path.exists() and not path.is_dir():
        raise RunError(f"{str(path)!r} is a file; --out must name a folder.")
    if path.is_dir() and any(path.iterdir()):
        if overwrite:
            if not _is_run(path):
                raise RunError(f"{str(path)!r} holds no run of geomprobe, so --overwrite will not delete it.")
            shutil.rmtree(path)
        elif _check(path, fingerprint, named=named):
            return RunFolder(path, fingerprint, finished=True)
    folder = RunFolder(path, fingerprint)
    try:
        folder.state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"Cannot make the folder {str(path)!r}: {os.strerror(error.errno or 0)}.") from error
    note = folder.state / _BEGUN
    note.write_text(json.dumps({"fingerprint": fingerprint}), encoding="utf-8")
    return folder

"""The folder of a training: each saved step is there whole or not at all, and so is the end."""

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import torch

from geomprobe.errors import RunError

WHOLE: Final = "training.json"  # written last: a folder that has it is finished
BEGUN: Final = "begun.json"
STEPS: Final = "steps"
STATE: Final = "state"


class TrainingFolder:
    """Where a training puts what it makes.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def finished(self) -> dict[str, Any] | None:
        """The manifest of a finished training, None where it is not."""
        return _read(self.path / WHOLE)

    def open(self, fingerprint: str, about: dict[str, Any], *, overwrite: bool) -> bool:
        """Make or take up the folder; whether it holds this very training, finished.

        Raises
        ------
        RunError
            Where another training or other files are in the way.
        """
        path = self.path
        if path.exists() and not path.is_dir():
            raise RunError(f"{str(path)!r} is a file; --out must name a folder.")
        if path.is_dir() and any(found.name != f".{BEGUN}.part" for found in path.iterdir()):
            begun = _read(path / BEGUN)
            if begun is None:
                raise RunError(f"{str(path)!r} is not empty and holds no training of geomprobe; give another --out.")
            if overwrite:
                _empty(path)
            elif begun.get("fingerprint") != fingerprint:
                raise RunError(
                    f"{str(path)!r} holds a training of another recipe; give another --out, or --overwrite to drop it."
                )
            elif self.finished is not None:
                return True
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not (path / BEGUN).exists():
                write_json(path / BEGUN, {"fingerprint": fingerprint, **about})
            (path / STEPS).mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(f"Cannot make the folder {str(path)!r}: {os.strerror(error.errno or 0)}.") from error
        for left in (*path.glob(".*.part"), *(path / STEPS).glob(".*.part"), *(path / STATE).glob(".*.part")):
            _drop(left)  # what a killed run was just writing
        return False

    # ------------------------------------------------------------------ the state to go on from
    def load_state(self) -> dict[str, Any] | None:
        """The last whole state, None where there is none."""
        found = self._states()
        return torch.load(found[-1], map_location="cpu", weights_only=True) if found else None

    @property
    def state_step(self) -> int:
        """The step that a stopped run goes on from; 0 where there is no state."""
        found = self._states()
        return int(found[-1].stem) if found else 0

    def _states(self) -> list[Path]:
        return sorted((self.path / STATE).glob("*.pt"))

    def save_state(self, step: int, state: dict[str, Any]) -> None:
        """Keep what a killed run needs to go on bit for bit; older states are dropped once this one is whole."""
        folder = self.path / STATE
        folder.mkdir(exist_ok=True)
        part = folder / f".{step:08d}.part"
        torch.save(state, part)
        to_disk(part)
        whole = folder / f"{step:08d}.pt"
        part.replace(whole)
        for older in folder.glob("*.pt"):
            if older != whole:
                older.unlink()

    # ------------------------------------------------------------------ checkpoints
    def step_path(self, step: int) -> Path:
        """Where the checkpoint of a step lies."""
        return self.path / STEPS / f"{step:08d}"

    @property
    def steps(self) -> list[int]:
        """The steps that were saved."""
        return sorted(int(path.name) for path in (self.path / STEPS).glob("[0-9]*"))

    def save_step(self, step: int, model: Any, tokenizer: Path | None, about: dict[str, Any]) -> None:
        """Write a checkpoint that transformers' files describe, by rename."""
        whole = self.step_path(step)
        if whole.exists():
            return
        part = whole.with_name(f".{whole.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        model.save_pretrained(str(part))
        if tokenizer is not None:
            for file in tokenizer.iterdir():
                shutil.copyfile(file, part / file.name)  # read-only caches give no read-only checkpoints
        write_json(part / WHOLE, about)
        for file in part.iterdir():
            to_disk(file)
        part.rename(whole)

    def finish(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, last, and drop the state."""
        write_json(self.path / WHOLE, manifest)
        shutil.rmtree(self.path / STATE, ignore_errors=True)


def _empty(path: Path) -> None:
    """Drop a training, its end first and its beginning last: killed amid this, it is unfinished and still known."""
    for found in (path / WHOLE, *path.iterdir()):
        if found.name != BEGUN:
            _drop(found)
    _drop(path / BEGUN)


def _drop(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_json(file: Path, value: dict[str, Any]) -> None:
    """Write by rename."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    to_disk(part)
    part.replace(file)


def to_disk(file: Path) -> None:
    """Wait until a file's bytes are on the disk: else it may have its name and be empty when the power fails."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())

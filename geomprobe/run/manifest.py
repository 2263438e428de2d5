"""What run.json says, and how it is read and written."""

import hashlib
import json
from pathlib import Path
from typing import Any

from geomprobe.errors import RunError

SCHEMA = 1
NAME = "run.json"


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished run.

    Raises
    ------
    RunError
        Where there is no finished run, or one of a schema that this geomprobe does not read.
    """
    file = folder / NAME
    if not folder.is_dir():
        raise RunError(f"There is no folder {str(folder)!r}; give the folder that `geomprobe analyze` printed.")
    if not file.exists():
        raise RunError(
            f"{str(folder)!r} is not a finished run: it has no {NAME}, which `geomprobe analyze` writes last."
        )
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{str(file)!r} is not valid JSON ({error}); analyze the model again.") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        found = manifest.get("schema") if isinstance(manifest, dict) else None
        raise RunError(f"{str(file)!r} has schema {found!r}; this geomprobe reads schema {SCHEMA}: analyze again.")
    return manifest


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write run.json by rename, so that it is there whole or not at all."""
    part = folder / f"{NAME}.part"
    part.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(folder / NAME)

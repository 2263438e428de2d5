"""The user's cache of converted checkpoints: a folder is there whole, or not at all."""

import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from geomprobe.errors import ModelNotFound

SOURCE: Final = "SOURCE.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def user_cache_folder() -> Path:
    """Where geomprobe keeps what it converted: $GEOMPROBE_CACHE, else the platform's cache folder."""
    if own := os.environ.get("GEOMPROBE_CACHE"):
        return Path(own).expanduser()
    if general := os.environ.get("XDG_CACHE_HOME"):
        return Path(general).expanduser() / "geomprobe"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "geomprobe"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "geomprobe"
    return Path.home() / ".cache" / "geomprobe"


def is_kept(folder: Path, sha256: str) -> bool:
    """Whether the folder holds the checkpoint that was made of the file with this sha256."""
    try:
        source = json.loads((folder / SOURCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    whole = (folder / "config.json").exists() and any(folder.glob("*.safetensors"))
    return whole and isinstance(source, dict) and source.get("sha256") == sha256


def keep(folder: Path, sha256: str, make: Callable[[Path, Path], dict[str, Any]]) -> Path:
    """Make a folder of the cache unless it is there; nothing half made is left behind, whatever happens.

    Parameters
    ----------
    folder : Path
        The place in the cache.
    sha256 : str
        Of the file that the folder is made of.
    make : callable
        Called as ``make(whole, scratch)``, both empty folders on the cache's disk: fills the first, may use the
        second, and returns what SOURCE.json shall say besides sha256, time and version.

    Returns
    -------
    Path
        The folder. Where two processes make it at once, the first to finish provides it.

    Raises
    ------
    ModelNotFound
        Where the cache cannot be written.
    """
    if is_kept(folder, sha256):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise unwritable(error, folder.parent) from error
    try:
        whole, scratch = part / "whole", part / "scratch"
        whole.mkdir()
        scratch.mkdir()
        source = {
            **make(whole, scratch),
            "sha256": sha256,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "geomprobe": version("geomprobe"),
        }
        (whole / SOURCE).write_text(json.dumps(source, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        _place(whole, folder, sha256)
    except OSError as error:
        if error.errno not in (*_FULL, *_CLOSED):
            raise
        raise unwritable(error, folder.parent) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _place(whole: Path, folder: Path, sha256: str) -> None:
    """Rename into place; what another process finished meanwhile is as good, a damaged folder is replaced."""
    for attempt in ("new", "after a damaged one"):
        try:
            whole.rename(folder)
        except OSError:
            if is_kept(folder, sha256):
                return
            if attempt != "new" or not folder.exists():
                raise
            with suppress(FileNotFoundError):  # another process may be at the same
                folder.rename(whole.with_name("replaced"))
        else:
            return


def unwritable(error: OSError, folder: Path) -> ModelNotFound:
    """One sentence for a disk that is full or a folder that may not be written."""
    if error.errno in _FULL:
        return ModelNotFound(
            f"The disk of {str(folder)!r} is full; free some space, or set GEOMPROBE_CACHE to a folder on another disk."
        )
    return ModelNotFound(
        f"The cache folder {str(folder)!r} cannot be written ({error.strerror}); "
        "set GEOMPROBE_CACHE to a folder that can."
    )

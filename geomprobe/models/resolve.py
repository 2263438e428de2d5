"""Names to checkpoints: a folder, a GGUF file, a short name, a hub id, in this order."""

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from geomprobe.errors import InvalidParameter, ModelNotFound
from geomprobe.models.aliases import find_alias, near_name
from geomprobe.models.fetch import fetch, keep_gguf, sha256_of_files
from geomprobe.models.folder import CONFIG, read_config, weight_files
from geomprobe.models.packaged import packaged_folder

logger = logging.getLogger("geomprobe")

_GGUF: Final = ".gguf"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine.

    Attributes
    ----------
    name : str
        As it was asked for.
    path : Path
        A folder that transformers loads.
    source : {"hub", "folder", "gguf", "index", "package"}
        Where it came from.
    id : str
        The hub id, the requirement of the (first) wheel, or the name of the folder or file.
    revision : str or None
        The commit, for the hub.
    sha256 : str or None
        Of the GGUF file, or of a folder's weight files one after the other; None for the hub, whose commit says it.
    """

    name: str
    path: Path
    source: Literal["hub", "folder", "gguf", "index", "package"]
    id: str
    revision: str | None = None
    sha256: str | None = None

    @property
    def slug(self) -> str:
        """The name in a form that a folder can have: ``google/gemma-2b`` is ``google--gemma-2b``."""
        name = self.name if self.source in ("hub", "index", "package") else self.id.removesuffix(_GGUF)
        return re.sub(r"[^A-Za-z0-9._-]+", "-", name.replace("/", "--")).strip(".-") or "model"


def resolve(
    name: str,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    say: Callable[[str], object] = logger.info,
) -> Checkpoint:
    """Find a checkpoint, and bring it to this machine if it is not here.

    Parameters
    ----------
    name : str
        A folder, a ``.gguf`` file, a short name that `geomprobe models` lists, or a hub id ``owner/name``.
    revision : str or None
        A branch, tag or commit of the hub; None for the main branch.
    trust_remote_code : bool
        Bring the repository's Python files as well; without it they are not even downloaded.
    say : callable
        Is told the long steps (downloads from the package index, conversions), in words.

    Returns
    -------
    Checkpoint

    Raises
    ------
    ModelNotFound
        Where nothing goes by that name, or it is gated, damaged or out of reach.
    UnsupportedModel
        Where a GGUF file cannot be read.
    InvalidParameter
        Where a revision is given for what has none.
    """
    alias = find_alias(name)
    path = _existing(name)
    # A folder that merely has an alias's name (an empty one, a run's) does not hide the alias.
    if path is not None and (alias is None or (path / CONFIG).exists()):
        _no_revision(revision, f"the local path {name!r}")
        return _from_file(name, path, say) if path.is_file() else _from_folder(name, path)
    if _is_path_like(name):
        raise ModelNotFound(f"There is no file or folder {name!r}; check the path, or give a hub id or a short name.")
    if alias is not None and alias.packaged:
        _no_revision(revision, f"{alias.name!r}, which comes with geomprobe")
        folder = packaged_folder(alias.name)
        return Checkpoint(alias.name, folder, "package", alias.name, None, sha256_of_files(weight_files(folder)))
    if alias is not None and alias.index is not None:
        _no_revision(revision, f"{alias.name!r}, which a package index serves")
        index = alias.index
        return Checkpoint(name, fetch(name, say=say), "index", index.parts[0].requirement, None, index.sha256)
    if alias is None and "/" not in name:
        raise ModelNotFound(
            f"Unknown model {name!r}.{near_name(name)} Give a short name that `geomprobe models` lists, a hub id "
            "(owner/name), a local folder or a .gguf file."
        )
    from geomprobe.models.hub import download  # the hub's client: only where the hub is asked

    hub_id = alias.hub_id if alias is not None and alias.hub_id is not None else name
    snapshot = download(hub_id, revision=revision, trust_remote_code=trust_remote_code)
    return Checkpoint(name, snapshot.path, "hub", hub_id, snapshot.revision)


def _from_folder(name: str, path: Path) -> Checkpoint:
    read_config(path)
    sha256 = sha256_of_files(weight_files(path))
    return Checkpoint(name, path, "folder", path.name, None, sha256)


def _from_file(name: str, path: Path, say: Callable[[str], object]) -> Checkpoint:
    if path.suffix.lower() != _GGUF:
        raise ModelNotFound(f"{name!r} is a file, but not a {_GGUF} file; give the folder that holds the checkpoint.")
    sha256 = sha256_of_files([path])
    return Checkpoint(name, keep_gguf(path, sha256, say=say), "gguf", path.name, None, sha256)


def _existing(name: str) -> Path | None:
    """The file or folder of that name, as an absolute path, if there is one."""
    try:
        path = Path(name).expanduser().resolve()
        return path if name.strip() and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # no file system takes such a name, or no such home
        return None


def _is_path_like(name: str) -> bool:
    return (
        name.startswith((".", "~", "/", os.sep))
        or name.lower().endswith(_GGUF)
        or name.count("/") > 1
        or "\\" in name
        or not name.strip()
    )


def _no_revision(revision: str | None, what: str) -> None:
    if revision is not None:
        raise InvalidParameter(f"revision must be left out for {what}; got {revision!r}.")

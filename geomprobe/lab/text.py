"""Texts to train on: cleaned, parted into training and held-out documents, turned into one stream of tokens each."""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geomprobe.corpus.sources import Document, Source
from geomprobe.errors import CorpusError, InvalidParameter
from geomprobe.lab.renaming import Renamed, rename
from geomprobe.models.cache import user_cache_folder

END: Final = "<|end|>"  # stands between documents
END_ID: Final = 0  # in every vocabulary that is learned here
HELD_OUT: Final = 0.1  # share of the documents
NOTE: Final = "data.json"
VERSION: Final = 2  # of the cleaning and the split: another one makes other tokens
_SMALLEST: Final = 257  # tokens: every byte, and END
_WRAPPED: Final = 100  # a text none of whose lines is longer than this was wrapped by hand
_FULL: Final = 0.7  # a line of at least this share of the usual length goes on in the next


@dataclass(frozen=True)
class TextPlan:
    """How a text becomes tokens.

    Attributes
    ----------
    vocab_size : int
        Of the model: byte-level BPE, the end of a document, and renamed words.
    renamed : int
        How many frequent words get a second token (`renaming.rename`).
    """

    vocab_size: int = 4096
    renamed: int = 0


@dataclass(frozen=True, eq=False)
class TextData:
    """Tokens to train on, in a folder of the cache.

    Attributes
    ----------
    folder : Path
    about : dict
        What its note says: name, sha256 of the texts, of the tokenizer and of the tokens, documents, renamed words.
    """

    folder: Path
    about: dict[str, Any]

    @cached_property
    def train(self) -> npt.NDArray[np.uint16]:
        """The training documents, one after another: (token,)."""
        return np.load(self.folder / "train.npy", mmap_mode="r")

    @cached_property
    def held_out(self) -> npt.NDArray[np.uint16]:
        """The held-out documents: (token,)."""
        return np.load(self.folder / "held_out.npy", mmap_mode="r")

    @property
    def tokenizer(self) -> Path:
        """Folder with the files of the tokenizer, as transformers reads them."""
        return self.folder / "tokenizer"

    @property
    def tokenizer_with_bos(self) -> Path:
        """The same of one that puts END before each text, for models whose sequences begin with it."""
        folder = self.folder / "tokenizer-bos"
        if not folder.exists():
            part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=self.folder))
            try:
                _save_tokenizer(_begun(self.tokenizer / "tokenizer.json"), part, bos_token=END)
                _rename(part, folder, made=folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        return folder

    @property
    def held_out_texts(self) -> Path:
        """Folder with the held-out documents as text files."""
        return self.folder / "held_out"

    @property
    def sha256(self) -> str:
        """Of the tokens: equal tokens, equal data."""
        return str(self.about["tokens_sha256"])

    @property
    def renamed(self) -> tuple[Renamed, ...]:
        """Words that go by a second token in part."""
        return tuple(Renamed(**word) for word in self.about["renamed"])


def clean_prose(text: str) -> str:
    """Join the lines of a text that was wrapped by hand, and drop doubled spaces.

    A line that is nearly as long as lines of this text are goes on in the next; a short one ends a paragraph.
    """
    lines = text.split("\n")
    lengths = np.array([len(line) for line in lines if line.strip()])
    if len(lengths) and np.quantile(lengths, 0.99) <= _WRAPPED:
        full = _FULL * float(np.quantile(lengths, 0.9))
        lines = _joined(lines, full)
    joined = "\n".join(re.sub(r"[ \t]+", " ", line).strip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", joined).strip() + "\n"


def _joined(lines: Sequence[str], full: float) -> list[str]:
    out: list[str] = []
    goes_on = False
    for line in lines:
        if goes_on and line.strip():
            out[-1] = f"{out[-1].rstrip()} {line.strip()}"
        else:
            out.append(line)
        goes_on = len(line) >= full and bool(line.strip())
    return out


def split(documents: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """Training and held-out documents; which, the hash of their names says, so no order of files matters.

    Raises
    ------
    CorpusError
        Where there is one document alone: nothing could be held out.
    """
    if len(documents) < 2:
        raise CorpusError(
            "Training needs two texts at least, one of them to be held out; got one. Cut it into files, or add another."
        )
    ranked = sorted(documents, key=lambda document: hashlib.sha256(document.name.encode()).digest())
    n_held_out = max(1, round(HELD_OUT * len(ranked)))
    held_out = {document.name for document in ranked[:n_held_out]}
    return (
        [document for document in documents if document.name not in held_out],
        [document for document in documents if document.name in held_out],
    )


def prepare_text(source: Source, plan: TextPlan, *, say: Callable[[str], object]) -> TextData:
    """The tokens of a text, from the cache where they are there.

    Parameters
    ----------
    source : Source
    plan : TextPlan
    say : callable
        Is told the long steps.

    Raises
    ------
    CorpusError
        Where there is one document alone, or fewer frequent words than are to be renamed.
    InvalidParameter
        Where the vocabulary has no room for every byte.
    """
    if plan.vocab_size - plan.renamed < _SMALLEST:
        raise InvalidParameter(
            f"vocab_size must be at least {_SMALLEST + plan.renamed} for a text: every byte, the end of a document and "
            f"{plan.renamed} renamed words; got {plan.vocab_size}. Give a larger --vocab-size."
        )
    digest = hashlib.sha256(f"{VERSION} {plan}".encode())
    for document in source.documents:
        digest.update(hashlib.sha256(f"{document.name}\0{document.text}".encode()).digest())
    folder = user_cache_folder() / "lab" / f"text-{digest.hexdigest()[:16]}"
    if not (folder / NOTE).exists():
        _make(folder, source, plan, say)
    return open_text(folder)


def open_text(folder: Path) -> TextData:
    """The tokens that `prepare_text` left in a folder."""
    return TextData(folder, json.loads((folder / NOTE).read_text(encoding="utf-8")))


def _make(folder: Path, source: Source, plan: TextPlan, say: Callable[[str], object]) -> None:
    train, held_out = split([Document(d.name, clean_prose(d.text)) for d in source.documents])
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        say(f"learning a vocabulary of {plan.vocab_size:,} from {len(train)} texts")
        tokenizer = _learn(train, plan.vocab_size - plan.renamed)
        say(f"turning {len(source.documents)} texts into tokens")
        streams = {"train": _stream(tokenizer, train), "held_out": _stream(tokenizer, held_out)}
        renamed = rename(streams, tokenizer, plan.renamed) if plan.renamed else ()
        tokenizer.add_tokens([word.written for word in renamed])
        for name, ids in streams.items():
            np.save(part / f"{name}.npy", ids)
        _save_tokenizer(tokenizer, part / "tokenizer")
        (part / "held_out").mkdir()
        for document in held_out:
            (part / "held_out" / f"{document.name}.txt").write_text(document.text, encoding="utf-8")
        about = {
            "name": source.name,
            "texts_sha256": _sha256([d.text.encode() for d in source.documents]),
            "tokenizer_sha256": _sha256([tokenizer.to_str().encode()]),
            "tokens_sha256": _sha256([ids.tobytes() for ids in streams.values()]),
            "vocab_size": plan.vocab_size,
            "n_train_tokens": len(streams["train"]),
            "n_held_out_tokens": len(streams["held_out"]),
            "n_documents": len(train),
            "held_out": [document.name for document in held_out],
            "renamed": [vars(word) for word in renamed],
        }
        (part / NOTE).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        _rename(part, folder, made=folder / NOTE)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _rename(part: Path, folder: Path, *, made: Path) -> None:
    """Put a whole folder in its place, where another process may have put the same."""
    try:
        part.rename(folder)
    except OSError:
        if not made.exists():
            raise


def _learn(documents: Sequence[Document], vocab_size: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((document.text for document in documents), trainer)
    if tokenizer.get_vocab_size() < vocab_size:
        raise CorpusError(
            f"The texts give a vocabulary of {tokenizer.get_vocab_size():,} tokens, fewer than the {vocab_size:,} "
            "asked for; give more text or a smaller --vocab-size."
        )
    return tokenizer


def _stream(tokenizer: Any, documents: Sequence[Document]) -> npt.NDArray[np.uint16]:
    """The documents' tokens, END behind each: (token,)."""
    end = tokenizer.token_to_id(END)
    texts = [d.text.replace(END, " ") for d in documents]  # what ends a document must not stand in one
    parts = [np.array([*tokenizer.encode(text).ids, end], dtype=np.uint16) for text in texts]
    return np.concatenate(parts)


def _begun(file: Path) -> Any:
    """The tokenizer of a file, with END before each text."""
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, END_ID)])
    return tokenizer


def _save_tokenizer(tokenizer: Any, folder: Path, **tokens: str) -> None:
    from transformers import PreTrainedTokenizerFast

    whole = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, clean_up_tokenization_spaces=False, **tokens
    )
    whole.save_pretrained(str(folder))


def _sha256(parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()

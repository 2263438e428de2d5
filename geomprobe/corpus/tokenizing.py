"""A tokenizer as the corpus uses it: whole documents to tokens with their place in the text, and the BOS in front."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from geomprobe.corpus.classes import classify, spans
from geomprobe.errors import CorpusError, one_of

Ints = npt.NDArray[np.int64]
BosChoice = Literal["default", "always", "never"]


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """The n tokens of a whole document, without special tokens around it."""

    text: str
    ids: Ints  # (n,)
    span: Ints  # (n, 2) characters, the blanks before a token included
    token_class: Ints  # (n,) indices into labels.TOKEN_CLASSES; no `first` among them

    def __len__(self) -> int:
        return len(self.ids)

    def covered(self, index: int) -> str:
        """The slice of the text that a token covers."""
        start, end = self.span[index]
        return self.text[start:end]


def tokenize(tokenizer: Any, text: str, *, language: str = "en") -> TokenizedText:
    """Tokenize a document whole and class its tokens.

    Parameters
    ----------
    tokenizer : transformers tokenizer
        A fast one: it says where in the text a token stands.
    text : str
    language : str
        Of the function words.

    Raises
    ------
    CorpusError
        Where the tokenizer gives no offsets.
    InvalidParameter
        Where the language has no function words.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise CorpusError(
            f"The tokenizer {type(tokenizer).__name__} does not say where in the text its tokens stand; "
            "a fast one (with a tokenizer.json) is needed."
        )
    encoded = tokenizer(
        text,
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        truncation=False,
        padding=False,
        verbose=False,  # no warning that the text is longer than the model's window
    )
    ids = np.array(encoded["input_ids"], dtype=np.int64)  # (n,)
    offsets = np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)  # (n, 2)
    if len(ids) > 1 and offsets[1, 0] == 0 and tokenizer.convert_ids_to_tokens(int(ids[0])) in ("▁", "Ġ"):
        offsets[0] = 0  # a blank that the tokenizer put in front; it is not in the text, though its offsets say so
    classes = classify(text, ids, offsets, special_ids=special_ids(tokenizer), language=language)
    return TokenizedText(text=text, ids=ids, span=spans(text, offsets), token_class=classes)


def special_ids(tokenizer: Any) -> Collection[int]:
    """The ids of all special tokens, those without a role (reserved ones, chat marks) included."""
    added = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(added | set(tokenizer.all_special_ids))


def bos_of(tokenizer: Any, choice: BosChoice = "default") -> int | None:
    """The id to put in front of each window, or None.

    Parameters
    ----------
    tokenizer : transformers tokenizer
    choice : 'default', 'always' or 'never'
        By default what the tokenizer itself puts before a word; of several tokens the first.

    Raises
    ------
    CorpusError
        For `always` where the tokenizer has no BOS token.
    InvalidParameter
        For another choice.
    """
    one_of("bos", choice, ("default", "always", "never"))
    if choice == "never":
        return None
    encoded = tokenizer("word", return_special_tokens_mask=True, verbose=False)
    if encoded["special_tokens_mask"][0]:
        return int(encoded["input_ids"][0])
    if choice == "default":
        return None
    if tokenizer.bos_token_id is None:
        raise CorpusError("This tokenizer has no BOS token to put in front of each window; use --bos default.")
    return int(tokenizer.bos_token_id)

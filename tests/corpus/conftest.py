"""Two small tokenizers of the kinds that checkpoints have, trained here on a few sentences."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SENTENCES = (
    "The house of the States is old, and I don't know a better one.",
    "John's dog can't run to us; it isn't in the yard at all.",
    "Don't stop: we will co-operate with every nation, or not.",
    'He said: "In 1,234.5 years the U.S. will have a 3rd party."',
    "This is a short-run plan, but these are new facts. A plan!",
    "To be here – they’re sure – was it not “so”?",
    "the word\n\nThe next\nline",
    "the  word   is",
)


def _wrap(backend: Tokenizer, **special: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=8, **special)


def _byte_level(*, trim_offsets: bool) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|end|>", "<|mark|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    return backend


@pytest.fixture(scope="session")
def byte_level():
    """Byte-level BPE, no BOS by default, though it has a token for it."""
    return _wrap(_byte_level(trim_offsets=False), bos_token="<|end|>")


@pytest.fixture(scope="session")
def byte_level_trimmed():
    """The same, with offsets that leave the blanks out; it has no BOS token at all."""
    return _wrap(_byte_level(trim_offsets=True))


@pytest.fixture(scope="session")
def metaspace():
    """Sentencepiece-like BPE: ▁ for a blank, one in front of the text, bytes for unknown characters, BOS by default."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.Punctuation()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<unk>", "<bos>", *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    saved = json.loads(backend.to_str())
    saved["added_tokens"] = [token for token in saved["added_tokens"] if not token["content"].startswith("<0x")]
    backend = Tokenizer.from_str(json.dumps(saved))  # the bytes are plain tokens, as in Llama
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", backend.token_to_id("<bos>"))]
    )
    return _wrap(backend, bos_token="<bos>", unk_token="<unk>")

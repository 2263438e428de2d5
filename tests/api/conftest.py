"""A tokenizer, a text and tiny models for analyses."""

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import geomprobe
from geomprobe.testing import tiny_model
from tests.api.shared import SENTENCES, SHAPE


@pytest.fixture(scope="module")
def tokenizer():
    """Byte-level BPE that puts <bos> in front."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<bos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder of two documents of different lengths."""
    folder = tmp_path_factory.mktemp("texts") / "tales"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, n in (("first", 12), ("second", 24)):
        drawn = rng.choice(len(SENTENCES), size=n)
        (folder / f"{name}.txt").write_text("\n\n".join(SENTENCES[i] for i in drawn), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model_of(tokenizer):
    def make(family="llama", **changes):
        return tiny_model(family, vocab_size=len(tokenizer), **changes)

    return make


@pytest.fixture(scope="module")
def whole(model_of, tokenizer, text, tmp_path_factory):
    """A run with its page, of a model with QK norm and sliding windows."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return geomprobe.analyze(model_of("gemma3"), tokenizer=tokenizer, text=text, out=out, csv=True, **SHAPE)


@pytest.fixture
def analyze(model_of, tokenizer, text, tmp_path, monkeypatch):
    """Analyze a tiny Llama without drawing a page; figures take longer than all the rest."""
    monkeypatch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")

    def run(model=None, **options):
        given = {"tokenizer": tokenizer, "text": text, "out": tmp_path / "run", **SHAPE, **options}
        return geomprobe.analyze(model_of() if model is None else model, **given)

    return run

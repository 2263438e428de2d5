"""The packaged pair writes English, in plain transformers; the same networks with random weights do not."""

import json
import re

import pytest
import torch
import transformers
from wordfreq import zipf_frequency

from geomprobe.corpus.function_words import function_words
from geomprobe.models.packaged import PAIR, packaged_folder

BEGINNINGS = ("The old house stood", "She looked at him and", "On Sunday morning the")


@pytest.fixture(scope="module", params=PAIR)
def folder(request):
    return packaged_folder(request.param)


@pytest.fixture(scope="module")
def tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def words_that(model, tokenizer):
    """What it goes on with behind a few words, drawn at temperature .8."""
    torch.manual_seed(0)
    told = []
    for beginning in BEGINNINGS:
        ids = tokenizer(beginning, return_tensors="pt").input_ids
        with torch.no_grad():
            made = model.generate(ids, max_new_tokens=64, do_sample=True, temperature=0.8, top_k=0, pad_token_id=0)
        told.append(tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))
    return re.findall(r"[a-z]+", " ".join(told).lower())


def looks_english(words):
    """Nearly all are words that people use, and as many as in running text (about half) are function words."""
    closed = function_words("en")
    known = sum(zipf_frequency(word, "en") >= 3 for word in words) / len(words)
    function = sum(word in closed for word in words) / len(words)
    return known > 0.9 and 0.4 < function < 0.75 and len(set(words)) > len(words) / 4


def test_writes_english(folder, tokenizer):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    words = words_that(model, tokenizer)
    assert len(words) > 100
    assert looks_english(words), " ".join(words)


def test_random_weights_do_not(folder, tokenizer):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder)).eval()
    assert not looks_english(words_that(model, tokenizer))


def test_saying_one_thing_over_and_over_is_not_english():
    assert not looks_english(["the", "house"] * 60)


def test_the_card_says_the_losses_that_the_training_noted(folder):
    noted = json.loads((folder / "training.json").read_text(encoding="utf-8"))["held_out_loss"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    line = next(line for line in card.splitlines() if line.startswith("| held-out loss"))
    assert re.findall(r"\d\.\d{3}", line) == [f"{noted[factor]:.3f}" for factor in ("1", "2", "4")]

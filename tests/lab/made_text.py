"""Made-up documents for the tests of the lab: words of syllables, a few frequent and many rare, in sentences."""

from pathlib import Path

import numpy as np

from geomprobe.corpus.sources import Document, Source
from geomprobe.lab.text import TextData, TextPlan, prepare_text

VOCABULARY = 300


def words(rng, n):
    """Distinct words of two or three syllables."""
    made = {}
    while len(made) < n:
        onsets, vowels = rng.choice(list("bdfgklmnprstvz"), 3), rng.choice(list("aeiou"), 3)
        syllables = [onset + vowel for onset, vowel in zip(onsets, vowels, strict=True)]
        made["".join(syllables[: rng.integers(2, 4)])] = True
    return list(made)


def paragraph(rng, known, n_sentences):
    """Sentences with a capital, a comma at times, and an end; word r is written about 1/r as often as the first."""
    share = 1 / np.arange(1, len(known) + 1)
    sentences = []
    for _ in range(n_sentences):
        chosen = rng.choice(known, rng.integers(4, 12), p=share / share.sum())
        middle = len(chosen) // 2
        parts = [" ".join(chosen[:middle]), " ".join(chosen[middle:])]
        sentences.append((", " if rng.random() < 0.3 else " ").join(parts).capitalize() + ".")
    return " ".join(sentences)


def documents(n=12, *, paragraphs=6, sentences=6, n_words=150, seed=0):
    """Documents of several paragraphs of one long line each."""
    rng = np.random.default_rng(seed)
    known = words(rng, n_words)
    return [
        Document(f"tale-{i}", "\n\n".join(paragraph(rng, known, sentences) for _ in range(paragraphs)) + "\n")
        for i in range(n)
    ]


def source(n=12, **options):
    """Documents under a name."""
    return Source("tales", tuple(documents(n, **options)))


def prepared(n=12, *, vocab_size=VOCABULARY, renamed=0, **options):
    """The documents as tokens; the test sets GEOMPROBE_CACHE."""
    return prepare_text(source(n, **options), TextPlan(vocab_size, renamed), say=lambda _sentence: None)


def counted(folder: Path, n_train, n_held_out=200):
    """Streams whose every token is its own place."""
    folder.mkdir(exist_ok=True)
    np.save(folder / "train.npy", np.arange(n_train, dtype=np.uint16))
    np.save(folder / "held_out.npy", np.arange(n_held_out, dtype=np.uint16))
    return TextData(folder, {"tokens_sha256": "5" * 64})

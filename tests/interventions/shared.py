"""What the tests of interventions share: random texts, tiny models read through, and a rotation written out."""

from dataclasses import replace

import numpy as np
import torch

from geomprobe.attention.anatomy import examine
from geomprobe.attention.batch import Tokens
from geomprobe.attention.seam import attending, watching
from geomprobe.attention.stages import Notebook
from geomprobe.interventions.calibration import Calibration
from geomprobe.interventions.edits import Scene, parse_edit
from geomprobe.interventions.trial import Trial
from geomprobe.labels import CLASS_INDEX
from geomprobe.testing import tiny_model

LENGTH = 60  # the sliding windows of the tiny models are 40
CLASSES = ("article", "preposition", "punctuation", "content", "content")
# (family, layer): what its rotation is based on.
BASES = {("llama", 0): 1e4, ("llama", 1): 1e4, ("gemma3", 0): 1e4, ("gemma3", 1): 1e6}
# Gemma 2 (soft-cap) and GPT-OSS (learned sinks) refuse sdpa.
CASES = [
    ("llama", "sdpa"),
    ("llama", "eager"),
    ("qwen3", "sdpa"),
    ("gemma3", "sdpa"),
    ("gemma3", "eager"),
    ("gemma2", "eager"),
    ("gpt_oss", "eager"),
]


def some_ids(n=2, length=LENGTH, seed=0):
    return torch.randint(3, 160, (n, length), generator=torch.Generator().manual_seed(seed))


def some_classes(n=2, length=LENGTH, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = torch.tensor([CLASS_INDEX[name] for name in CLASSES])[
        torch.randint(len(CLASSES), (n, length), generator=generator)
    ]
    made[:, 0] = CLASS_INDEX["first"]
    return made


def as_tokens(token_class, document):
    nothing = torch.zeros_like(token_class)
    return Tokens(token_class, nothing, nothing, nothing, document, torch.ones_like(token_class, dtype=torch.bool))


class Reader:
    """A model, what is known of it from two windows, and how to try edits on others."""

    def __init__(self, model, *, seed=0, edits=()):
        self.model = model
        self.notebook = Notebook(attending(model))
        self.spec = examine(model, some_ids(1, 48, seed=5), notebook=self.notebook)
        ids, token_class = some_ids(2, seed=6), some_classes(2, seed=6)
        self.calibration = Calibration(self.spec, [parse_edit(edit) for edit in edits])
        for _ in range(self.calibration.passes):
            with torch.no_grad(), watching(model, lambda seen: self.calibration.add(seen, token_class), stages=False):
                model(ids, use_cache=False)
            self.calibration.settle()
        self.known = self.calibration.known()
        self.trial = Trial(model, self.spec, self.notebook, self.known, seed)

    def scenes(self, n=2, *, seed=1, draw=3):
        """A Scene a layer."""
        found, token_class = [], some_classes(n, seed=seed)
        with torch.no_grad(), watching(self.model, found.append, stages=self.notebook):
            self.model(some_ids(n, seed=seed), use_cache=False)
        return [Scene(seen, self.known[seen.call.name], token_class, draw) for seen in found]


def reader_of(family="llama", kernel=None, *, dtype=torch.float64, seed=0, edits=(), **changes):
    model = tiny_model(family, dtype=dtype, **changes)
    if kernel is not None:
        model.set_attn_implementation(kernel)
    return Reader(model, seed=seed, edits=edits)


def batches(ids, token_class, document, size):
    for start in range(0, len(ids), size):
        at = slice(start, start + size)
        yield ids[at], as_tokens(token_class[at], document[at])


def article_first(scene):
    """The same with a function word at position 0."""
    token_class = scene.token_class.clone()
    token_class[:, 0] = CLASS_INDEX["article"]
    return replace(scene, token_class=token_class)


def rotate(x, base):
    """Rotary embedding written out: channel i turns with i + d/2 by pos · base^(−2i/d)."""
    out = np.array(x, dtype=float)
    *_, length, d = out.shape
    for pos in range(length):
        for i in range(d // 2):
            angle = pos * base ** (-2 * i / d)
            a, b = out[..., pos, i].copy(), out[..., pos, i + d // 2].copy()
            out[..., pos, i] = a * np.cos(angle) - b * np.sin(angle)
            out[..., pos, i + d // 2] = b * np.cos(angle) + a * np.sin(angle)
    return out

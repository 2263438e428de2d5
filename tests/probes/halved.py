"""Tiny models watched in two halves, and what slow loops know of the second: its vectors in both gauges, its rows."""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
import torch
from scipy.linalg import sqrtm
from transformers import AutoConfig, AutoModelForCausalLM

from geomprobe import capture, testing
from geomprobe.attention.anatomy import examine
from geomprobe.attention.spec import ModelSpec, Spec
from geomprobe.corpus.types import index_types
from geomprobe.corpus.windows import Corpus
from geomprobe.labels import CLASS_INDEX, TOKEN_CLASSES
from geomprobe.observation import Observation, corpus_spec
from geomprobe.probes.split import Split

WINDOWS, LENGTH, MIDDLE = 6, 96, 3
EVERY = Split().every
AT = range(16, LENGTH, EVERY)
TYPES = [(f"{name}{i}", name) for name in ("article", "punctuation", "content") for i in range(4)]
HALF = ([(i, i + 8) for i in range(8)], [])
# Pairs of channels and channels that do not turn, as the models' own code has them.
PAIRS = {
    "llama": HALF,
    "gemma3": HALF,
    "gemma2": HALF,
    "gpt_oss": HALF,
    "glm": ([(2 * i, 2 * i + 1) for i in range(4)], list(range(8, 16))),
    "gpt2": ([], list(range(8))),
}
FAMILIES = list(PAIRS)
GAUGES = ("raw", "balanced")


# ------------------------------------------------------------------ models and texts
def model_of(family, *, dtype=torch.float64):
    """A tiny model; two families that geomprobe.testing has not: no rotation, and one of a part of the channels."""
    if family not in ("glm", "gpt2"):
        return testing.tiny_model(family, dtype=dtype)
    small = {"vocab_size": 160, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    if family == "gpt2":
        small |= {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    else:
        small |= {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16}
        small |= {"num_attention_heads": 4, "num_key_value_heads": 2, "partial_rotary_factor": 0.5}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **small)).to(dtype).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            random = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.8 + 0.3 * random if parameter.dim() == 1 else 2.5 * random * parameter.shape[-1] ** -0.5)
    return model


def text_of(*, n=WINDOWS, seed=0, first_half=0):
    """Windows of different tokens, so that no two keys are equally long; `first_half` changes those alone."""
    rng, other = np.random.default_rng(seed), np.random.default_rng(1000 + first_half)
    ids = np.stack([3 + rng.permutation(157)[:LENGTH] for _ in range(n)])
    kind = rng.integers(len(TYPES), size=(n, LENGTH))
    if first_half:
        ids[: n // 2] = [3 + other.permutation(157)[:LENGTH] for _ in range(n // 2)]
    token_class = np.array([CLASS_INDEX[name] for _, name in TYPES])[kind]
    token_class[:, 0] = CLASS_INDEX["first"]
    nothing = np.zeros(n, dtype=np.int64)
    return Corpus(
        name="made",
        sha256="",
        tokens_sha256="",
        language="en",
        bos=False,
        ids=ids,
        token_class=token_class,
        document=2 * np.arange(n) // (n - 1) if n > 1 else nothing,  # 0 0 0 1 1 2 of six
        token_start=nothing,
        char_start=nothing,
        char_end=nothing,
        token_text=np.array([text for text, _ in TYPES], dtype=object)[kind],
        document_names=("a", "b", "c"),
    )


def observation_of(model, corpus, *, probe=None, change=lambda layers: layers):
    index = index_types(corpus)
    found = examine(model, torch.from_numpy(corpus.ids[:1, :64]))
    spec = Spec(ModelSpec(tuple(change(found.layers)), found.skipped), corpus_spec(corpus, index))
    return Observation(spec, {"split": probe or Split()}, corpus, index=index)


def tables_of(model, corpus, *, batch_size=3, **changes):
    made = observation_of(model, corpus, **changes)
    made.run(model, batch_size=batch_size)
    return made.tables()


@cache
def seen_of(family, text=text_of):
    """{layer: what the oracle knows of each window} of a family and a text."""
    model, corpus = model_of(family), text()
    layers = {}
    with torch.no_grad(), capture(model) as records:
        for window in range(WINDOWS):
            model(input_ids=torch.from_numpy(corpus.ids[window : window + 1]))
            for record in records[-2:]:
                layers.setdefault(record.layer, []).append(sequence(record, model, corpus, window))
    return layers


@cache
def measured_of(family, text=text_of):
    """The tables of a family and a text."""
    return tables_of(model_of(family), text())


def sequence(record, model, corpus, window):
    """The vectors of a window and, in the second half, all of its attention row by row."""
    config, module = model.config, model.get_submodule(record.module)
    sliding = getattr(config, "layer_types", ["full_attention"] * 9)[record.layer] == "sliding_attention"
    learned = getattr(module, "sinks", None)
    q, k, v = (x["scored"][0].double().numpy() for x in (record.q, record.k, record.v))
    classes = [TOKEN_CLASSES[i] for i in corpus.token_class[window]]
    told = {
        "q": q,
        "k": k,
        "softcap": getattr(config, "attn_logit_softcapping", None),
        "sinks": None if learned is None else learned.detach().double().numpy(),
    }
    if window < MIDDLE:
        return SimpleNamespace(**told, heads=len(q))
    return oracle.Sequence(
        **told,
        v=v,
        classes=classes,
        types=list(zip(corpus.token_text[window].tolist(), classes, strict=True)),
        scale=q.shape[-1] ** -0.5 if model.config.model_type == "gpt2" else module.scaling,
        window=config.sliding_window if sliding else None,
    )


# ------------------------------------------------------------------ the second half in a gauge
def in_gauge(sequences, family, gauge):
    """Queries and keys of the second half, (q_head, pos, channel) each, in the gauge of the first half."""
    second = [(s.q, s.k.repeat(s.heads // len(s.k), axis=0)) for s in sequences[MIDDLE:]]
    if gauge == "raw":
        return second
    pairs, free = PAIRS[family]
    heads, width = sequences[0].heads, sequences[0].q.shape[-1]
    group = heads // len(sequences[0].k)
    centred = sequences[0].softcap is None and sequences[0].sinks is None
    of_key, of_query, centre = (
        np.zeros((heads, width, width)),
        np.zeros((heads, width, width)),
        np.zeros((heads, width)),
    )
    for head in range(heads):
        kv = head // group
        k = np.concatenate([s.k[kv, 1:] for s in sequences[:MIDDLE]])
        q = np.concatenate([s.q[h, 1:] for s in sequences[:MIDDLE] for h in range(kv * group, kv * group + group)])
        for a, b in pairs:
            m = (np.mean(q[:, a] ** 2 + q[:, b] ** 2) / np.mean(k[:, a] ** 2 + k[:, b] ** 2)) ** 0.25
            for c in (a, b):
                of_key[head, c, c], of_query[head, c, c] = m, 1 / m
        if free:
            if centred:
                centre[head, free] = k[:, free].mean(0)
            x, y = q[:, free], k[:, free] - centre[head, free]
            x, y = x.T @ x / len(x), y.T @ y / len(y)
            root = sqrtm(y).real
            inverse = np.linalg.inv(root)
            m = sqrtm(inverse @ sqrtm(root @ x @ root).real @ inverse).real
            of_key[head][np.ix_(free, free)], of_query[head][np.ix_(free, free)] = m, np.linalg.inv(m).T
    return [(q @ of_query, (k - centre[:, None]) @ of_key) for q, k in second]


class Row:
    """A row of attention over some keys, in a gauge, and its descriptions."""

    def __init__(self, seq, vectors, head, t, keys, bias=0.0):
        self.bias = bias
        q, k = vectors[0][head, t], vectors[1][head, keys]
        self.cap, self.m = seq.softcap, seq.scale * np.linalg.norm(q)
        self.n = np.linalg.norm(k, axis=1)
        self.x = seq.scale * np.array([float(q @ one) for one in k])
        self.cos = self.x / (self.m * self.n)
        self.own = self.attention(self.x)

    def attention(self, x):
        s = (self.cap * np.tanh(x / self.cap) if self.cap else x) + self.bias
        weights = np.exp(s - s.max())
        return weights / weights.sum()

    def left_over(self):
        n = math.exp(np.log(self.n).mean())
        others = {
            "empty": np.full(len(self.x), 1 / len(self.x)),
            "angle": self.attention(self.m * n * self.cos),
            "length": self.attention(self.m * self.cos.mean() * self.n),
        }
        return {name: sum(self.own * np.log(self.own / other)) for name, other in others.items()}

    def others(self, middle):
        a, x = self.m * self.cos, self.x
        a, x = a - a.mean(), x - x.mean()
        slope = 1 - np.tanh(self.x / self.cap) ** 2 if self.cap else 1
        tv = 0.5 * sum(abs(self.own - self.attention(self.m * middle * self.cos)))
        return {
            "tv": tv,
            "xy": a @ x,
            "xx": a @ a,
            "yy": x @ x,
            "leverage": sum(self.own * (1 - self.own) * self.x * slope),
        }


class Products:
    """Logits before soft-cap, lengths and cosines of a head of a window, in a gauge."""

    def __init__(self, seq, both, head):
        q, k = both[0][head], both[1][head]
        self.m, self.n = seq.scale * np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1)
        self.x = seq.scale * np.einsum("td,jd->tj", q, k)
        self.cos = self.x / np.outer(self.m, self.n)

    def parts(self, queries, f, others):
        """Means over queries and other keys c of x_tf − x_tc and of its part in lengths."""
        rows = np.array(queries)[:, None]
        m, n, cos = self.m[rows], self.n[others], self.cos[rows, others]
        whole = self.x[rows, f] - self.x[rows, others]
        lengths = m * (self.n[f] - n) * 0.5 * (self.cos[rows, f] + cos)
        angles = m * 0.5 * (self.n[f] + n) * (self.cos[rows, f] - cos)
        assert np.allclose(whole, lengths + angles, rtol=1e-9, atol=1e-9)
        return whole.mean(), lengths.mean()


def judged(seq):
    """Of each key that has them: (key, its queries, its content neighbours); and the same of position 0, by query."""
    content = [j for j in range(16, LENGTH) if seq.classes[j] == "content"]
    keys = []
    for k in range(16, LENGTH - 8):
        around = range(k - 8, k + 9)
        queries = [t for t in range(k + 9, LENGTH) if all(seq.sees(t, j) for j in around)]
        near = [j for j in around if j != k and j in content]
        if len(queries) >= 16 and near:
            keys.append((k, queries, near))
    first = [([t], [j for j in content if j < t - 8]) for t in range(LENGTH) if seq.sees(t, 0)]
    return keys, [(t, others) for t, others in first if others]


def one_of(table, **where):
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1, where
    return table.iloc[0]


def close(actual, expected, tolerance=1e-9):
    assert float(actual) == pytest.approx(float(expected), rel=tolerance, abs=tolerance, nan_ok=True)

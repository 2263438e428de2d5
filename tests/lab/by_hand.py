"""A second, slow way through a decoder of any arm: numpy in float64, a token, a head and a pair of channels at a time.

It shares no code with the package, and reads what an arm is from the table below.
"""

import math
from dataclasses import dataclass

import numpy as np

EPS = 1e-6
# name: (norm, whether all heads are normed at once, whether behind RoPE, scale)
TABLE = {
    "A0": (None, False, False, "rsqrt"),
    "A1": ("rms", False, False, "rsqrt"),
    "A2": ("rms", False, False, "rsqrt"),
    "A3": ("rms", False, True, "rsqrt"),
    "A4": ("rms", False, True, "rsqrt"),
    "A5": ("rms", True, False, "rsqrt"),
    "A6": ("l2", False, False, "temperature"),
    "A7": ("rms", False, False, "one"),
    "A8": ("l2", False, False, "one"),
    "A9": (None, False, False, "one"),
}


@dataclass
class Layer:
    """What happened in one layer to one text: vectors (head, pos, d), logits and attention (q_head, row, key)."""

    projected_q: np.ndarray
    projected_k: np.ndarray
    q: np.ndarray
    k: np.ndarray
    logits: np.ndarray
    attention: np.ndarray


class Decoder:
    """A decoder of the lab, read from its weights alone."""

    def __init__(self, arm, model):
        self.norm, self.at_once, self.behind, self.scale = TABLE[arm]
        self.w = {name: x.detach().double().numpy() for name, x in model.state_dict().items()}
        config = model.config
        self.n_layers, self.theta, self.d = config.num_hidden_layers, config.rope_theta, config.head_dim
        self.heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}

    def read(self, ids):
        """(pos, vocabulary) logits and what happened in each layer, for the ids of one text."""
        embedding = self.w["model.embed_tokens.weight"]
        stream = [embedding[token] for token in ids]
        layers = []
        for index in range(self.n_layers):
            at = f"model.layers.{index}."
            normed = [self._rms(x, self.w[at + "input_layernorm.weight"]) for x in stream]
            attended, layer = self._attend(at + "self_attn.", normed)
            layers.append(layer)
            stream = [x + y for x, y in zip(stream, attended, strict=True)]
            for place, x in enumerate(stream):
                y = self._rms(x, self.w[at + "post_attention_layernorm.weight"])
                gate, up = self.w[at + "mlp.gate_proj.weight"] @ y, self.w[at + "mlp.up_proj.weight"] @ y
                swish = np.array([g / (1 + math.exp(-g)) for g in gate])
                stream[place] = x + self.w[at + "mlp.down_proj.weight"] @ (swish * up)
        final = [self._rms(x, self.w["model.norm.weight"]) for x in stream]
        return np.array([embedding @ x for x in final]), layers

    def _rms(self, x, gain=None):
        y = x / math.sqrt(sum(v * v for v in x) / len(x) + EPS)
        return y if gain is None else y * gain

    def _normed(self, x, vector, at):
        if self.norm is None:
            return x
        if self.norm == "l2":
            return x / max(math.sqrt(sum(v * v for v in x)), EPS)
        return self._rms(x, self.w.get(f"{at}{vector}_norm.weight"))

    def _turned(self, x, position):
        y, half = np.empty_like(x), self.d // 2
        for i in range(half):
            angle = position * self.theta ** (-2 * i / self.d)
            c, s = math.cos(angle), math.sin(angle)
            y[i], y[i + half] = x[i] * c - x[i + half] * s, x[i + half] * c + x[i] * s
        return y

    def _vectors(self, vector, at, hidden):
        """Projected and scored vectors, each (head, pos, d)."""
        n, d = self.heads[vector], self.d
        projected, scored = np.empty((n, len(hidden), d)), np.empty((n, len(hidden), d))
        for position, x in enumerate(hidden):
            flat = self.w[f"{at}{vector}_proj.weight"] @ x
            whole = self._normed(flat, vector, at) if self.at_once else flat
            for head in range(n):
                part = slice(head * d, (head + 1) * d)
                y = whole[part]
                if not self.at_once and not self.behind:
                    y = self._normed(y, vector, at)
                y = self._turned(y, position)
                if self.behind:
                    y = self._normed(y, vector, at)
                if vector == "q" and self.scale == "temperature":
                    y = y * math.exp(self.w[f"{at}log_temperature"][head])
                projected[head, position], scored[head, position] = flat[part], y
        return projected, scored

    def _attend(self, at, hidden):
        length, d, group = len(hidden), self.d, self.heads["q"] // self.heads["k"]
        projected_q, q = self._vectors("q", at, hidden)
        projected_k, k = self._vectors("k", at, hidden)
        v = [self.w[at + "v_proj.weight"] @ x for x in hidden]
        scale = 1 / math.sqrt(d) if self.scale == "rsqrt" else 1.0
        logits = np.full((self.heads["q"], length, length), np.nan)
        attention = np.zeros_like(logits)
        out = []
        for row in range(length):
            mixed = np.zeros(self.heads["q"] * d)
            for head in range(self.heads["q"]):
                of = head // group
                for key in range(row + 1):
                    logits[head, row, key] = scale * sum(q[head, row] * k[of, key])
                largest = max(logits[head, row, : row + 1])
                mass = [math.exp(x - largest) for x in logits[head, row, : row + 1]]
                for key in range(row + 1):
                    attention[head, row, key] = mass[key] / sum(mass)
                    mixed[head * d : (head + 1) * d] += attention[head, row, key] * v[key][of * d : (of + 1) * d]
            out.append(self.w[at + "o_proj.weight"] @ mixed)
        return out, Layer(projected_q, projected_k, q, k, logits, attention)

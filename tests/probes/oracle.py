"""A second, slow way to every number: plain loops in float64 over the keys that a query may see.

It shares no code with the package. The mask is worked out from the model's configuration (causal, window, padding),
not read from what the package read.
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass
class Sequence:
    """One sequence of one layer, padding cut out: q (q_head, T, d), k and v (kv_head, T, d)."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    classes: list
    types: list
    scale: float
    window: int | None
    softcap: float | None
    sinks: np.ndarray | None

    def __post_init__(self):
        self.length = self.q.shape[1]
        self.heads = self.q.shape[0]
        group = self.heads // self.k.shape[0]
        self.rows = [[self._row(h, h // group, t) for t in range(self.length)] for h in range(self.heads)]

    def sees(self, t, j):
        return j <= t and (self.window is None or t - j < self.window)

    def visible(self, t):
        return [j for j in range(self.length) if self.sees(t, j)]

    def _row(self, head, kv_head, t):
        keys = self.visible(t)
        x = np.array([self.scale * float(self.q[head, t] @ self.k[kv_head, j]) for j in keys])
        s = x if self.softcap is None else self.softcap * np.tanh(x / self.softcap)
        top = max(s.max(), -np.inf if self.sinks is None else self.sinks[head])
        weights = np.exp(s - top)
        extra = 0.0 if self.sinks is None else math.exp(self.sinks[head] - top)
        return {
            "keys": keys,
            "x": x,
            "s": s,
            "A": weights / (weights.sum() + extra),
            "sink": extra / (weights.sum() + extra),
        }

    def probability(self, head, t, j):
        row = self.rows[head][t]
        return float(row["A"][row["keys"].index(j)]) if j in row["keys"] else 0.0

    def product(self, head, t, j):
        row = self.rows[head][t]
        return float(row["x"][row["keys"].index(j)])


def entropy(p):
    p = p / p.sum()
    return float(-sum(a * math.log(a) for a in p if a > 0))


def logits(sequences, head):
    """Row statistics of one head, of all sequences."""
    out = {
        name: []
        for name in ("row_sd", "row_range", "max_minus_lse", "entropy", "entropy_norm", "support", "one_hot_rate")
    }
    out |= {f"{name}_no_first": [] for name in ("entropy", "entropy_norm", "support", "one_hot_rate")}
    centred, top, rest = [], [], []
    for seq in sequences:
        for t in range(seq.length):
            row = seq.rows[head][t]
            s = row["s"]
            centred.extend(s - s.mean())
            top.append(s.max())
            if t < 16:
                continue
            out["row_sd"].append(s.std())
            out["row_range"].append(s.max() - s.min())
            out["max_minus_lse"].append(-math.log(np.exp(s - s.max()).sum()))
            keep = [i for i, j in enumerate(row["keys"]) if j != 0]
            for suffix, p in (("", np.exp(s - s.max())), ("_no_first", np.exp(s[keep] - s[keep].max()))):
                h = entropy(p)
                out["entropy" + suffix].append(h)
                out["entropy_norm" + suffix].append(h / math.log(len(p)))
                out["support" + suffix].append(math.exp(h))
                out["one_hot_rate" + suffix].append(float(p.max() / p.sum() > 0.95))
            whole = np.exp(s - s.max())
            rest.append(sum(float(whole[i]) for i in keep) / float(whole.sum()))
    means = {name: float(np.mean(values)) for name, values in out.items()}
    means["hot"] = sum(hot * mass for hot, mass in zip(out["one_hot_rate_no_first"], rest, strict=True))
    means["rest"] = sum(rest)
    means["one_hot_rate_weighted"] = means["hot"] / means["rest"]
    means["n_late"] = len(rest)
    means["max"] = max(top)
    means["p999"] = float(np.quantile(centred, 0.999, method="inverted_cdf"))
    return means


def sinks(sequences, head):
    """first_mass, begin_mass and the learned sink's mass of one head."""
    first = [s.probability(head, t, 0) for s in sequences for t in range(1, s.length)]
    begin = [sum(s.probability(head, t, j) for j in range(10)) for s in sequences for t in range(10, s.length)]
    learned = [s.rows[head][t]["sink"] for s in sequences for t in range(s.length)]
    return {
        "first_mass": np.mean(first),
        "begin_mass": np.mean(begin),
        "sink_logit_mass": np.nan if sequences[0].sinks is None else np.mean(learned),
    }


def alpha(seq, head, k, rows=None):
    """Mean of A_tk over the rows t >= k that see k, and how many later ones there are."""
    seeing = [t for t in range(k, seq.length if rows is None else min(rows, seq.length)) if seq.sees(t, k)]
    return np.mean([seq.probability(head, t, k) for t in seeing]), len(seeing) - 1


def sink_rate(sequences, epsilon):
    """Share of (sequence, head) whose first 64 rows park more than epsilon on position 0."""
    values = [alpha(s, h, 0, rows=64)[0] > epsilon for s in sequences for h in range(s.heads)]
    return np.mean(values), len(values)


def sink_tokens(sequences, head):
    """For each (type, class): keys seen, keys that sink, sum of α."""
    found = {}
    for seq in sequences:
        for k in range(1, seq.length):
            value, later = alpha(seq, head, k)
            if later >= 16:
                n, sinking, total = found.get(seq.types[k], (0, 0, 0.0))
                found[seq.types[k]] = (n + 1, sinking + (value > 0.3), total + value)
    return found


def shares(sequences, head, members):
    """Attention received by some classes, their uniform share, tokens, rows."""
    got = even = tokens = rows = 0
    for seq in sequences:
        tokens += sum(c in members for c in seq.classes)
        rows += seq.length
        for t in range(seq.length):
            row = seq.rows[head][t]
            for a, j in zip(row["A"], row["keys"], strict=True):
                if seq.classes[j] in members:
                    got += a
                    even += 1 / len(row["keys"])
    return {"share": got / rows, "uniform_share": even / rows, "lift": got / even, "n_tokens": tokens}


def contrast_of(seq, head, k, reach=8):
    """Λ of the token at k by brute force: (Λ, offset, attention of its pairs), or None where it has none."""
    if k < 16:
        return None
    around = range(k - reach, k + reach + 1)
    queries = [
        t
        for t in range(seq.length)
        if abs(t - k) > reach and all(0 <= j < seq.length and seq.sees(t, j) for j in around)
    ]
    near = [j for j in around if j != k and 16 <= j < seq.length and seq.classes[j] == "content"]
    if len(queries) < 16 or not near:
        return None
    gaps = [seq.product(head, t, k) - np.mean([seq.product(head, t, j) for j in near]) for t in queries]
    mass = sum(seq.probability(head, t, k) for t in queries)
    return float(np.mean(gaps)), float(np.mean([j - k for j in near])), mass


def contrasts(sequences, head):
    """{(type): [(Λ, offset, mass), …]} over all tokens that have a Λ; a type is (string, class)."""
    found = {}
    for seq in sequences:
        for k in range(1, seq.length):
            one = contrast_of(seq, head, k)
            if one is not None:
                found.setdefault(seq.types[k], []).append(one)
    return found


def class_lambda(found, members, at_least=5):
    """Mean over types of the mean over their tokens, and the number of types."""
    values = [
        np.mean([x[0] for x in tokens])
        for (_, kind), tokens in found.items()
        if kind in members and len(tokens) >= at_least
    ]
    return (np.mean(values) if values else np.nan), len(values)


def lengths(values):
    """Statistics of lengths."""
    x = np.array(values)
    logs = np.log(x[x > 0])
    quantiles = {
        f"p{round(p * 100):02d}": np.quantile(x, p, method="inverted_cdf")
        for p in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    }
    return {
        "n": len(x),
        "mean": x.mean(),
        "geo_mean": math.exp(logs.mean()),
        "log_sd": logs.std(),
        "cv": x.std() / x.mean(),
        "min": x.min(),
        "max": x.max(),
    }, quantiles

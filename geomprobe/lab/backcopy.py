"""The Bigram–Backcopy task: attention has work to do at a few tokens and idles at all others.

Guo et al. 2024 (arXiv 2410.13835) found that a decoder trained on it parks the attention of idle rows on the first
position. Here the bigram table comes from a generator, where theirs is counted in Shakespeare's letters.
"""

import hashlib
from typing import Final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.call import AttentionCall
from geomprobe.attention.seam import Seen, watching
from geomprobe.errors import between
from geomprobe.lab.model import LabForCausalLM
from geomprobe.lab.recipe import Recipe
from geomprobe.lab.supply import ORDER
from geomprobe.labels import FROM_ROW

BOS: Final = 0
TRIGGERS: Final = (1, 2, 3)  # three of the most frequent tokens, as in the paper
RULE: Final = "bigram-backcopy 1"  # what happens at triggers; another one makes other data
GRAIN: Final = 2**16  # probabilities are whole multiples of 1/GRAIN, so that every machine draws the same tokens
_TABLE: Final = 241013835  # seed of the table
_SKEW: Final = 2.5  # leaves rows an entropy of 2.4 nats, about that of the next letter in English
_HELD_OUT: Final = (_TABLE, ORDER + 1)  # no update has this second number


def transition_table(vocab_size: int) -> np.ndarray:
    """What follows a token by chance: the same for every seed and arm.

    Token n has a weight of 1/n, times a random factor for each pair. The rows of triggers are 0, as nothing is left to
    chance there. BOS comes nowhere, and no trigger behind BOS, which it would copy: then a trigger always stands behind
    an ordinary token, and what follows it is one.

    Parameters
    ----------
    vocab_size : int

    Returns
    -------
    ndarray (token, next)
        Probabilities in float64, multiples of 1/GRAIN.
    """
    rng = np.random.default_rng(_TABLE)
    token = np.arange(1, vocab_size)
    factor = (-np.log1p(-rng.random((vocab_size, vocab_size - 1)))) ** _SKEW  # (token, next), next from 1 on
    weight = np.zeros((vocab_size, vocab_size))
    weight[:, 1:] = factor / token
    weight[BOS, list(TRIGGERS)] = 0
    cumulated = np.rint(GRAIN * (weight / weight.sum(1, keepdims=True)).cumsum(1))
    table = np.diff(cumulated, axis=1, prepend=0) / GRAIN
    table[list(TRIGGERS)] = 0
    return table


class BackcopySupply:
    """Sequences of the task, drawn anew for every update.

    BOS (id 0) stands first. Behind an ordinary token the next is drawn from its row of the table; behind a trigger
    comes the token before the trigger.

    Parameters
    ----------
    recipe : Recipe

    Raises
    ------
    InvalidParameter
        Where the vocabulary has fewer than 8 tokens or more than 1,024.
    """

    def __init__(self, recipe: Recipe) -> None:
        n = recipe.size.vocab_size
        between("vocab_size of the task backcopy", n, 8, 1024)
        self._recipe = recipe
        self.table = transition_table(n)
        self._triggers = np.isin(np.arange(n), TRIGGERS)
        # A row's thresholds lie above those of the rows before: one search finds the next token of every sequence.
        cumulated = np.rint(self.table.cumsum(1) * GRAIN).astype(np.int64)
        self._thresholds = (np.arange(n)[:, None] * GRAIN + cumulated).ravel()  # (token · next)

    @property
    def sha256(self) -> str:
        """Of the table and the rule."""
        counts = np.rint(self.table * GRAIN).astype("<i8")
        return hashlib.sha256(f"{RULE} {TRIGGERS} {counts.shape}".encode() + counts.tobytes()).hexdigest()

    def batch(self, step: int) -> Tensor:
        """The sequences of an update, decided by seed and step alone: (batch, length + 1)."""
        rng = np.random.default_rng((self._recipe.seed, ORDER, step))
        return self._draw(rng, self._recipe.batch, self._recipe.length)

    def held_out(self, length: int, n: int) -> Tensor:
        """Sequences from a stream of their own, whatever the seed; fewer are the first of more: (n, length + 1)."""
        return self._draw(np.random.default_rng(_HELD_OUT), n, length)

    def _draw(self, rng: np.random.Generator, n: int, length: int) -> Tensor:
        chance = rng.integers(0, GRAIN, (n, length)).T
        ids = np.full((length + 1, n), BOS)
        for row in range(length):
            now, before = ids[row], ids[max(row - 1, 0)]
            drawn = np.searchsorted(self._thresholds, now * GRAIN + chance[row], side="right") - now * len(self.table)
            ids[row + 1] = np.where(self._triggers[now], before, drawn)
        return torch.from_numpy(np.ascontiguousarray(ids.T, dtype=np.int64))

    def floor(self, length: int) -> float:
        """The lowest loss that a model can have on average, in nats.

        It is the entropy of what the rule leaves to chance: 0 at triggers, that of the table's row elsewhere, weighed
        with how often a token stands at each of the first `length` positions.

        Parameters
        ----------
        length : int
        """
        entropy = -(self.table * np.log(np.where(self.table > 0, self.table, 1))).sum(1)  # (token,)
        triggered = self.table[:, self._triggers].sum(1)  # (token,): how often a trigger follows
        now, before = np.zeros_like(entropy), np.zeros_like(entropy)  # ordinary tokens at a position and at that before
        now[BOS] = 1
        total = 0.0
        for _ in range(length):
            total += now @ entropy
            drawn = np.where(self._triggers, 0, now @ self.table)
            now, before = drawn + before * triggered, now
        return float(total / length)


def idle_sinks(model: LabForCausalLM, ids: Tensor) -> pd.DataFrame:
    """Where attention rests at rows that need none, and how the first key draws it there.

    Rows are queries from position 16 on (FROM_ROW), of all sequences together: `trigger` rows stand at a trigger,
    `idle` rows at any other token. `first` is position 0, which has BOS; `others` are the positions 1 and up that a row
    sees, its own with them. A mean of no rows is NaN.

    Parameters
    ----------
    model : LabForCausalLM
    ids : Tensor (sequence, pos)
        Sequences of the task, on the model's device.

    Returns
    -------
    DataFrame
        A row a layer and query head:

        - `n_idle`, `n_trigger`: rows;
        - `idle_first`, `trigger_first`: mean attention to the first position;
        - `idle_uniform`, `trigger_uniform`: the same if rows attended evenly to all they see;
        - `trigger_before`: mean attention of trigger rows to the token before, which they have to copy;
        - `key_first`, `key_others`, `value_first`, `value_others`: mean lengths of keys (as scored) and values, of the
          others at all positions;
        - `logit_gap`: mean over idle rows of the first logit less the mean of the others';
        - `gap_by_length`, `gap_by_angle`: its parts, which add up to it: (difference in length) × (mean cosine) and
          (difference in cosine) × (mean length) of first and others;
        - `length_first`, `length_others`: mean over idle rows of |q| |k| · scale, the logit that a key would have in
          the query's direction;
        - `cos_first`, `cos_others`: mean over idle rows of the cosine to the query, of the others weighed by length, so
          that length × cosine is their mean logit in each row.
    """
    length = ids.shape[1]
    late = torch.arange(length, device=ids.device) >= FROM_ROW  # (pos,)
    trigger = torch.isin(ids, torch.tensor(TRIGGERS, device=ids.device))  # (sequence, pos)
    idle, trigger = late & ~trigger, late & trigger
    parts: list[pd.DataFrame] = []

    def see(seen: Seen) -> None:
        found = {**_resting(seen.call, idle, trigger), **_drawn(seen.call, idle)}
        columns = {name: x.cpu().numpy() for name, x in found.items()}
        counts = {"n_idle": int(idle.sum()), "n_trigger": int(trigger.sum())}
        heads = range(seen.call.query.shape[1])
        parts.append(pd.DataFrame({"layer": len(parts), "head": heads, **counts, **columns}))

    training = model.training
    model.eval()
    with torch.no_grad(), watching(model, see, stages=False):
        model.model(ids)
    model.train(training)
    return pd.concat(parts, ignore_index=True)


def _by_query_head(x: Tensor, call: AttentionCall) -> Tensor:
    """Keys or values in float64, repeated for the query heads that share them."""
    return x.double().repeat_interleave(call.query.shape[1] // x.shape[1], dim=1)  # (sequence, q_head, pos, head_dim)


def _mean(x: Tensor, rows: Tensor) -> Tensor:
    """Mean of (sequence, head, pos) over the rows that are chosen, (sequence, pos): (head,)."""
    return x.transpose(1, 2)[rows].mean(0)


def _resting(call: AttentionCall, idle: Tensor, trigger: Tensor) -> dict[str, Tensor]:
    """Attention by kind of row, and the lengths of keys and values: (q_head,) each."""
    k, v = _by_query_head(call.key, call), _by_query_head(call.value, call)
    logit = call.query.double() @ k.transpose(2, 3) * call.scale  # (sequence, q_head, row, key)
    hidden = torch.ones(logit.shape[-2:], dtype=torch.bool, device=logit.device).triu(1)
    share = logit.masked_fill(hidden, -torch.inf).softmax(-1)
    before = torch.nn.functional.pad(share.diagonal(-1, 2, 3), (1, 0))  # (sequence, q_head, row)
    even = (~hidden).double().sum(-1).reciprocal().expand(share.shape[:3])  # (sequence, q_head, row)
    key, value = k.norm(dim=-1), v.norm(dim=-1)  # (sequence, q_head, pos)
    return {
        "idle_first": _mean(share[..., 0], idle),
        "idle_uniform": _mean(even, idle),
        "trigger_first": _mean(share[..., 0], trigger),
        "trigger_uniform": _mean(even, trigger),
        "trigger_before": _mean(before, trigger),
        "key_first": key[..., 0].mean(0),
        "key_others": key[..., 1:].mean((0, 2)),
        "value_first": value[..., 0].mean(0),
        "value_others": value[..., 1:].mean((0, 2)),
    }


def _drawn(call: AttentionCall, idle: Tensor) -> dict[str, Tensor]:
    """The logit of the first key against those of the others in idle rows, by length and angle: (q_head,) each."""
    q, k = call.query.double(), _by_query_head(call.key, call)
    logit = q @ k.transpose(2, 3) * call.scale  # (sequence, q_head, row, key)
    length = q.norm(dim=-1)[..., :, None] * k.norm(dim=-1)[..., None, :] * call.scale  # (sequence, q_head, row, key)
    other = torch.ones(logit.shape[-2:], dtype=torch.bool, device=logit.device).tril()
    other[:, 0] = False
    n = other.sum(-1)  # (row,)
    length_others = length.masked_fill(~other, 0).sum(-1) / n  # (sequence, q_head, row)
    cos_others = logit.masked_fill(~other, 0).sum(-1) / n / length_others
    length_first, cos_first = length[..., 0], logit[..., 0] / length[..., 0]
    by_length = (length_first - length_others) * (cos_first + cos_others) / 2
    by_angle = (cos_first - cos_others) * (length_first + length_others) / 2
    found = {
        "logit_gap": by_length + by_angle,
        "gap_by_length": by_length,
        "gap_by_angle": by_angle,
        "cos_first": cos_first,
        "cos_others": cos_others,
        "length_first": length_first,
        "length_others": length_others,
    }
    return {name: _mean(x, idle) for name, x in found.items()}

"""How far logits reach, and how sharp the softmax is that they make."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import Block, QKBatch
from geomprobe.attention.spec import LayerSpec, Spec
from geomprobe.errors import between
from geomprobe.labels import FROM_ROW
from geomprobe.probes.base import PROBES, AttentionProbe, Scratch, State, add_at, counts, zeros
from geomprobe.stats.histogram import Bins, quantile_bins

CENTRED_BINS = Bins(low=-32, high=224, per_unit=32)  # nats above the row's mean logit
SHAPE = ("row_sd", "row_range", "max_minus_lse")
SOFTMAX = tuple(
    f"{name}{suffix}" for suffix in ("", "_no_first") for name in ("entropy", "entropy_norm", "support", "one_hot_rate")
)
WEIGHTED = ("hot", "rest")  # 1 − A_t0, of the rows that are one-hot without position 0 and of all
DOCUMENT = ("entropy", "one_hot_rate", "one_hot_rate_no_first")
# What is kept of each row while its layer is looked at: what a soft-cap changes, and what it does not.
_SPREAD = ("mean", "sd", "lowest", "top", "log_normaliser")
_ROW = ("first_logit", "rest_max", "rest_log_normaliser", "rest_entropy")


@PROBES.register("logits")
@dataclass(frozen=True)
class Logits(AttentionProbe):
    """Reach of the logits, entropy and one-hot rate (docs/schema.md: logits).

    Parameters
    ----------
    one_hot_above : float
        A row counts as one-hot where its largest probability is above this.
    """

    one_hot_above: float = 0.95

    def __post_init__(self) -> None:
        between("one_hot_above", self.one_hot_above, 0, 1)

    def init(self, spec: Spec) -> State:
        """Sums over rows: (layer, capped, q_head) for what a soft-cap changes, else (layer, q_head)."""
        layers, heads = spec.model.n_layers, spec.model.q_heads
        capped, documents = 1 + spec.model.softcapped, len(spec.corpus.documents)
        state = {name: zeros(layers, capped, heads) for name in SHAPE}
        state |= {name: zeros(layers, heads) for name in SOFTMAX}
        state |= {name: zeros(layers, heads) for name in WEIGHTED}
        per_document = (*DOCUMENT, *WEIGHTED, "row_sd")
        state |= {f"document_{name}": zeros(layers, heads, documents) for name in per_document}
        return {
            **state,
            "max": torch.full((layers, capped, heads), -torch.inf, dtype=torch.float64),
            "document_max": torch.full((layers, heads, documents), -torch.inf, dtype=torch.float64),
            "histogram": counts(layers, capped, heads, CENTRED_BINS.count),
            "n_all": counts(layers),
            "n_rows": counts(layers),
            "n_rows_no_first": counts(layers),
            "document_n": counts(layers, documents),
            "document_n_no_first": counts(layers, documents),
        }

    def merge(self, a: State, b: State) -> State:
        """The state of both streams together."""
        return {
            name: torch.maximum(value, b[name]) if name in ("max", "document_max") else value + b[name]
            for name, value in a.items()
        }

    def open(self, batch: QKBatch) -> Scratch:
        """One number a row, filled block by block; capped 0 is before a soft-cap where the layer has one."""
        n, heads, length = batch.n_sequences, batch.q_heads, batch.length
        capped = 1 + (batch.softcap is not None)
        scratch = {name: zeros(capped, n, heads, length) for name in _SPREAD}
        scratch |= {name: zeros(n, heads, length) for name in _ROW}
        scratch["histogram"] = counts(capped, heads, CENTRED_BINS.count)
        return {name: value.to(batch.q["scored"].device) for name, value in scratch.items()}

    def add(self, scratch: Scratch, block: Block) -> None:
        """Add one block."""
        rows = slice(block.start, block.start + block.n_rows)
        capped = len(scratch["mean"])
        for which in range(capped):
            values = block.logits if which == capped - 1 else block.products
            for name, value in _row_spread(block, values, scratch["histogram"][which]).items():
                scratch[name][which, ..., rows] = value
        for name, value in _row_softmax(block).items():
            scratch[name][..., rows] = value

    def close(self, state: State, batch: QKBatch, scratch: Scratch) -> None:
        """Add a layer of a batch."""
        index, heads, device = batch.index, batch.q_heads, state["max"].device
        late = torch.arange(batch.length, device=scratch["mean"].device) >= FROM_ROW
        n_rest = batch.visibility.count - (batch.visibility.low == 0).long()  # (batch or 1, pos)
        some = (late & (n_rest > 0)).expand(batch.n_sequences, -1)  # rows in which something but position 0 is seen
        n_late, n_some = late.sum().expand(batch.n_sequences), some.sum(1)
        sums = {**self._spread_sums(scratch, late), **self._softmax_sums(scratch, batch, (late, some))}
        sums = {name: value.to(device) for name, value in sums.items()}

        # A layer without a soft-cap has only `after`, which is the last of a capped model's two.
        capped = slice(state["max"].shape[1] - len(scratch["mean"]), None)
        for name in SHAPE:
            state[name][index, capped, :heads] += sums[name].sum(1)
        for name in (*SOFTMAX, *WEIGHTED):
            state[name][index, :heads] += sums[name].sum(0)
        state["max"][index, capped, :heads] = torch.maximum(state["max"][index, capped, :heads], sums["max"].amax(1))
        state["histogram"][index, capped, :heads] += scratch["histogram"].to(device)
        state["n_all"][index] += batch.n_sequences * batch.length
        state["n_rows"][index] += n_late.sum().to(device)
        state["n_rows_no_first"][index] += n_some.sum().to(device)
        self._add_documents(state, batch, sums, (n_late, n_some))

    def _add_documents(
        self, state: State, batch: QKBatch, sums: dict[str, Tensor], n_rows: tuple[Tensor, Tensor]
    ) -> None:
        index, heads = batch.index, batch.q_heads
        document = batch.tokens.document.to(state["max"].device)
        for name in (*DOCUMENT, *WEIGHTED):
            add_at(state[f"document_{name}"][index, :heads], document, sums[name].T)
        add_at(state["document_row_sd"][index, :heads], document, sums["row_sd"][-1].T)
        add_at(state["document_n"][index], document, n_rows[0])
        add_at(state["document_n_no_first"][index], document, n_rows[1])
        slot = document.expand(heads, -1)  # (q_head, batch)
        highest = state["document_max"][index, :heads].scatter_reduce(1, slot, sums["highest"].T, "amax")
        state["document_max"][index, :heads] = highest

    def _spread_sums(self, rows: Scratch, late: Tensor) -> dict[str, Tensor]:
        """Sums of what a soft-cap changes: (capped, batch, q_head)."""
        top = rows["top"]  # (capped, batch, q_head, pos)
        highest = top - rows["mean"]
        return {
            "row_sd": rows["sd"][..., late].sum(-1),
            "row_range": (highest - rows["lowest"])[..., late].sum(-1),
            "max_minus_lse": (top - rows["log_normaliser"])[..., late].sum(-1),
            "max": top.amax(-1),
            "highest": highest[-1].amax(-1),  # (batch, q_head)
        }

    def _softmax_sums(self, rows: Scratch, batch: QKBatch, taken: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        """Sums of what the softmax makes: (batch, q_head)."""
        normaliser = rows["log_normaliser"][-1]  # over the keys
        log_first = rows["first_logit"] - normaliser
        log_rest = rows["rest_log_normaliser"] - normaliser
        first, rest = log_first.exp(), log_rest.exp()
        alone = rest == 0
        # H = (1 − p)·H_rest − p log p − (1 − p) log(1 − p): exact also where p is nearly 1, where sums would cancel.
        entropy = rest * torch.where(alone, 0, rows["rest_entropy"]) - _times_log(first, log_first)
        entropy = entropy - _times_log(rest, log_rest)
        top = torch.maximum(first, torch.where(alone, 0, (rows["rest_max"] - normaliser).exp()))
        rest_top = (rows["rest_max"] - rows["rest_log_normaliser"]).exp()
        n_keys = batch.visibility.count[:, None]  # (batch or 1, 1, pos)
        n_rest = n_keys - (batch.visibility.low == 0).long()[:, None]
        late, some = taken
        return {
            **self._sharpness("", (entropy, top, n_keys), late),
            **self._sharpness("_no_first", (rows["rest_entropy"], rest_top, n_rest), some[:, None]),
            "rest": torch.where(some[:, None], rest, 0).sum(-1),
            "hot": torch.where(some[:, None] & (rest_top > self.one_hot_above), rest, 0).sum(-1),
        }

    def _sharpness(self, suffix: str, row: tuple[Tensor, Tensor, Tensor], taken: Tensor) -> dict[str, Tensor]:
        entropy, top, n_keys = row
        most = n_keys.clamp(min=1).double().log().expand_as(entropy)
        values = {
            "entropy": entropy,
            # A row that sees one key has no entropy to lose; it counts as uniform.
            "entropy_norm": torch.where(most > 0, entropy / torch.where(most > 0, most, 1), 1),
            "support": entropy.exp(),
            "one_hot_rate": (top > self.one_hot_above).double(),
        }
        return {name + suffix: torch.where(taken, value, 0).sum(-1) for name, value in values.items()}

    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """Logits and a part of document_stats."""
        parts = [_layer_rows(state, index, layer) for index, layer in enumerate(spec.model.layers)]
        documents = [_document_rows(state, index, layer) for index, layer in enumerate(spec.model.layers)]
        return {
            "logits": pd.concat(parts, ignore_index=True),
            "document_stats": pd.concat(documents, ignore_index=True),
        }


def _times_log(p: Tensor, log_p: Tensor) -> Tensor:
    """P·log p, 0 at p = 0."""
    return torch.where(p > 0, p * log_p, 0)


def _row_softmax(block: Block) -> dict[str, Tensor]:
    """What the softmax of a row is made of, position 0 apart: each (batch, q_head, row)."""
    total = block.rest_total
    mean = (block.rest_weight * block.rest_shifted).sum(-1) / total
    return {
        "first_logit": block.first_logit,
        "rest_max": block.rest_max,
        "rest_log_normaliser": block.rest_log_normaliser,
        "rest_entropy": total.log() - mean,  # NaN where nothing but position 0 is seen
    }


def _row_spread(block: Block, values: Tensor, histogram: Tensor) -> dict[str, Tensor]:
    """Mean, spread and ends of each row over the keys it sees; its centred values go into `histogram`.

    Returns
    -------
    dict of Tensor (batch, q_head, row)
        mean; sd; lowest, below the mean; top; log_normaliser.
    """
    n_visible = block.n_visible.to(values.dtype)
    mean = block.total(values) / n_visible
    centred = block.blank(values - mean[..., None])
    spread = {
        "mean": mean,
        "sd": torch.linalg.vector_norm(centred, dim=-1) / n_visible.sqrt(),
        # Hidden entries hold 0, the row's mean, so they are never beyond the ends. (aminmax is 12 times slower.)
        "lowest": centred.amin(-1),
    }
    if values is block.logits:
        spread["top"], spread["log_normaliser"] = block.row_max, block.key_log_normaliser
    else:
        spread["top"] = centred.amax(-1) + mean
        spread["log_normaliser"] = block.hide(centred.clone()).logsumexp(-1) + mean
    _count(block, centred, histogram)
    return spread


def _count(block: Block, centred: Tensor, histogram: Tensor) -> None:
    """Count centred values by head into `histogram` (q_head, bin), in place; `centred` is used up."""
    bins = CENTRED_BINS
    n, heads, rows, keys = centred.shape
    # Clamped before the head's number is added, so that no value strays into another head's bins.
    centred.clamp_(bins.low, bins.high - 0.5 / bins.per_unit)
    head = torch.arange(heads, device=centred.device, dtype=centred.dtype)[:, None, None]
    slots = torch.add(head * bins.count - bins.low * bins.per_unit, centred, alpha=bins.per_unit).to(torch.int32)
    found = torch.bincount(slots.flatten(), minlength=heads * bins.count).view(heads, bins.count)
    hidden = rows * keys * n - int(block.n_visible.expand(n, -1, -1).sum())
    found[:, round(-bins.low * bins.per_unit)] -= hidden  # hidden entries were counted at a centred value of 0
    histogram += found


def _layer_rows(state: State, index: int, layer: LayerSpec) -> pd.DataFrame:
    heads = layer.q_heads
    n_all, n_rows, n_rest = (int(state[name][index]) for name in ("n_all", "n_rows", "n_rows_no_first"))
    last = state["max"].shape[1] - 1
    frames = []
    for which in range(last + 1) if layer.softcap is not None else [last]:
        after = which == last
        histogram = state["histogram"][index, which, :heads].numpy()
        found = quantile_bins(histogram, 0.999)
        frame = pd.DataFrame({"layer": layer.layer, "q_head": np.arange(heads), "n_rows": n_all, "n_late": n_rows})
        frame.insert(2, "capped", "after" if after else "before")
        frame["max"] = _known(state["max"][index, which, :heads], n_all)
        for name in SHAPE:
            frame[name] = _mean(state[name][index, which, :heads], n_rows)
        frame["p999"] = np.where(found >= 0, CENTRED_BINS.centres[np.maximum(found, 0)], np.nan)
        for name in SOFTMAX:
            n = n_rest if name.endswith("_no_first") else n_rows
            frame[name] = _mean(state[name][index, :heads], n) if after else np.nan
        frame["one_hot_rate_weighted"] = _share(state, index, heads) if after else np.nan
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _mean(total: Tensor, n: int) -> np.ndarray:
    return total.numpy() / n if n else np.full(total.shape, np.nan)


def _share(state: State, index: int, heads: int) -> np.ndarray:
    """Of what goes to other keys than position 0, the part in rows that are one-hot there: (q_head,)."""
    hot, rest = (state[name][index, :heads].numpy() for name in WEIGHTED)
    return hot / np.where(rest > 0, rest, np.nan)


def _known(value: Tensor, n: int) -> np.ndarray:
    return value.numpy().copy() if n else np.full(value.shape, np.nan)


def _document_rows(state: State, index: int, layer: LayerSpec) -> pd.DataFrame:
    n, n_rest = (state[name][index].numpy() for name in ("document_n", "document_n_no_first"))
    some, rest = np.where(n > 0, n, np.nan), np.where(n_rest > 0, n_rest, np.nan)
    frame = pd.DataFrame({"layer": layer.layer, "document": np.arange(len(n))})
    for name in DOCUMENT:
        per = rest if name.endswith("_no_first") else some
        frame[name] = (state[f"document_{name}"][index, : layer.q_heads].numpy() / per).mean(0)
    hot, mass = (state[f"document_{name}"][index, : layer.q_heads].numpy().sum(0) for name in WEIGHTED)
    frame["one_hot_rate_weighted"] = hot / np.where(mass > 0, mass, np.nan)
    frame["rest_mass"] = mass / layer.q_heads / rest
    highest = state["document_max"][index, : layer.q_heads].numpy()
    frame["logit_max"] = np.where(np.isfinite(highest), highest, np.nan).mean(0)
    frame["logit_sd"] = (state["document_row_sd"][index, : layer.q_heads].numpy() / some).mean(0)
    return frame

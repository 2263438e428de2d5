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
DOCUMENT = ("entropy", "one_hot_rate", "one_hot_rate_no_first")


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
        state |= {f"document_{name}": zeros(layers, heads, documents) for name in (*DOCUMENT, "row_sd")}
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
        """Sums over the rows of each sequence; capped 0 is before a soft-cap where the layer has one."""
        n, heads = batch.n_sequences, batch.q_heads
        capped = 1 + (batch.softcap is not None)
        device = batch.q["scored"].device
        scratch = {name: zeros(capped, n, heads) for name in SHAPE} | {name: zeros(n, heads) for name in SOFTMAX}
        scratch["max"] = torch.full((capped, n, heads), -torch.inf, dtype=torch.float64)
        scratch["centred_max"] = torch.full((n, heads), -torch.inf, dtype=torch.float64)
        scratch["histogram"] = counts(capped, heads, CENTRED_BINS.count)
        scratch["n_rows"] = counts(n)
        scratch["n_rows_no_first"] = counts(n)
        return {name: value.to(device) for name, value in scratch.items()}

    def add(self, scratch: Scratch, block: Block) -> None:
        """Add one block."""
        late = torch.arange(block.start, block.start + block.n_rows, device=block.logits.device) >= FROM_ROW
        capped = len(scratch["max"])
        for which in range(capped):
            values = block.logits if which == capped - 1 else block.products
            spread = _row_spread(block, values, scratch["histogram"][which])
            top = spread["mean"] + spread["highest"]
            scratch["max"][which] = torch.maximum(scratch["max"][which], top.amax(-1).double())
            normaliser = block.key_log_normaliser if which == capped - 1 else spread["log_normaliser"]
            scratch["row_sd"][which] += _total(spread["sd"], late)
            scratch["row_range"][which] += _total(spread["highest"] - spread["lowest"], late)
            scratch["max_minus_lse"][which] += _total(top - normaliser, late)
        highest = spread["highest"].amax(-1).double()
        scratch["centred_max"] = torch.maximum(scratch["centred_max"], highest)
        self._add_softmax(scratch, block, late)

    def _add_softmax(self, scratch: Scratch, block: Block, late: Tensor) -> None:
        n_visible = block.n_visible  # (batch or 1, 1, row)
        rest_entropy = _rest_entropy(block)
        rest_share = (block.rest_log_normaliser - block.key_log_normaliser).exp()
        log_first = block.first_logit - block.key_log_normaliser
        first_share = log_first.exp()
        # H = (1 − p)·H_rest − p log p − (1 − p) log(1 − p): exact also where p is nearly 1, where sums would cancel.
        split = -_times_log(first_share, log_first) - _times_log(
            rest_share, block.rest_log_normaliser - block.key_log_normaliser
        )
        alone = rest_share == 0
        entropy = torch.where(alone, 0, rest_share * torch.where(alone, 0, rest_entropy)) + split
        top_rest = (block.rest_max - block.key_log_normaliser).exp()
        top = torch.maximum(first_share, torch.where(alone, 0, top_rest))

        sees_first = block.visibility.low[:, None, block.start : block.start + block.n_rows] == 0
        n_rest = n_visible - sees_first.long()
        some = (n_rest > 0) & late  # (batch or 1, 1, row): rows in which something but position 0 is seen
        n = len(entropy)
        scratch["n_rows"] += (late.sum()).expand(n)
        scratch["n_rows_no_first"] += some.sum((1, 2)).expand(n)
        self._add_sharpness(scratch, "", (entropy, top, n_visible), late.expand_as(entropy))
        rest_top = 1 / block.rest_total
        self._add_sharpness(scratch, "_no_first", (rest_entropy, rest_top, n_rest), some.expand_as(entropy))

    def _add_sharpness(
        self, scratch: Scratch, suffix: str, values: tuple[Tensor, Tensor, Tensor], rows: Tensor
    ) -> None:
        entropy, top, n_visible = values
        most = n_visible.clamp(min=1).to(entropy.dtype).log().expand_as(entropy)
        # A row that sees one key has no entropy to lose; it counts as 0 of 0, as uniform.
        norm = torch.where(most > 0, entropy / torch.where(most > 0, most, 1), 1)
        for name, value in (
            ("entropy", entropy),
            ("entropy_norm", norm),
            ("support", entropy.exp()),
            ("one_hot_rate", (top > self.one_hot_above).to(entropy.dtype)),
        ):
            scratch[name + suffix] += torch.where(rows, value, 0).double().sum(-1)

    def close(self, state: State, batch: QKBatch, scratch: Scratch) -> None:
        """Add a layer of a batch."""
        index, heads, device = batch.index, batch.q_heads, state["max"].device
        scratch = {name: value.to(device) for name, value in scratch.items()}
        document = batch.tokens.document.to(device)
        # A layer without a soft-cap has only `after`, which is the last of a capped model's two.
        capped = slice(state["max"].shape[1] - len(scratch["max"]), None)
        for name in SHAPE:
            state[name][index, capped, :heads] += scratch[name].sum(1)
        for name in SOFTMAX:
            state[name][index, :heads] += scratch[name].sum(0)
        state["max"][index, capped, :heads] = torch.maximum(state["max"][index, capped, :heads], scratch["max"].amax(1))
        state["histogram"][index, capped, :heads] += scratch["histogram"]
        state["n_all"][index] += batch.n_sequences * batch.length
        state["n_rows"][index] += scratch["n_rows"].sum()
        state["n_rows_no_first"][index] += scratch["n_rows_no_first"].sum()
        for name in DOCUMENT:
            add_at(state[f"document_{name}"][index, :heads], document, scratch[name].T)
        add_at(state["document_row_sd"][index, :heads], document, scratch["row_sd"][-1].T)
        add_at(state["document_n"][index], document, scratch["n_rows"])
        add_at(state["document_n_no_first"][index], document, scratch["n_rows_no_first"])
        for sequence, slot in enumerate(document.tolist()):
            cell = state["document_max"][index, :heads, slot]
            state["document_max"][index, :heads, slot] = torch.maximum(cell, scratch["centred_max"][sequence])

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


def _total(value: Tensor, rows: Tensor) -> Tensor:
    """Sum over the rows that count, in float64: (batch, q_head)."""
    return value[..., rows].double().sum(-1)


def _rest_entropy(block: Block) -> Tensor:
    """Entropy of a row without position 0, renormalised: (batch, q_head, row); NaN where nothing else is seen."""
    total = block.rest_total
    mean = (block.rest_weight * block.rest_shifted).sum(-1) / total
    return total.log() - mean


def _row_spread(block: Block, values: Tensor, histogram: Tensor) -> dict[str, Tensor]:
    """Mean, spread and ends of each row over the keys it sees; its centred values go into `histogram`.

    Returns
    -------
    dict of Tensor (batch, q_head, row)
        mean; sd; highest and lowest, above and below the mean; log_normaliser.
    """
    n_visible = block.n_visible.to(values.dtype)
    centred = block.hide(values.clone(), 0.0)
    mean = centred.sum(-1) / n_visible
    centred -= mean[..., None]
    block.hide(centred, 0.0)
    sd = torch.linalg.vector_norm(centred, dim=-1) / n_visible.sqrt()
    # Hidden entries hold 0, the row's mean, so they are never beyond the ends.
    lowest, highest = torch.aminmax(centred, dim=-1)
    spread = {"mean": mean, "sd": sd, "highest": highest, "lowest": lowest}
    if values is block.products and block.products is not block.logits:
        hidden = block.hide(centred.clone(), -torch.inf)
        spread["log_normaliser"] = hidden.logsumexp(-1) + mean
    _count(block, centred, histogram)
    return spread


def _count(block: Block, centred: Tensor, histogram: Tensor) -> None:
    """Count centred values by head into `histogram` (q_head, bin), in place; `centred` is used up."""
    bins = CENTRED_BINS
    n, heads, rows, keys = centred.shape
    slots = centred.mul_(bins.per_unit).sub_(bins.low * bins.per_unit).clamp_(0, bins.count - 1).to(torch.int32)
    slots += torch.arange(heads, device=slots.device, dtype=torch.int32)[:, None, None] * bins.count
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
        frame = pd.DataFrame({"layer": layer.layer, "q_head": np.arange(heads), "n_rows": n_all})
        frame.insert(2, "capped", "after" if after else "before")
        frame["max"] = _known(state["max"][index, which, :heads], n_all)
        for name in SHAPE:
            frame[name] = _mean(state[name][index, which, :heads], n_rows)
        frame["p999"] = np.where(found >= 0, CENTRED_BINS.centres[np.maximum(found, 0)], np.nan)
        for name in SOFTMAX:
            n = n_rest if name.endswith("_no_first") else n_rows
            frame[name] = _mean(state[name][index, :heads], n) if after else np.nan
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _mean(total: Tensor, n: int) -> np.ndarray:
    return total.numpy() / n if n else np.full(total.shape, np.nan)


def _known(value: Tensor, n: int) -> np.ndarray:
    return value.numpy().copy() if n else np.full(value.shape, np.nan)


def _document_rows(state: State, index: int, layer: LayerSpec) -> pd.DataFrame:
    n, n_rest = (state[name][index].numpy() for name in ("document_n", "document_n_no_first"))
    some, rest = np.where(n > 0, n, np.nan), np.where(n_rest > 0, n_rest, np.nan)
    frame = pd.DataFrame({"layer": layer.layer, "document": np.arange(len(n))})
    for name in DOCUMENT:
        per = rest if name.endswith("_no_first") else some
        frame[name] = (state[f"document_{name}"][index, : layer.q_heads].numpy() / per).mean(0)
    highest = state["document_max"][index, : layer.q_heads].numpy()
    frame["logit_max"] = np.where(np.isfinite(highest), highest, np.nan).mean(0)
    frame["logit_sd"] = (state["document_row_sd"][index, : layer.q_heads].numpy() / some).mean(0)
    return frame

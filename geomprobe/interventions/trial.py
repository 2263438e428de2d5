"""What edits cost: the model's predictions and its attention with them and without, window by window."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.batch import Tokens
from geomprobe.attention.interface import callers
from geomprobe.attention.seam import Seen, editing, watching
from geomprobe.attention.spec import ModelSpec
from geomprobe.attention.stages import Notebook
from geomprobe.errors import InvalidParameter, UnsupportedModel
from geomprobe.interventions.edits import EDITS, Known, Scene, Setting, displacement
from geomprobe.labels import CLASS_INDEX, CLOSED_CLASSES, FROM_ROW, TOKEN_CLASSES
from geomprobe.models.calling import run as call
from geomprobe.stats.gauge import Pairing
from geomprobe.stats.suffix import contrast, neighbours_of, queries_of

ROWS = 128  # rows of logits taken to float32 at a time
REACH, MIN_QUERIES = 8, 16  # of Λ, as in class_attention
SHAM = Setting("sham")
SHAM_LIMIT = 1e-4


@dataclass(frozen=True, eq=False)
class Variant:
    """An edit in some layers.

    Attributes
    ----------
    setting : Setting
    layers : tuple of int
    """

    setting: Setting
    layers: tuple[int, ...]


class Calibration:
    """Lengths in the first half of the windows: what edits may know.

    Parameters
    ----------
    spec : ModelSpec
    """

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        n = len(TOKEN_CLASSES)
        self._sums = {
            layer.module: {
                "k": torch.zeros(layer.kv_heads, n, 2, dtype=torch.float64),
                "q": torch.zeros(layer.q_heads, 2, dtype=torch.float64),
            }
            for layer in spec.layers
        }

    def add(self, seen: Seen, token_class: Tensor) -> None:
        """Add one layer of one batch."""
        if seen.call.name not in self._sums:
            return
        sums = self._sums[seen.call.name]
        for vector, x in (("k", seen.call.key), ("q", seen.call.query)):
            length = x[:, :, 1:].double().norm(dim=-1).cpu()  # (batch, head, pos)
            alive = length > 0
            log = torch.where(alive, length, 1).log()
            both = torch.stack([alive.double(), log * alive], -1)  # (batch, head, pos, 2)
            if vector == "q":
                sums["q"] += both.sum((0, 2))
            else:
                one_hot = torch.nn.functional.one_hot(token_class[:, 1:].cpu(), len(TOKEN_CLASSES)).double()
                sums["k"] += torch.einsum("bhpx,bpc->hcx", both, one_hot)

    def known(self) -> dict[str, Known]:
        """By module."""
        made = {}
        for layer in self.spec.layers:
            sums = self._sums[layer.module]
            key = sums["k"][:, [i for i, name in enumerate(TOKEN_CLASSES) if name != "first"]].sum(1)
            counts = sums["k"][..., 0]
            norm = layer.norms.get("k")
            usable = norm is not None and norm.axis == "head" and norm.order == "before_rope"
            made[layer.module] = Known(
                key=(key[:, 1] / key[:, 0]).exp(),
                query=(sums["q"][:, 1] / sums["q"][:, 0]).exp(),
                by_class=sums["k"][..., 1] / torch.where(counts > 0, counts, torch.nan),
                pairing=None if layer.pairs is None else Pairing.of(layer.head_dim, layer.pairs[1], layer.pairs[0]),
                gain=torch.from_numpy(norm.gain) if usable and norm is not None else None,
            )
        return made


@dataclass(eq=False)
class _Sums:
    """What a variant did to each document."""

    n: np.ndarray
    loss: np.ndarray
    kl: np.ndarray
    moved: list[tuple[float, int]]  # and how many windows
    sinks: dict[str, list[np.ndarray]]  # (layer, class, 2)

    @classmethod
    def of(cls, documents: int) -> "_Sums":
        """Of nothing."""
        n, loss, kl = (np.zeros(documents) for _ in range(3))
        return cls(n, loss, kl, [], {"before": [], "after": []})


class Trial:
    """Edits tried on the second half of the windows.

    Parameters
    ----------
    model : Module
    spec : ModelSpec
    notebook : Notebook
        That of `examine`.
    known : dict from module to Known
    seed : int
    """

    def __init__(self, model: Module, spec: ModelSpec, notebook: Notebook, known: dict[str, Known], seed: int) -> None:
        through = callers(model)
        for layer in spec.layers:
            if layer.module not in through:
                raise UnsupportedModel(
                    f"Layer {layer.layer} ({layer.module}) computes attention in code of its own, whose queries and "
                    "keys cannot be replaced; interventions need transformers' attention interface."
                )
        if not spec.causal:
            raise UnsupportedModel("Interventions are judged by the loss, and this model predicts no next token.")
        self.model, self.spec, self.notebook, self.known, self.seed = model, spec, notebook, known, seed
        self._numbers = {layer.module: layer.layer for layer in spec.layers}

    def run(
        self,
        batches: Iterator[tuple[Tensor, Tokens]],
        variants: Sequence[Variant],
        documents: int,
        report: Callable[[int], None] = lambda _done: None,
    ) -> pd.DataFrame:
        """The table `interventions` (docs/schema.md).

        Parameters
        ----------
        batches : iterator of (ids, Tokens)
        variants : sequence of Variant
            The sham must be among them.
        documents : int
            Of the corpus.
        report : callable
            Told after each forward pass.
        """
        sums = [_Sums.of(documents) for _ in variants]
        done = 0
        for number, (ids, tokens) in enumerate(batches):
            base, base_sinks = self._forward(ids, tokens, None, number)
            report(done := done + 1)
            for variant, into in zip(variants, sums, strict=True):
                logits, sinks = self._forward(ids, tokens, variant, number, into.moved)
                _compare(base, logits, ids, tokens, into)
                for name, found in (("before", base_sinks), ("after", sinks)):
                    into.sinks[name].append(found)
                report(done := done + 1)
        return pd.DataFrame([row for v, s in zip(variants, sums, strict=True) for row in _rows(v, s, self.spec)])

    def _forward(
        self,
        ids: Tensor,
        tokens: Tokens,
        variant: Variant | None,
        number: int,
        moved: list[tuple[float, int]] | None = None,
    ) -> tuple[Tensor, np.ndarray]:
        """Logits, and what `_class_sums` says of each layer."""
        sinks: list[np.ndarray] = []
        with (
            torch.no_grad(),
            watching(self.model, lambda seen: sinks.append(_class_sums(seen, tokens)), stages=False),
            self._edited(variant, tokens, number, moved),
        ):
            logits = call(self.model, {"input_ids": ids}).logits
        return logits, np.stack(sinks)

    @contextmanager
    def _edited(
        self, variant: Variant | None, tokens: Tokens, number: int, moved: list[tuple[float, int]] | None
    ) -> Iterator[None]:
        if variant is None:
            with nullcontext():
                yield
            return

        def edit(seen: Seen) -> tuple[Tensor, Tensor] | None:
            layer = self._numbers.get(seen.call.name)
            if layer is None or layer not in variant.layers:
                return None
            # The same draw for a layer and batch in every edit, so that edits of one layer add up to those of all.
            seed = zlib.crc32(f"{self.seed} {layer} {number}".encode())
            scene = Scene(seen, self.known[seen.call.name], tokens.token_class, seed)
            query, key = EDITS[variant.setting.edit](scene, variant.setting)
            if moved is not None:
                moved.append((displacement(seen.call.key, key), len(key)))
            return query, key

        with editing(self.model, edit, self.notebook):
            yield


def _class_sums(seen: Seen, tokens: Tokens) -> np.ndarray:
    """Sum and count of Λ over tokens and heads, of function words and of content words: (class, 2)."""
    late = torch.arange(tokens.token_class.shape[1], device=tokens.token_class.device) >= FROM_ROW
    content = (tokens.token_class == CLASS_INDEX["content"]) & late
    near, queries = neighbours_of(content, REACH), queries_of(seen.call.visibility(), REACH)
    value = contrast(seen.call.query, seen.call.key, neighbours=near, queries=queries, scale=seen.call.scale)
    has = (near.count > 0) & (queries.count >= MIN_QUERIES) & late
    closed = torch.tensor([CLASS_INDEX[name] for name in CLOSED_CLASSES], device=tokens.token_class.device)
    sums = []
    for inside in (torch.isin(tokens.token_class, closed), content):
        own = value[(inside & has)[:, None].expand_as(value)]
        sums.append((float(own.double().sum()), own.numel()))
    return np.array(sums)


def _class_sink(batches: list[np.ndarray]) -> float:
    """Λ of function words less Λ of content words, mean over layers: what an edit is asked to change."""
    sums = np.sum(batches, axis=0)  # (layer, class, 2)
    means = sums[..., 0] / np.where(sums[..., 1] > 0, sums[..., 1], np.nan)
    sinks = means[:, 0] - means[:, 1]
    return float(np.nanmean(sinks)) if np.isfinite(sinks).any() else float("nan")


def _compare(base: Tensor, edited: Tensor, ids: Tensor, tokens: Tokens, into: _Sums) -> None:
    """Losses and divergences of the positions ≥ 16, by document."""
    document = tokens.document.cpu().numpy()
    for row in range(len(ids)):
        for start in range(FROM_ROW, ids.shape[1] - 1, ROWS):
            at = slice(start, min(start + ROWS, ids.shape[1] - 1))
            target = ids[row, at.start + 1 : at.stop + 1]
            own, other = (x[row, at].float().log_softmax(-1) for x in (base, edited))
            lost = own.gather(-1, target[:, None]) - other.gather(-1, target[:, None])
            into.loss[document[row]] += float(lost.double().sum())
            into.kl[document[row]] += float((own.exp() * (own - other)).double().sum())
            into.n[document[row]] += len(target)


def _rows(variant: Variant, sums: _Sums, spec: ModelSpec) -> list[dict[str, Any]]:
    whole = len(variant.layers) == spec.n_layers
    common = {
        "edit": variant.setting.edit,
        "setting": str(variant.setting),
        "strength": variant.setting.strength,
        "token_class": variant.setting.token_class,
        "layers": "all" if whole else ",".join(map(str, variant.layers)),
    }
    values, windows = zip(*sums.moved, strict=True) if sums.moved else ((float("nan"),), (1,))
    moved = float(np.average(values, weights=windows))
    before, after = (_class_sink(sums.sinks[name]) for name in ("before", "after"))
    total = sums.n.sum()
    rows = [
        {
            **common,
            "document": -1,
            "n_tokens": int(total),
            "delta_ce": sums.loss.sum() / total,
            "kl": sums.kl.sum() / total,
            "delta_class_sink": after - before,
            "displacement": moved,
        }
    ]
    rows += [
        {
            **common,
            "document": int(document),
            "n_tokens": int(sums.n[document]),
            "delta_ce": sums.loss[document] / sums.n[document],
            "kl": sums.kl[document] / sums.n[document],
        }
        for document in np.flatnonzero(sums.n)
    ]
    return rows


def variants_of(settings: Sequence[Setting], layers: Sequence[int], *, one_by_one: bool) -> list[Variant]:
    """The sham first, then every edit in all the layers at once, and in each by itself where asked for."""
    if not layers:
        raise InvalidParameter("layers must name at least one attention layer.")
    every = tuple(layers)
    asked = list({str(setting): setting for setting in (SHAM, *settings)}.values())  # each once
    made = [Variant(setting, every) for setting in asked]
    if one_by_one and len(every) > 1:
        made += [Variant(setting, (layer,)) for setting in asked[1:] for layer in every]
    return made

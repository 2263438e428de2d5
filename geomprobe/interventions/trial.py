"""What edits cost: the model's predictions and its attention with them and without, window by window."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.batch import Tokens, Visibilities
from geomprobe.attention.interface import callers
from geomprobe.attention.seam import Seen, editing, watching
from geomprobe.attention.spec import ModelSpec
from geomprobe.attention.stages import Notebook
from geomprobe.errors import InvalidParameter, UnsupportedModel
from geomprobe.interventions.edits import Known, Scene, Setting, make
from geomprobe.labels import BALANCED, CLASS_INDEX, CLOSED_CLASSES, FROM_ROW, RAW
from geomprobe.models.calling import run as call
from geomprobe.stats.suffix import contrast, neighbours_of, queries_of

ROWS = 32  # rows of logits worked on at a time
REACH, MIN_QUERIES = 8, 16  # of Λ, as in class_attention
SHAM = Setting("sham")
SHAM_LIMIT = 1e-4
ALL_DOCUMENTS = -1


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


@dataclass(eq=False)
class Batch:
    """Some windows: what edits of all layers and variants share.

    Attributes
    ----------
    ids : Tensor (batch, pos), int64
    tokens : Tokens
    number : int
        Of the batch among the others.
    """

    ids: Tensor
    tokens: Tokens
    number: int

    def __post_init__(self) -> None:
        token_class = self.tokens.token_class
        late = torch.arange(token_class.shape[1], device=token_class.device) >= FROM_ROW
        closed = torch.tensor([CLASS_INDEX[name] for name in CLOSED_CLASSES], device=token_class.device)
        content = (token_class == CLASS_INDEX["content"]) & late
        self._classes = (torch.isin(token_class, closed) & late, content)
        self._near = neighbours_of(content, REACH)
        self.visibilities = Visibilities()

    def class_sums(self, seen: Seen) -> np.ndarray:
        """Sum and count of Λ over tokens and heads, of function words and of content words: (class, 2)."""
        made, heads = seen.call, seen.call.query.shape[1]
        queries = queries_of(self.visibilities.of(made, self.tokens.valid), REACH)
        # Λ is linear in the query: the sum over the heads that share a key head is that of the sum of their queries.
        pooled = made.query.unflatten(1, (made.key.shape[1], -1)).sum(2, dtype=torch.float64)
        value = contrast(pooled, made.key, neighbours=self._near, queries=queries, scale=made.scale).sum(
            1
        )  # (batch, pos)
        has = (self._near.count > 0) & (queries.count >= MIN_QUERIES)
        sums = [(float(value[inside & has].sum()), heads * int((inside & has).sum())) for inside in self._classes]
        return np.array(sums)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a forward pass gave.

    Attributes
    ----------
    logits : Tensor (batch, pos, vocabulary)
    level : Tensor (batch, pos - 16), float32 or wider
        Log-sum-exp of the logits of positions ≥ 16.
    sinks : dict from module to ndarray (class, 2)
        What `class_sums` says of each layer.
    """

    logits: Tensor
    level: Tensor
    sinks: dict[str, np.ndarray]


@dataclass(eq=False)
class _Pass:
    """A forward pass under way."""

    batch: Batch
    variant: Variant | None = None
    plain: Outcome | None = None
    sinks: dict[str, np.ndarray] = field(default_factory=dict)
    moved: list[float] = field(default_factory=list)
    touched: bool = False  # whether a layer has been edited yet: up to then all is as without edits


@dataclass(eq=False)
class Sums:
    """What a variant did to each document."""

    n: np.ndarray
    loss: np.ndarray
    kl: np.ndarray
    moved: list[tuple[float, int]]  # and how many windows
    sinks: dict[str, list[np.ndarray]]  # (layer, class, 2)

    @classmethod
    def of(cls, documents: int) -> "Sums":
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
        self._now: _Pass | None = None

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
        sums = [Sums.of(documents) for _ in variants]
        done = 0
        with self.opened():
            for number, (ids, tokens) in enumerate(batches):
                batch = Batch(ids, tokens, number)
                plain = self.plain(batch)
                report(done := done + 1)
                for variant, into in zip(variants, sums, strict=True):
                    self.edited(batch, variant, plain, into)
                    report(done := done + 1)
        return pd.DataFrame([row for v, s in zip(variants, sums, strict=True) for row in self._rows(v, s)])

    @contextmanager
    def opened(self) -> Iterator[None]:
        """The seam opened: `plain` and `edited` work inside."""
        with (
            torch.no_grad(),
            watching(self.model, self._see, stages=False),
            editing(self.model, self._edit, self.notebook),
        ):
            yield

    def plain(self, batch: Batch) -> Outcome:
        """A batch without an edit."""
        logits, now = self._forward(_Pass(batch))
        late = logits[:, FROM_ROW:]
        level = torch.stack([_level(row) for row in late])
        return Outcome(logits, level, now.sinks)

    def edited(self, batch: Batch, variant: Variant, plain: Outcome, into: Sums) -> None:
        """The same batch with an edit; what that changes is added to `into`."""
        logits, now = self._forward(_Pass(batch, variant, plain))
        _compare(plain, logits, batch, into)
        windows = len(batch.ids)
        into.moved += [(value, windows) for value in now.moved]
        for name, found in (("before", plain.sinks), ("after", now.sinks)):
            into.sinks[name].append(np.stack(list(found.values())))

    def _forward(self, now: _Pass) -> tuple[Tensor, _Pass]:
        self._now = now
        try:
            return call(self.model, {"input_ids": now.batch.ids}).logits, now
        finally:
            self._now = None
            now.batch.visibilities.forget()

    def _see(self, seen: Seen) -> None:
        now, name = self._now, seen.call.name
        if now is None or name not in self._numbers:
            return
        if now.plain is not None and not now.touched:
            now.sinks[name] = now.plain.sinks[name]
        else:
            now.sinks[name] = now.batch.class_sums(seen)

    def _edit(self, seen: Seen) -> tuple[Tensor, Tensor] | None:
        now, layer = self._now, self._numbers.get(seen.call.name)
        if now is None or now.variant is None or layer not in now.variant.layers:
            return None
        # The same draw for a layer and batch in every edit, so that edits of one layer add up to those of all.
        seed = zlib.crc32(f"{self.seed} {layer} {now.batch.number}".encode())
        scene = Scene(seen, self.known[seen.call.name], now.batch.tokens.token_class, seed)
        made = make(scene, now.variant.setting)
        now.moved.append(made.displacement)
        now.touched = True
        return made.query, made.key

    def _rows(self, variant: Variant, sums: Sums) -> list[dict[str, Any]]:
        setting, chosen = variant.setting, set(variant.layers)
        common = {
            "edit": setting.edit,
            "setting": str(setting),
            "strength": np.nan if setting.against else setting.strength,
            "token_class": setting.token_class,
            "against": setting.against,
            "gauge": setting.gauge,
            "layers": "all" if len(chosen) == self.spec.n_layers else ",".join(map(str, variant.layers)),
        }
        values, windows = zip(*sums.moved, strict=True) if sums.moved else ((np.nan,), (1,))
        before, after = (_class_sink(sums.sinks[name]) for name in ("before", "after"))
        whole = {
            **common,
            "document": ALL_DOCUMENTS,
            "n_tokens": int(sums.n.sum()),
            "delta_ce": sums.loss.sum() / sums.n.sum(),
            "kl": sums.kl.sum() / sums.n.sum(),
            "delta_class_sink": after - before,
            "displacement": float(np.average(values, weights=windows)),
            "n_kept": self._kept(setting, chosen),
        }
        each = [
            {
                **common,
                "document": int(document),
                "n_tokens": int(sums.n[document]),
                "delta_ce": sums.loss[document] / sums.n[document],
                "kl": sums.kl[document] / sums.n[document],
            }
            for document in np.flatnonzero(sums.n)
        ]
        return [whole, *each]

    def _kept(self, setting: Setting, layers: set[int]) -> int:
        """Rotary pairs and channels of the edited layers that could not be balanced and are as in the raw gauge."""
        if setting.gauge == RAW:
            return 0
        known = [self.known[layer.module].balanced for layer in self.spec.layers if layer.layer in layers]
        return sum(found.gauge.n_kept for found in known if found is not None and found.gauge is not None)


def _class_sink(batches: list[np.ndarray]) -> float:
    """Λ of function words less Λ of content words, mean over layers: what an edit is asked to change."""
    sums = np.sum(batches, axis=0)  # (layer, class, 2)
    means = sums[..., 0] / np.where(sums[..., 1] > 0, sums[..., 1], np.nan)
    sinks = means[:, 0] - means[:, 1]
    return float(np.nanmean(sinks)) if np.isfinite(sinks).any() else float("nan")


def _level(logits: Tensor) -> Tensor:
    """Log-sum-exp of logits (pos, vocabulary), some rows at a time."""
    return torch.cat([_wide(rows).logsumexp(-1) for rows in logits.split(ROWS)])


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _compare(plain: Outcome, edited: Tensor, batch: Batch, into: Sums) -> None:
    """Losses and divergences of the positions ≥ 16, by document.

    With levels c and c' of the logits x and x', log p = x − c, so that the divergence is Σ p·(x − x') − c + c'.
    """
    document = batch.tokens.document.cpu().numpy()
    for row, ids in enumerate(batch.ids):
        for start in range(FROM_ROW, len(ids) - 1, ROWS):
            at = slice(start, min(start + ROWS, len(ids) - 1))
            target = ids[at.start + 1 : at.stop + 1, None]
            own, other = _wide(plain.logits[row, at]), _wide(edited[row, at])
            level = plain.level[row, at.start - FROM_ROW : at.stop - FROM_ROW]
            apart = (other.logsumexp(-1) - level).double()
            moved = own - other
            shared = torch.linalg.vecdot((own - level[:, None]).exp(), moved).double()
            into.kl[document[row]] += float((shared + apart).sum())
            into.loss[document[row]] += float((moved.gather(-1, target)[:, 0].double() + apart).sum())
            into.n[document[row]] += len(target)


def variants_of(settings: Sequence[Setting], layers: Sequence[int], *, one_by_one: bool) -> list[Variant]:
    """The sham first, then every edit in all the layers at once, and in each by itself where asked for.

    Where an edit is made in the balanced gauge there is a sham in it, too: a change of gauge by itself costs nothing.
    """
    if not layers:
        raise InvalidParameter("layers must name at least one attention layer.")
    every = tuple(layers)
    shams = [SHAM]
    if any(setting.gauge == BALANCED for setting in settings):
        shams.append(replace(SHAM, gauge=BALANCED))
    asked = list({str(setting): setting for setting in (*shams, *settings)}.values())  # each once
    made = [Variant(setting, every) for setting in asked]
    if one_by_one and len(every) > 1:
        made += [Variant(setting, (layer,)) for setting in asked[len(shams) :] for layer in every]
    return made

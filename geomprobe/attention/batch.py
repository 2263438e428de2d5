"""What capture hands to a probe: one layer's vectors, and its attention in blocks of query rows."""

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from geomprobe.attention.call import AttentionCall
from geomprobe.attention.seam import Seen
from geomprobe.attention.visibility import Visibility

# Elements of one block of logits: small enough for a CPU's cache, large enough that operations outweigh their calls.
BLOCK_ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 25, "mps": 1 << 24}
# A hidden logit. Finite, because -inf times a probability of 0 is NaN; far enough down that its exponential is 0.
HIDDEN = -1e30
LOG2_E = 1 / math.log(2)


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of a batch, by the numbers of CorpusSpec.

    Attributes
    ----------
    token_class, type_index, cell_index, token_index : Tensor (batch, pos), int64
        type_index and cell_index are −1 at position 0.
    document : Tensor (batch,), int64
    valid : Tensor (batch, pos), bool
        False at padding.
    """

    token_class: Tensor
    type_index: Tensor
    cell_index: Tensor
    token_index: Tensor
    document: Tensor
    valid: Tensor
    cache: dict = field(default_factory=dict, repr=False)  # what probes derive from it, the same for every layer

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` returns, made at the first layer that asks and kept for the others of the batch."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    def map(self, change: Callable[[Tensor], Tensor]) -> "Tokens":
        """The same with every tensor changed."""
        return Tokens(
            token_class=change(self.token_class),
            type_index=change(self.type_index),
            cell_index=change(self.cell_index),
            token_index=change(self.token_index),
            document=change(self.document),
            valid=change(self.valid),
        )

    def to(self, device: torch.device) -> "Tokens":
        """The same on a device."""
        return self.map(lambda tensor: tensor.to(device))

    def select(self, item: int, positions: Tensor) -> "Tokens":
        """One item of the batch at some of its positions, as a batch of one."""
        return self.map(lambda t: t[item : item + 1] if t.dim() == 1 else t[item : item + 1, positions])


@dataclass(frozen=True, eq=False)
class QKBatch:
    """One attention layer of one batch of token sequences, without padding.

    Attributes
    ----------
    index : int
        Which layer of ModelSpec this is.
    q : dict from stage to Tensor (batch, q_head, pos, head_dim)
    k, v : dict from stage to Tensor (batch, kv_head, pos, head_dim)
    tokens : Tokens
    visibility : Visibility
    scale : float
    softcap : float or None
    sinks : Tensor (batch or 1, q_head, pos or 1) or None
    bias : Tensor (batch or 1, q_head or 1, pos, pos) or None
    """

    index: int
    q: dict[str, Tensor]
    k: dict[str, Tensor]
    v: dict[str, Tensor]
    tokens: Tokens
    visibility: Visibility
    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None
    bias: Tensor | None = None

    @property
    def n_sequences(self) -> int:
        """Sequences in the batch."""
        return self.tokens.token_class.shape[0]

    @property
    def length(self) -> int:
        """Tokens a sequence."""
        return self.tokens.token_class.shape[1]

    @property
    def q_heads(self) -> int:
        """Query heads of this layer."""
        return self.q["scored"].shape[1]

    @property
    def kv_heads(self) -> int:
        """Key heads of this layer."""
        return self.k["scored"].shape[1]

    def select(self, item: int, positions: Tensor) -> "QKBatch":
        """One sequence at some of its positions, as a batch of one."""

        def cut(stages: dict[str, Tensor]) -> dict[str, Tensor]:
            return {stage: x[item : item + 1, :, positions] for stage, x in stages.items()}

        bias = self.bias
        if bias is not None:
            bias = bias[item if len(bias) > 1 else 0][None][:, :, positions][..., positions]
        sinks = self.sinks
        if sinks is not None:
            sinks = sinks[item : item + 1] if len(sinks) > 1 else sinks
            sinks = sinks[:, :, positions] if sinks.shape[2] > 1 else sinks
        return replace(
            self,
            q=cut(self.q),
            k=cut(self.k),
            v=cut(self.v),
            tokens=self.tokens.select(item, positions),
            visibility=self.visibility.select(item, positions),
            bias=bias,
            sinks=sinks,
        )

    def without_padding(self) -> list["QKBatch"]:
        """The batch itself if it has no padding, else one batch a sequence with its padding cut out.

        Cut out and not multiplied by 0: whatever stands at padding, NaN included, must leave no trace.
        """
        valid = self.tokens.valid
        if bool(valid.all()):
            return [self]
        rows = [(item, row.nonzero().flatten()) for item, row in enumerate(valid)]
        return [self.select(item, positions) for item, positions in rows if len(positions)]


def make_batch(seen: Seen, index: int, tokens: Tokens, visibility: Visibility) -> QKBatch:
    """The batch of one attention product; padding is still in it."""
    call = seen.call
    return QKBatch(
        index=index,
        q=seen.stages("q"),
        k=seen.stages("k"),
        v=seen.stages("v"),
        tokens=tokens,
        visibility=visibility,
        scale=call.scale,
        softcap=call.softcap,
        sinks=call.sinks,
        bias=call.additive(),
    )


class Visibilities:
    """Visibilities by mask, so that layers which share a mask share what is derived from it."""

    def __init__(self) -> None:
        self._kept: dict[tuple, tuple[Any, Visibility]] = {}

    def of(self, call: AttentionCall, valid: Tensor) -> Visibility:
        """The visibility of a call."""
        key = (id(call.mask), call.query.shape[2], call.key.shape[2], call.is_causal, str(call.query.device))
        if key not in self._kept:
            padding = None if bool(valid.all()) else valid
            self._kept[key] = (
                call.mask,
                call.visibility(padding),
            )  # the mask is kept, so that its id is not used again
        return self._kept[key][1]

    def forget(self) -> None:
        """Drop what belongs to the masks of one forward pass; what needs no mask stays."""
        self._kept = {key: value for key, value in self._kept.items() if value[0] is None}


@dataclass(frozen=True, eq=False)
class Edge:
    """Columns of a block that some rows see and others do not.

    Attributes
    ----------
    columns : slice
    shown : Tensor (batch or 1, 1, row, column)
        1 where a row sees a key, else 0; of the logits' dtype, as arithmetic is far faster than a fill by mask.
    penalty : Tensor (batch or 1, 1, row, column)
        0 where a row sees a key, else HIDDEN.
    """

    columns: slice
    shown: Tensor
    penalty: Tensor


def edges_of(visibility: Visibility, start: int, stop: int, dtype: torch.dtype) -> list[Edge]:
    """The edges of rows start … stop − 1; the same for every layer that shares a mask, so kept with it."""
    key = ("edges", start, stop, dtype)
    if key not in visibility.cache:
        visible, full_from, full_to = visibility.block(start, stop)
        parts = [slice(0, full_from), slice(full_to, visible.shape[-1])]
        visibility.cache[key] = [
            Edge(columns, visible[..., columns].to(dtype), (~visible[..., columns]).to(dtype) * HIDDEN)
            for columns in parts
            if columns.start < columns.stop
        ]
    return visibility.cache[key]


@dataclass(eq=False)
class Block:
    """Attention of query rows start … start + row − 1 over the keys that they see, computed once for all probes.

    Attributes
    ----------
    start : int
        Position of the first row.
    first_key : int
        Position of the first column.
    visibility : Visibility
    edges : list of Edge
        The columns that not every row sees.
    products : Tensor (batch, q_head, row, key)
        scale·q·k before soft-cap and bias, hidden entries undefined; the logits where nothing stands between.
    logits : Tensor (batch, q_head, row, key)
        What enters the softmax; hidden entries hold HIDDEN, to rounding.
    """

    start: int
    first_key: int
    visibility: Visibility
    edges: list[Edge]
    products: Tensor
    logits: Tensor
    sinks: Tensor | None = None  # (batch or 1, q_head, row or 1)
    _rest: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def n_rows(self) -> int:
        """Number of query rows."""
        return self.logits.shape[2]

    @property
    def keys(self) -> slice:
        """Positions of the columns."""
        return slice(self.first_key, self.first_key + self.logits.shape[3])

    @property
    def n_visible(self) -> Tensor:
        """|V(t)| of the rows: (batch or 1, 1, row), int64."""
        return self.visibility.count[:, None, self.start : self.start + self.n_rows]

    def hide(self, x: Tensor) -> Tensor:
        """`x` (…, row, key) with hidden entries at HIDDEN, in place; columns that all rows see are not touched."""
        for edge in self.edges:
            x[..., edge.columns] += edge.penalty
        return x

    def blank(self, x: Tensor) -> Tensor:
        """`x` (…, row, key) with hidden entries at 0, in place; columns that all rows see are not touched."""
        for edge in self.edges:
            x[..., edge.columns] *= edge.shown
        return x

    def total(self, x: Tensor) -> Tensor:
        """Sum of `x` (…, row, key) over the keys that each row sees: (…, row)."""
        total, at = torch.zeros_like(x[..., 0]), 0
        for edge in self.edges:
            if at < edge.columns.start:
                total += x[..., at : edge.columns.start].sum(-1)
            total += (x[..., edge.columns] * edge.shown).sum(-1)
            at = edge.columns.stop
        return total + x[..., at:].sum(-1) if at < x.shape[-1] else total

    @cached_property
    def first_logit(self) -> Tensor:
        """Logit of position 0: (batch, q_head, row); HIDDEN where a row does not see it."""
        if self.first_key > 0:
            return torch.full_like(self.logits[..., 0], HIDDEN)
        return self.logits[..., 0].clone()

    @cached_property
    def rest_max(self) -> Tensor:
        """Largest logit of a row without position 0: (batch, q_head, row).

        Where nothing else is seen it is that of position 0: a number near the normaliser, whose exponential is finite.
        """
        rest = self.logits[..., 1:] if self.first_key == 0 else self.logits
        if rest.shape[-1] == 0:
            return self.first_logit
        top = rest.amax(-1)
        return torch.where(top > HIDDEN / 2, top, self.first_logit)

    @cached_property
    def rest_shifted(self) -> Tensor:
        """Logits minus rest_max, position 0 hidden: (batch, q_head, row, key)."""
        shifted = self.logits - self.rest_max[..., None]
        if self.first_key == 0:
            shifted[..., 0] = HIDDEN
        return shifted

    @cached_property
    def rest_weight(self) -> Tensor:
        """exp(rest_shifted): (batch, q_head, row, key); 0 at position 0."""
        # exp2 takes a third of exp's time on a CPU; the product rounds by |x|·2⁻²⁴, far below what float32 sums do.
        return (self.rest_shifted * LOG2_E).exp2_()

    @cached_property
    def rest_total(self) -> Tensor:
        """Sum of rest_weight over keys: (batch, q_head, row); at least 1 unless nothing but position 0 is seen."""
        return self.rest_weight.sum(-1)

    @cached_property
    def row_max(self) -> Tensor:
        """Largest logit of a row: (batch, q_head, row)."""
        alone = self.rest_total == 0
        return torch.where(alone, self.first_logit, torch.maximum(self.rest_max, self.first_logit))

    @cached_property
    def rest_log_normaliser(self) -> Tensor:
        """Log-sum-exp without position 0: (batch, q_head, row); -inf where nothing else is seen."""
        return self.rest_max + self.rest_total.log()

    @cached_property
    def key_log_normaliser(self) -> Tensor:
        """Log-sum-exp over the keys, without a learned sink: (batch, q_head, row)."""
        return torch.logaddexp(self.rest_log_normaliser, self.first_logit)

    @cached_property
    def log_normaliser(self) -> Tensor:
        """Log-sum-exp over the keys and the learned sink: (batch, q_head, row)."""
        if self.sinks is None:
            return self.key_log_normaliser
        return torch.logaddexp(self.key_log_normaliser, self.sinks.to(self.logits.dtype))

    @cached_property
    def first_probability(self) -> Tensor:
        """A_t0: (batch, q_head, row); 0 where a row does not see position 0."""
        return (self.first_logit - self.log_normaliser).exp()

    @cached_property
    def rest_factor(self) -> Tensor:
        """What rest_weight is multiplied by to give probabilities: (batch, q_head, row)."""
        return (self.rest_max - self.log_normaliser).exp()

    @cached_property
    def probabilities(self) -> Tensor:
        """A: (batch, q_head, row, key); 0 where hidden."""
        return self.probability_columns(slice(0, self.logits.shape[3]))

    def probability_columns(self, columns: slice) -> Tensor:
        """A for some columns: (batch, q_head, row, column), without a pass over the rest."""
        weights = self.rest_weight[..., columns] * self.rest_factor[..., None]
        if self.first_key == 0 and columns.start == 0:
            weights[..., 0] = self.first_probability
        return weights

    @cached_property
    def key_mass(self) -> Tensor:
        """Attention that each key receives from these rows: (batch, q_head, key).

        A product of matrices, which needs no pass over the probabilities.
        """
        mass = (self.rest_factor[..., None, :] @ self.rest_weight).squeeze(-2)
        if self.first_key == 0:
            mass[..., 0] = self.first_probability.sum(-1)
        return mass


def block_rows(batch: QKBatch) -> int:
    """Rows a block: a power of two, so that blocks of windows of one length fall alike."""
    budget = BLOCK_ELEMENTS.get(batch.q["scored"].device.type, BLOCK_ELEMENTS["cpu"])
    rows = max(16, budget // max(1, batch.n_sequences * batch.q_heads * batch.length))
    return min(1 << (rows.bit_length() - 1), max(16, batch.length))


def blocks(batch: QKBatch, *, rows: int | None = None) -> Iterator[Block]:
    """The attention of a batch block by block; never a pos × pos tensor for a long text.

    Parameters
    ----------
    batch : QKBatch
        Without padding.
    rows : int, optional
        Query rows a block; by default what keeps a block in cache.
    """
    query, key = batch.q["scored"], batch.k["scored"]
    wide = torch.promote_types(query.dtype, torch.float32)
    n, heads, length, width = query.shape
    queries = (query.to(wide) * batch.scale).reshape(n, batch.kv_heads, heads // batch.kv_heads, length, width)
    keys = key.to(wide).transpose(-1, -2)  # (batch, kv_head, head_dim, pos)
    step = rows or block_rows(batch)
    for start in range(0, length, step):
        stop = min(start + step, length)
        first, last = batch.visibility.rows(start, stop)
        part = queries[:, :, :, start:stop].reshape(n, batch.kv_heads, -1, width)
        products = (part @ keys[..., first:last]).view(n, heads, stop - start, last - first)
        yield _block(batch, start, first, products)


def _block(batch: QKBatch, start: int, first: int, products: Tensor) -> Block:
    stop, last = start + products.shape[2], first + products.shape[3]
    logits = products if batch.softcap is None else batch.softcap * torch.tanh(products / batch.softcap)
    if batch.bias is not None:
        logits = logits.clone() if logits is products else logits
        logits += batch.bias[:, :, start:stop, first:last].to(logits.dtype)
    edges = edges_of(batch.visibility, start, stop, logits.dtype)
    sinks = batch.sinks if batch.sinks is None or batch.sinks.shape[2] == 1 else batch.sinks[:, :, start:stop]
    block = Block(start, first, batch.visibility, edges, products, logits, sinks)
    block.hide(block.logits)
    return block

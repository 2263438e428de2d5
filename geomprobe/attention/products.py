"""The second way: attention of modules that multiply queries and keys in code of their own.

torch's function mode shows every operation. A product of two activations is followed to the softmax that it ends in
and to the values that this multiplies; what happens in between (a scale, ALiBi, masks) is played again on constants,
which gives the factor and the shift of every logit. It counts only where they explain what entered the softmax.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.overrides import TorchFunctionMode

from geomprobe.attention.call import AttentionCall
from geomprobe.attention.visibility import HIDDEN_BELOW
from geomprobe.errors import UnsupportedModel

_PRODUCTS = {"matmul", "bmm", "baddbmm", "einsum", "rmatmul"}
_SOFTMAX = {"softmax"}
_ATTENDS = re.compile("attention|attn", re.IGNORECASE)
_RANK = 4  # axes of attention weights; what a router of experts puts through softmax has fewer
# Played on this and on 0, a chain of operations shows its factor: large, so that a shift does not drown it.
_PROBE = 1024.0
_EXPLAINED = 1e-4  # of the largest logit: how well factor and shift must account for what entered the softmax

Replay = Callable[[Tensor], Any]


@dataclass(frozen=True, eq=False)
class _Chain:
    """A tensor that came of a product of queries and keys, and what was done to it."""

    tensor: Tensor  # kept, so that its id is not used again
    query: Tensor
    key: Tensor  # (…, head_dim, key)
    shape: torch.Size
    replays: tuple[Replay, ...]

    def played(self, value: float) -> Tensor:
        """What the operations make of a product whose entries are all `value`."""
        x = torch.full(self.shape, value, dtype=self.query.dtype, device=self.query.device)
        for replay in self.replays:
            x = replay(x)
        return x


@dataclass(frozen=True, eq=False)
class _Weights:
    """A tensor that came of a softmax."""

    tensor: Tensor
    chain: _Chain
    entered: Tensor
    softmax: Tensor


@dataclass(frozen=True)
class Place:
    """The attention module under way."""

    module: Module
    name: str
    layer: int


def _name(function: Any) -> str:
    name = getattr(function, "__name__", "").strip("_")
    return {"imatmul": "matmul"}.get(name, name)


def _is_weight(tensor: Tensor) -> bool:
    base = tensor._base if tensor._base is not None else tensor
    return isinstance(base, Parameter)


class Products(TorchFunctionMode):
    """Sees attention products that do not go through the interface.

    Parameters
    ----------
    where : callable
        The attention module under way and the sequences of the batch, or None outside of one.
    see : callable
        Gets an AttentionCall and (what the attention put out (batch, query, q_head, head_dim), its weights (batch,
        q_head, query, key) or None).
    """

    def __init__(
        self,
        where: Callable[[], tuple[Place, int] | None],
        see: Callable[[AttentionCall, tuple[Tensor, Tensor | None]], None],
    ) -> None:
        super().__init__()
        self._where = where
        self._see = see
        self._chains: dict[int, _Chain] = {}
        self._weights: dict[int, _Weights] = {}
        self._strays: dict[int, Tensor] = {}  # softmaxes of what no product of queries and keys led to
        self.paused = 0  # > 0 inside a kernel of the interface, which is watched elsewhere

    @property
    def unexplained(self) -> bool:
        """Whether a softmax as large as attention's was met that nothing led to, or that led to nothing."""
        return bool(self._strays)

    def forget(self) -> None:
        """Drop what belongs to a module that has been left."""
        self._chains.clear()
        self._weights.clear()
        self._strays.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function as it is; look at what it did."""
        kwargs = kwargs or {}
        place = None if self.paused else self._where()
        output = func(*args, **kwargs)
        if place is not None and isinstance(output, Tensor) and output.is_floating_point():
            with torch._C.DisableTorchFunction():
                self._look(func, (args, kwargs, output), place)
        return output

    def _look(self, func: Any, call: tuple[tuple, dict, Tensor], place: tuple[Place, int]) -> None:
        args, kwargs, output = call
        name = _name(func)
        if name == "scaled_dot_product_attention":
            self._sdpa(args, kwargs, output, place)
        elif name in _PRODUCTS:
            self._product(name, call, place)
        elif name in _SOFTMAX:
            entered = args[0] if args else kwargs["input"]
            chain = self._chains.get(id(entered))
            if chain is not None:
                self._weights[id(output)] = _Weights(output, chain, entered.detach().clone(), output.detach())
            elif output.dim() >= _RANK:
                self._strays[id(output)] = output
        else:
            self._follow(func, call)

    def _product(self, name: str, call: tuple[tuple, dict, Tensor], place: tuple[Place, int]) -> None:
        args, kwargs, output = call
        operands = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        added = operands.pop(0) if name == "baddbmm" else None
        if len(operands) != 2 or any(x.dim() < 3 or _is_weight(x) for x in operands):
            return
        left, right = operands
        if id(left) in self._strays or id(right) in self._strays:
            raise UnsupportedModel(_no_product(place[0]))
        weights = self._weights.get(id(left))
        if weights is not None:
            self._finish(weights, right, output, place)
        elif name != "einsum":
            replays: tuple[Replay, ...] = ()
            if added is not None:
                beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
                replays = (lambda x: beta * added + alpha * x,)
            self._chains[id(output)] = _Chain(output, left.detach(), right.detach(), output.shape, replays)

    def _follow(self, func: Any, call: tuple[tuple, dict, Tensor]) -> None:
        """An operation on a product or on weights that keeps their number of entries is a link of the chain."""
        args, kwargs, output = call
        for place, x in enumerate(args):
            if not isinstance(x, Tensor) or x.numel() != output.numel():
                continue
            if id(x) in self._chains:
                chain = self._chains[id(x)]
                replays = (*chain.replays, _replay(func, (args, kwargs), place))
                self._chains[id(output)] = _Chain(output, chain.query, chain.key, chain.shape, replays)
                return
            if id(x) in self._strays:
                self._strays[id(output)] = output
                return
            if id(x) in self._weights:
                old = self._weights[id(x)]
                self._weights[id(output)] = _Weights(output, old.chain, old.entered, old.softmax)
                return

    def _finish(self, weights: _Weights, value: Tensor, output: Tensor, place: tuple[Place, int]) -> None:
        where, batch = place
        query, key, values, entered = (
            _four(x.detach(), batch) for x in (weights.chain.query, weights.chain.key, value, weights.entered)
        )
        found = None
        if query is not None and key is not None and values is not None and entered is not None:
            found = _explain(weights.chain, (query, key.transpose(-1, -2), entered), batch)
            if found is not None:
                scale, shift = found
                call = _call(where, (query, key.transpose(-1, -2), values), scale, mask=shift)
                made = _four(output, batch)
                own = _four(weights.softmax, batch)
                self._see(call, (made.transpose(1, 2) if made is not None else output, own))
        if found is None:
            raise UnsupportedModel(
                f"{type(where.module).__name__} ({where.name}) computes attention in code of its own, and queries, "
                "keys and what is added to their product do not account for what enters its softmax; "
                "geomprobe cannot read it."
            )

    def _sdpa(self, args: tuple, kwargs: dict[str, Any], output: Tensor, place: tuple[Place, int]) -> None:
        where, batch = place
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
        given = dict(zip(names, args, strict=False)) | kwargs
        query, key, value = (_four(given[name].detach(), batch) for name in names[:3])
        mask, made = given.get("attn_mask"), _four(output, batch)
        if query is None or key is None or value is None or made is None:
            return
        if mask is not None and mask.dim() < 4:
            mask = mask.view(*(1,) * (4 - mask.dim()), *mask.shape) if mask.dim() < 3 else _four(mask, batch)
        scale = given.get("scale")
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        call = _call(where, (query, key, value), scale, mask=mask, kernel="sdpa", causal=bool(given.get("is_causal")))
        self._see(call, (made.transpose(1, 2), None))


def _no_product(place: Place) -> str:
    return (
        f"{type(place.module).__name__} ({place.name}) computes attention in code of its own, in which no product of "
        "queries and keys can be followed to its softmax; geomprobe cannot read it."
    )


def _replay(func: Any, call: tuple[tuple, dict], place: int) -> Replay:
    """The function with its argument at `place` left open."""
    args, kwargs = call
    return lambda y: func(*args[:place], y, *args[place + 1 :], **kwargs)


class OwnCode:
    """Modules with attention in code of their own: which of them is under way, and what it multiplies."""

    def __init__(
        self,
        places: list[Place],
        see: Callable[[AttentionCall, tuple[Tensor, Tensor | None]], None],
        unread: Callable[[str, str], None],
    ) -> None:
        self._places = places
        self._unread = unread
        self._open: list[tuple[Place, int]] = []
        self._shown: set[int] = set()  # modules whose attention was seen, this way or the other

        def seen(call: AttentionCall, output: tuple[Tensor, Tensor | None]) -> None:
            self.showed(call.module)
            see(call, output)

        self._products = Products(lambda: self._open[-1] if self._open else None, seen)
        self.entered = False  # whether any of them has run

    def showed(self, module: Module) -> None:
        """Note that a module's attention was seen."""
        self._shown.add(id(module))

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Look away while a kernel of the interface runs, which is watched elsewhere."""
        self._products.paused += 1
        try:
            yield
        finally:
            self._products.paused -= 1

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at every operation until the context closes."""
        handles: list[Any] = []
        try:
            for place in self._places:
                handles.append(place.module.register_forward_pre_hook(self._enter(place), with_kwargs=True))
                handles.append(place.module.register_forward_hook(self._check))
                handles.append(place.module.register_forward_hook(self._leave, always_call=True))
            with self._products:
                yield
        finally:
            for handle in handles:
                handle.remove()
            self._open.clear()
            self._products.forget()

    def _enter(self, place: Place) -> Callable[[Module, tuple, dict], None]:
        def enter(_module: Module, args: tuple, kwargs: dict) -> None:
            self.entered = True
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.dim() > 1]
            self._open.append((place, given[0].shape[0] if given else 1))

        return enter

    def _check(self, module: Module, _args: Any, _output: Any) -> None:
        """Tell of a module that is called attention, in which a softmax stayed unexplained and no product was seen.

        The name is asked because a softmax over four axes may mix something else than tokens (hyper-connections).
        """
        here = bool(self._open) and self._open[-1][0].module is module and _ATTENDS.search(type(module).__name__)
        if here and self._products.unexplained and id(module) not in self._shown:
            self._unread(self._open[-1][0].name, _no_product(self._open[-1][0]))

    def _leave(self, module: Module, _args: Any, _output: Any) -> None:
        if self._open and self._open[-1][0].module is module:
            self._open.pop()
            self._products.forget()


def _four(tensor: Tensor, batch: int) -> Tensor | None:
    """(batch, head, …, …) of a tensor that may have batch and heads in one axis, or None of any other."""
    if tensor.dim() == 4:
        return tensor
    if tensor.dim() == 3 and tensor.shape[0] % batch == 0:
        return tensor.unflatten(0, (batch, -1))
    return None


def _explain(chain: _Chain, seen: tuple[Tensor, Tensor, Tensor], batch: int) -> tuple[float, Tensor | None] | None:
    """The factor and the shift that make logits of q·k, or None where they do not make what entered the softmax."""
    query, key, entered = seen
    nothing, probed = (_four(chain.played(value), batch) for value in (0.0, _PROBE))
    if nothing is None or probed is None or nothing.shape != entered.shape:
        return None
    seen_by_all = nothing > HIDDEN_BELOW
    factors = ((probed - nothing) / _PROBE)[seen_by_all]
    if len(factors) == 0 or float(factors.max() - factors.min()) > 1e-4 * float(factors.abs().max()):
        return None
    scale = float(factors.double().median())
    group = query.shape[1] // key.shape[1]
    made = query @ key.repeat_interleave(group, 1).transpose(-1, -2) * scale + nothing
    if made.shape != entered.shape:
        return None
    there = seen_by_all & (entered > HIDDEN_BELOW)
    size = float(entered[there].abs().max().clamp(min=1)) if bool(there.any()) else 1.0
    if float((made - entered)[there].abs().max()) > _EXPLAINED * size:
        return None
    shift = nothing if bool((nothing != 0).any()) else None
    return scale, shift


def _call(
    where: Place,
    vectors: tuple[Tensor, Tensor, Tensor],
    scale: float,
    *,
    mask: Tensor | None,
    kernel: str = "eager",
    causal: bool = False,
) -> AttentionCall:
    query, key, value = vectors
    return AttentionCall(
        module=where.module,
        name=where.name,
        layer=where.layer,
        query=query,
        key=key,
        value=value,
        mask=mask,
        scale=scale,
        softcap=None,
        sinks=None,
        bias=None,
        is_causal=causal,
        kernel=kernel,
    )

"""The seam: seeing queries and keys where the model hands them to its attention kernel.

Why here: nearly every family passes its final queries and keys, normed and rotated, through one function. Seeing them
there needs no second implementation of any model, and the model's own kernel still does the work.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, overload

import torch
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.call import AttentionCall, read_call
from geomprobe.attention.interface import bypassing, callers, listening
from geomprobe.attention.products import OwnCode, Place
from geomprobe.attention.stages import Notebook
from geomprobe.attention.trace import Event, Path, stages_of
from geomprobe.errors import UnsupportedModel, one_of
from geomprobe.labels import STAGES


@dataclass(frozen=True, eq=False)
class Seen:
    """One attention product, and the notes of how its vectors came about.

    Attributes
    ----------
    call : AttentionCall
    paths : dict from vector to Path
    events : list of Event
    """

    call: AttentionCall
    paths: dict[str, Path]
    events: list[Event]

    def stages(self, vector: str) -> dict[str, Tensor]:
        """The stages of a vector ("q", "k" or "v") that were found, each (batch, head, pos, head_dim)."""
        scored = {"q": self.call.query, "k": self.call.key, "v": self.call.value}[vector]
        return stages_of(scored, self.paths[vector], self.events) if vector in self.paths else {"scored": scored}

    def on_cpu(self) -> "Seen":
        """The same with every tensor on the CPU, for devices without float64 (mps)."""
        tensors: dict[str, Any] = {name: x.cpu() for name, x in vars(self.call).items() if isinstance(x, Tensor)}
        events = [
            Event(e.kind, e.name, tuple(x.cpu() for x in e.inputs), tuple(x.cpu() for x in e.outputs))
            for e in self.events
        ]
        return Seen(replace(self.call, **tensors), self.paths, events)


def attending(model: Module) -> dict[str, Module]:
    """The modules that attend or may attend, by name: those that call the interface, and those with a softmax."""
    return callers(model) | bypassing(model)


def layer_numbers(modules: dict[str, Module]) -> dict[str, int]:
    """The layer of each attention module: its own layer_idx, else the number in its name."""
    numbers = {}
    for order, (name, module) in enumerate(modules.items()):
        own = getattr(module, "layer_idx", None)
        digits = re.findall(r"\d+", name)
        numbers[name] = own if isinstance(own, int) else int(digits[-1]) if digits else order
    return numbers


@contextmanager
def watching(
    model: Module,
    see: Callable[[Seen], None],
    *,
    after: Callable[[Seen, Any], None] | None = None,
    stages: bool | Notebook = True,
    unread: Callable[[str, str], None] | None = None,
) -> Iterator[None]:
    """Call `see` for every attention product of `model` until the context closes.

    Parameters
    ----------
    model : Module
    see : callable
        Gets a Seen. It must not write into the tensors: they are the model's own. Called before the kernel runs, or, in
        a module that has its own code instead of a kernel, when that has run.
    after : callable, optional
        Gets the same Seen and what the kernel returned.
    stages : bool or Notebook
        Whether to note how queries and keys came about; without, only `scored` is known. A notebook of an earlier pass
        knows the paths already.
    unread : callable, optional
        Gets the name of a module that attended unseen, and a sentence that says so.

    Raises
    ------
    UnsupportedModel
        From inside the model, where a module attends in a way that cannot be read.
    """
    new = Notebook(attending(model)) if stages else None
    notebook = stages if isinstance(stages, Notebook) else new
    watch = _Watch(model, (see, after, unread or (lambda _name, _sentence: None)), notebook)
    with ExitStack() as stack:
        if watch.notebook:
            stack.enter_context(watch.notebook.writing())
        stack.enter_context(listening(watch.listen))
        if watch.own_code is not None:
            stack.enter_context(watch.own_code.watched())
        yield


class _Watch:
    """What `watching` does while it watches."""

    def __init__(
        self,
        model: Module,
        callbacks: tuple[
            Callable[[Seen], None], Callable[[Seen, Any], None] | None, Callable[[str, str], None]
        ],  # see, after and unread, as `watching` has them
        notebook: Notebook | None,
    ) -> None:
        modules = attending(model)
        self._see, self._after, unread = callbacks
        self._names = {id(module): name for name, module in modules.items()}
        self._layers = layer_numbers(modules)
        self.notebook = notebook
        aside = [Place(module, name, self._layers[name]) for name, module in bypassing(model).items()]
        self.own_code = OwnCode(aside, self._see_own, unread) if aside else None

    def _seen(self, call: AttentionCall) -> Seen:
        if self.notebook is None:
            return Seen(call, {}, [])
        events = self.notebook.events(call.module)
        vectors = {"q": call.query, "k": call.key, "v": call.value}
        paths = {name: self.notebook.path(call.module, name, scored, events) for name, scored in vectors.items()}
        return Seen(call, paths, events)

    def listen(self, module: Module, kernel: str, args: tuple, kwargs: dict, run: Callable[[], Any]) -> Any:
        """Look at a call of the interface's kernel, and let it run."""
        if id(module) not in self._names:
            return run()
        name = self._names[id(module)]
        seen = self._seen(read_call((name, self._layers[name]), module, kernel, args, kwargs))
        self._see(seen)
        if self.own_code is not None:
            self.own_code.showed(module)
        with self.own_code.pausing() if self.own_code is not None else nullcontext():
            output = run()
        if self._after is not None:
            self._after(seen, output)
        return output

    def edited(self, module: Module, kernel: str, args: tuple, kwargs: dict, edit: "Edit") -> tuple | None:
        """The kernel's positional arguments with edited queries and keys; None where nothing changes."""
        if id(module) not in self._names:
            return None
        name = self._names[id(module)]
        found = edit(self._seen(read_call((name, self._layers[name]), module, kernel, args, kwargs)))
        if found is None:
            return None
        return (*found, *args[2:])

    def _see_own(self, call: AttentionCall, output: tuple[Tensor, Tensor | None]) -> None:
        seen = self._seen(call)
        self._see(seen)
        if self._after is not None:
            self._after(seen, output)


Edit = Callable[[Seen], tuple[Tensor, Tensor] | None]


@contextmanager
def editing(model: Module, edit: Edit, notebook: Notebook) -> Iterator[None]:
    """Let the kernel work on other queries and keys than the model made, until the context closes.

    The weights stay as they are; who watches (from before) sees what the kernel gets.

    Parameters
    ----------
    model : Module
    edit : callable
        Gets a Seen with the stages of queries and keys; returns the (query, key) to be used in their place, of the same
        shape, or None for no change.
    notebook : Notebook
        That of `examine`.

    Notes
    -----
    Only modules that go through transformers' interface are edited: own code cannot be handed other vectors.
    """
    watch = _Watch(model, (lambda _seen: None, None, lambda _name, _sentence: None), notebook)

    def listen(module: Module, kernel: str, args: tuple, kwargs: dict, run: Callable[..., Any]) -> Any:
        made = watch.edited(module, kernel, args, kwargs, edit)
        return run() if made is None else run(*made)

    with notebook.writing(), listening(listen):
        yield


def logits(query: Tensor, call: AttentionCall, key: Tensor) -> Tensor:
    """Masked logits as they enter the softmax, with the learned sink as a last column where there is one.

    Returns
    -------
    Tensor (batch, q_head, query, key [+ 1])
    """
    group = query.shape[1] // key.shape[1]
    x = query @ key.repeat_interleave(group, dim=1).transpose(-1, -2) * call.scale
    if call.softcap is not None:
        x = call.softcap * torch.tanh(x / call.softcap)
    shift, visible = call.additive(), call.visible()
    if shift is not None:
        x = x + shift
    if visible is None and call.is_causal and x.shape[-2] > 1:
        visible = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril()
    if visible is not None:
        x = x.masked_fill(~visible, float("-inf"))
    if call.sinks is not None:
        column = call.sinks.to(x.dtype)[..., None].expand(*x.shape[:3], 1)
        x = torch.cat([x, column], dim=-1)
    return x


@dataclass(frozen=True, eq=False)
class Record:
    """Queries, keys and values of one attention product, kept.

    Attributes
    ----------
    layer : int
    module : str
        The module's name in the model.
    call : int
        0 for a module's first call within the context, 1 for its second, …
    q, k, v : dict from stage to Tensor (batch, head, pos, head_dim)
        k and v have kv_heads. Only stages that were asked for and found are there.
    scale : float
    """

    layer: int
    module: str
    call: int
    q: dict[str, Tensor]
    k: dict[str, Tensor]
    v: dict[str, Tensor]
    scale: float
    _made: AttentionCall = field(repr=False)

    def attention(self) -> Tensor:
        """The probabilities rebuilt from q and k with every mask, bias, cap and learned sink, in float32 or better.

        Returns
        -------
        Tensor (batch, q_head, query, key)
            Without the learned sink's column. A query that sees nothing (padding) has a row of NaN, or of 0 where
            there is a learned sink.
        """
        made = self._made
        wide = torch.promote_types(made.query.dtype, torch.float32)
        weights = logits(made.query.to(wide), made, made.key.to(wide)).softmax(dim=-1)
        return weights[..., : made.key.shape[2]]


class Records(Sequence[Record]):
    """Records in the order of the calls.

    Attributes
    ----------
    unread : dict from str to str
        Modules that attended in a way that cannot be read and of which there is no record, with a sentence each.
    """

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}
        self._records: list[Record] = []
        self._calls: dict[str, int] = {}

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {len(self._calls)} attention modules>"

    def _add(self, seen: Seen, stages: tuple[str, ...]) -> None:
        made = seen.call
        kept: dict[tuple, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            # Cloned: a cache or an in-place operation may write into what the model passed on. One clone a tensor;
            # known by where it lies and not by id(), since views are made and dropped here and ids come again.
            key = (tensor.data_ptr(), tensor.shape, tensor.stride())
            if key not in kept:
                kept[key] = tensor.detach().clone()
            return kept[key]

        vectors = {
            vector: {stage: keep(tensor) for stage, tensor in seen.stages(vector).items() if stage in stages}
            for vector in ("q", "k", "v")
        }
        fields = {name: getattr(made, name) for name in AttentionCall.__dataclass_fields__}
        for name in ("query", "key", "mask", "bias", "sinks"):
            if fields[name] is not None:
                fields[name] = keep(fields[name])
        fields["value"] = made.value[:, :, :0].clone()  # attention() needs none; its shape still tells head and width
        index = self._calls.get(made.name, 0)
        self._calls[made.name] = index + 1
        self._records.append(
            Record(made.layer, made.name, index, **vectors, scale=made.scale, _made=AttentionCall(**fields))
        )


@contextmanager
def capture(model: Module, *, stages: Sequence[str] = ("scored",)) -> Iterator[Records]:
    """Record the queries, keys and values of every attention product of `model` while the context is open.

    The model computes exactly what it computed before, by its own kernel, and is as before when the context closes.

    Parameters
    ----------
    model : Module
        A transformers model, on the kernel sdpa or eager.
    stages : sequence of str
        Any of "projected", "content", "scored" (docs/schema.md defines them).

    Yields
    ------
    Records
        A sequence of Record that fills while the model runs and stays readable afterwards.

    Raises
    ------
    UnsupportedModel
        Where the model has no attention that goes through transformers' attention interface.

    Examples
    --------
    >>> with capture(model, stages=("content", "scored")) as seen:  # doctest: +SKIP
    ...     model(**inputs)
    >>> seen[0].k["scored"].norm(dim=-1)  # (batch, kv_head, pos)  # doctest: +SKIP
    """
    asked = (stages,) if isinstance(stages, str) else tuple(stages)
    for stage in asked:
        one_of("stages", stage, STAGES)
    if not attending(model):
        raise UnsupportedModel(no_attention(model))
    records = Records()
    entered: list[str] = []
    handles = [
        module.register_forward_pre_hook(lambda _m, _a, name=name: entered.append(name))
        for name, module in attending(model).items()
    ]
    try:
        with watching(
            model,
            lambda seen: records._add(seen, asked),
            stages=asked != ("scored",),
            unread=lambda module, sentence: records.unread.update({module: sentence}),
        ):
            yield records
    finally:
        for handle in handles:
            handle.remove()
    if entered and not records:
        raise UnsupportedModel(next(iter(records.unread.values()), unread(model, entered[0])))


def unread(model: Module, name: str) -> str:
    """The sentence for a model whose attention ran and was not recognised."""
    attends = type(model.get_submodule(name)).__name__
    return (
        f"{type(model).__name__} ran without showing any attention: {attends} ({name}) computes it in code of its own "
        "that geomprobe cannot read."
    )


def no_attention(model: Module) -> str:
    """The sentence for a model in which nothing calls the attention interface."""
    return (
        f"{type(model).__name__} has no attention that geomprobe can see: none of its modules calls transformers' "
        "attention interface (a model without attention, or one that computes it in code of its own)."
    )

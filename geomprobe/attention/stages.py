"""Finding the stages of queries and keys by following the tensors back from the kernel.

Nothing here knows a family or a class. While an attention module runs, the outputs of its leaf modules and of its
rotary function are noted; a query that enters the kernel is then traced back, value for value: it is the output of
the rotary function, whose input is the output of a norm, whose input is the output of a projection, in whatever order
the model has them.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.interface import callers

# The rotary function is found in the globals of the attention class's own methods. Its name is a hint where to
# look, no more: it counts only where its output is, bit for bit, what goes on to the kernel.
_ROTARY_NAME = re.compile(r"rotary|rope|apply_rot", re.IGNORECASE)

Kind = Literal["projection", "norm", "rotation"]
LAYOUTS = ("heads", "tokens", "flat")


@dataclass(frozen=True, eq=False)
class Event:
    """Something that happened inside an attention module before its kernel ran."""

    kind: Kind
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Step:
    """One step of a trace: which event, which of its inputs and outputs, and how that is laid out."""

    kind: Kind
    name: str
    event: int
    index: int
    layout: str


@dataclass(frozen=True)
class Path:
    """How a vector came about, from the kernel back.

    Attributes
    ----------
    steps : tuple of Step
        Last step first.
    complete : bool
        Whether the trace ends at a projection.
    """

    steps: tuple[Step, ...]
    complete: bool

    @property
    def norm(self) -> Step | None:
        """The norm on the way, or None."""
        return next((step for step in self.steps if step.kind == "norm"), None)

    @property
    def order(self) -> str:
        """Where the norm stands: before_rope, after_rope, no_rope, or unknown."""
        kinds = [step.kind for step in self.steps]
        if "norm" not in kinds or not self.complete:
            return "unknown"
        if "rotation" not in kinds:
            return "no_rope"
        return "after_rope" if kinds.index("norm") < kinds.index("rotation") else "before_rope"


def arrange(tensor: Tensor, layout: str, like: Tensor) -> Tensor | None:
    """`tensor` in the layout (batch, head, pos, head_dim) of `like`, or None where it is not laid out so.

    Parameters
    ----------
    tensor : Tensor
    layout : {"heads", "tokens", "flat"}
        (batch, head, pos, head_dim); (batch, pos, head, head_dim); (batch, pos, head · head_dim). A shape does not tell
        the first two apart where there are as many tokens as heads.
    like : Tensor (batch, head, pos, head_dim)
    """
    batch, heads, length, width = like.shape
    if layout == "heads":
        return tensor if tensor.shape == like.shape else None
    if layout == "tokens":
        return tensor.transpose(1, 2) if tensor.shape == (batch, length, heads, width) else None
    if tensor.shape != (batch, length, heads * width):
        return None
    return tensor.reshape(batch, length, heads, width).transpose(1, 2)


def _layout(tensor: Tensor, like: Tensor) -> str | None:
    """The layout in which `tensor` is `like`, value for value; None where it is not."""
    for layout in LAYOUTS:
        view = arrange(tensor, layout, like)
        if view is not None and torch.equal(view, like):
            return layout
    return None


def trace(scored: Tensor, events: list[Event]) -> Path:
    """Follow `scored` back through `events`.

    Parameters
    ----------
    scored : Tensor (batch, head, pos, head_dim)
        A query or key as the kernel got it.
    events : list of Event
        In the order in which they happened.
    """
    steps: list[Step] = []
    current, before = scored, len(events)
    while before > 0:
        found = _origin(current, events[:before])
        if found is None:
            break
        before, index, layout = found
        event = events[before]
        # What comes out of a norm or a rotation is laid out as what went in.
        source = arrange(event.inputs[index], layout, scored) if index < len(event.inputs) else None
        if event.kind == "norm" and source is not None and torch.equal(source, current):
            continue  # it let the vector pass as it was: an identity, a dropout at rest
        steps.append(Step(event.kind, event.name, before, index, layout))
        if event.kind == "projection" or source is None:
            break
        current = source
    complete = bool(steps) and steps[-1].kind == "projection"
    return Path(tuple(steps), complete)


def _origin(current: Tensor, events: list[Event]) -> tuple[int, int, str] | None:
    """The last event that put `current` out: its place, which of its outputs, and in which layout."""
    for place in reversed(range(len(events))):
        for index, output in enumerate(events[place].outputs):
            layout = _layout(output, current)
            if layout is not None:
                return place, index, layout
    return None


def stages_of(scored: Tensor, path: Path, events: list[Event]) -> dict[str, Tensor]:
    """The stages that the path shows, each (batch, head, pos, head_dim); `scored` is always there."""
    stages = {"scored": scored}
    if not path.complete:
        return stages
    end = path.steps[-1]
    rotation = next((step for step in path.steps if step.kind == "rotation"), None)
    found = {"projected": arrange(events[end.event].outputs[end.index], end.layout, scored), "content": scored}
    if rotation is not None:
        found["content"] = arrange(events[rotation.event].inputs[rotation.index], rotation.layout, scored)
    # A path found in one call may not hold in another: where a cache lends keys, they are longer than the projection.
    return stages | {name: tensor.detach() for name, tensor in found.items() if tensor is not None}


def rotary_functions(module: Module) -> list[tuple[dict[str, Any], str]]:
    """(globals, name) of functions with a rotary name that the methods of the module's class call."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for cls in type(module).__mro__:
        if cls.__module__.startswith("torch."):
            continue
        for method in vars(cls).values():
            if not callable(method):
                continue
            function = inspect.unwrap(method)
            code, scope = getattr(function, "__code__", None), getattr(function, "__globals__", None)
            if code is None or scope is None:
                continue
            for name in code.co_names:
                target = scope.get(name)
                if _ROTARY_NAME.search(name) and callable(target) and not inspect.isclass(target):
                    found[id(scope), name] = scope
    return [(scope, name) for (_, name), scope in found.items()]


def _tensors(values: Any) -> tuple[Tensor, ...]:
    values = values if isinstance(values, tuple | list) else (values,)
    return tuple(value for value in values if isinstance(value, Tensor))


def _kind(module: Module, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Kind:
    """Whether a leaf module mixes channels, or scales each by itself (or does nothing)."""
    shapes = [parameter.shape for parameter in module.parameters(recurse=False)]
    if isinstance(module, torch.nn.Linear) or not inputs or not outputs or inputs[0].shape != outputs[0].shape:
        return "projection"
    # A gain has the shape of the end of what it multiplies, also where each head has one of its own.
    scales = all(shape == inputs[0].shape[inputs[0].dim() - len(shape) :] for shape in shapes)
    return "norm" if scales else "projection"


class Notebook:
    """What happened inside each attention module since it was entered; forgotten when its kernel has run."""

    def __init__(self, model: Module) -> None:
        self._modules = callers(model)
        self._open: list[int] = []
        self._events: dict[int, list[Event]] = {}
        self._paths: dict[tuple[int, str, int], Path] = {}

    def events(self, module: Module) -> list[Event]:
        """The events inside `module` so far, and forget them."""
        return self._events.pop(id(module), [])

    def path(self, module: Module, vector: str, scored: Tensor, events: list[Event]) -> Path:
        """The path of a vector; traced until one is complete, and then the same ever after."""
        key = (id(module), vector, len(events))
        path = self._paths.get(key)
        if path is None:
            path = trace(scored, events)
            if path.complete:
                self._paths[key] = path
        return path

    def _enter(self, module: Module, _args: Any) -> None:
        self._open.append(id(module))
        self._events[id(module)] = []

    def _leave(self, module: Module, _args: Any, _output: Any) -> None:
        if self._open and self._open[-1] == id(module):
            self._open.pop()
        self._events.pop(id(module), None)

    def _note(self, name: str, inputs: Any, outputs: Any, module: Module | None = None) -> None:
        """Note what a leaf module did, or without one the rotary function."""
        if self._open and self._open[-1] in self._events:
            given, made = _tensors(inputs), _tensors(outputs)
            kind: Kind = "rotation" if module is None else _kind(module, given, made)
            self._events[self._open[-1]].append(Event(kind, name, given, made))

    def _leaf_hook(self, name: str) -> Callable[[Module, Any, Any], None]:
        return lambda module, args, output: self._note(name, args, output, module)

    @contextmanager
    def writing(self) -> Iterator["Notebook"]:
        """Take notes until the context closes; hooks and wrapped functions are gone afterwards."""
        handles = []
        rotations: set[tuple[int, str]] = set()
        try:
            for owner_name, owner in self._modules.items():
                handles.append(owner.register_forward_pre_hook(self._enter, prepend=True))
                handles.append(owner.register_forward_hook(self._leave, always_call=True))
                for name, leaf in owner.named_modules():
                    if name and not any(True for _ in leaf.children()):
                        full = f"{owner_name}.{name}" if owner_name else name
                        handles.append(leaf.register_forward_hook(self._leaf_hook(full)))
                for scope, name in rotary_functions(owner):
                    if (id(scope), name) not in rotations:
                        _watch_rotation(scope, name, self)
                        rotations.add((id(scope), name))
            yield self
        finally:
            for handle in handles:
                handle.remove()
            for key in rotations:
                _leave_rotation(key, self)
            self._open.clear()
            self._events.clear()


@dataclass
class _Rotation:
    """A rotary function under watch: where it stands, what stood there, and who takes notes."""

    scope: dict[str, Any]
    original: Callable
    notebooks: list[Notebook]


# One wrapper a function, however many take notes, so that they may leave in any order.
_rotations: dict[tuple[int, str], _Rotation] = {}


def _watch_rotation(scope: dict[str, Any], name: str, notebook: Notebook) -> None:
    key = (id(scope), name)
    if key not in _rotations:
        watched = _Rotation(scope, scope[name], [])

        def rotation(*args: Any, **kwargs: Any) -> Any:
            output = watched.original(*args, **kwargs)
            for reader in watched.notebooks:
                reader._note(name, (*args, *kwargs.values()), output)
            return output

        _rotations[key] = watched
        scope[name] = rotation
    _rotations[key].notebooks.append(notebook)


def _leave_rotation(key: tuple[int, str], notebook: Notebook) -> None:
    watched = _rotations[key]
    watched.notebooks.remove(notebook)
    if not watched.notebooks:
        watched.scope[key[1]] = watched.original
        del _rotations[key]

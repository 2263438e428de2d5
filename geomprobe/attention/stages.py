"""Noting what happens inside each attention module, so that queries and keys can be followed back from the kernel."""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.trace import Event, Kind, Path, trace, version_of

# The rotary function is found in the globals of the attention class's own methods. Its name is a hint where to
# look, no more: it counts only where its output is, bit for bit, what goes on to the kernel.
_ROTARY_NAME = re.compile(r"rotary|rope|apply_rot", re.IGNORECASE)
# A path that does not end at a projection is looked for again, as a cache may have been in the way, but not for ever.
ATTEMPTS = 3


def rotary_functions(module: Module) -> list[tuple[Any, str]]:
    """(globals or class, name) of what has a rotary name and is called by methods of the module, or of those in it."""
    found: dict[tuple[int, str], Any] = {}
    for cls in {base for part in module.modules() for base in type(part).__mro__}:
        if cls.__module__.startswith("torch."):
            continue
        for own_name, method in vars(cls).items():
            if isinstance(method, staticmethod) and _ROTARY_NAME.search(own_name):
                found[id(cls), own_name] = cls
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


def _paired(given: tuple[Tensor, ...], made: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """For each output of a rotary function the input that it turns: the first unused one of its shape."""
    left = list(given)
    paired = []
    for output in made:
        at = next((i for i, x in enumerate(left) if x.shape == output.shape), None)
        paired.append(output if at is None else left.pop(at))
    return tuple(paired)


def _scales(module: Module, given: Tensor) -> bool:
    """Whether the parameters are gains: of the shape of the end of what they multiply."""
    shapes = [parameter.shape for parameter in module.parameters()]
    return all(shape == given.shape[given.dim() - len(shape) :] for shape in shapes)


def _turns(given: Tensor, made: Tensor) -> bool:
    """Whether vectors keep their lengths, up to one factor, and not their directions: a rotation."""
    lengths = given.double().norm(dim=-1), made.double().norm(dim=-1)
    ratio = lengths[1] / lengths[0].clamp(min=1e-30)
    return bool((ratio - ratio.mean()).abs().max() <= 1e-2 * ratio.mean())


def _kind(module: Module, given: tuple[Tensor, ...], made: tuple[Tensor, ...]) -> Kind:
    """Whether a module mixes channels, scales each by itself (or does nothing), rotates, or does something else."""
    if isinstance(module, torch.nn.Linear):
        return "projection"
    mixes = any(parameter.dim() > 1 for parameter in (*module.parameters(), *module.buffers()))
    if not given or not made or given[0].shape != made[0].shape or not _scales(module, given[0]):
        return "projection" if mixes else "other"
    parameters = any(True for _ in module.parameters())
    if len(made) > 1 and not parameters and _turns(given[0], made[0]):
        return "rotation"
    return "norm"


# The events of an attention module under way. A module that holds others takes its place when it is entered, and fills
# it when it is left.
_Page = list[Event | None]


class Notebook:
    """What happened inside each attention module since it was entered; forgotten when it is left.

    Parameters
    ----------
    modules : dict from name to Module
        The attention modules.
    keep : bool
        Whether to keep the first path of each vector, complete or not: for passes in which vectors are tampered with.
    """

    def __init__(self, modules: dict[str, Module], *, keep: bool = False) -> None:
        self._modules = modules
        self._keep = keep
        self._open: list[int] = []
        self._pages: dict[int, _Page] = {}
        self._paths: dict[tuple[int, str, int], Path] = {}
        self._attempts: dict[tuple[int, str, int], int] = {}

    def events(self, module: Module) -> list[Event]:
        """The events inside `module` so far."""
        page = self._pages.get(id(module))
        return [] if page is None else [event for event in page if event is not None]

    def path(self, module: Module, vector: str, scored: Tensor, events: list[Event]) -> Path:
        """The path of a vector; traced until one is complete and sure, and then the same ever after."""
        key = (id(module), vector, len(events))
        path = self._paths.get(key)
        if path is None:
            path = trace(scored, events)
            self._attempts[key] = self._attempts.get(key, 0) + 1
            if self._keep or (path.complete and path.sure) or (self._attempts[key] >= ATTEMPTS and not path.complete):
                self._paths[key] = path
        return path

    def _enter(self, module: Module, _args: Any) -> None:
        self._open.append(id(module))
        self._pages[id(module)] = []

    def _leave(self, module: Module, _args: Any, _output: Any) -> None:
        if self._open and self._open[-1] == id(module):
            self._open.pop()
        self._pages.pop(id(module), None)

    @property
    def _page(self) -> _Page | None:
        return self._pages.get(self._open[-1]) if self._open else None

    def _note(
        self, name: str, inputs: Any, outputs: Any, module: Module | None = None, slot: int | None = None
    ) -> None:
        """Note what a module did, or without one the rotary function."""
        page = self._page
        if page is None:
            return
        given, made = _tensors(inputs), _tensors(outputs)
        kind: Kind = "rotation" if module is None else _kind(module, given, made)
        versions = tuple(version_of(x) for x in made)
        event = Event(kind, name, _paired(given, made) if kind == "rotation" else given, made, versions)
        if slot is None:
            page.append(event)
        elif slot < len(page):
            page[slot] = event

    def _watch_leaf(self, name: str, leaf: Module) -> list[Any]:
        return [leaf.register_forward_hook(lambda module, args, output: self._note(name, args, output, module))]

    def _watch_holder(self, name: str, holder: Module) -> list[Any]:
        """A module that holds others stands before them, so that a trace meets what is inside first."""
        slots: list[tuple[_Page | None, int]] = []

        def enter(_module: Module, _args: Any) -> None:
            page = self._page
            slots.append((page, len(page) if page is not None else 0))
            if page is not None:
                page.append(None)

        def leave(module: Module, args: Any, output: Any) -> None:
            page, slot = slots.pop() if slots else (None, 0)
            if page is not None and page is self._page:
                self._note(name, args, output, module, slot)

        return [
            holder.register_forward_pre_hook(enter),
            holder.register_forward_hook(leave, always_call=True),
        ]

    @contextmanager
    def writing(self) -> Iterator["Notebook"]:
        """Take notes until the context closes; hooks and wrapped functions are gone afterwards."""
        handles: list[Any] = []
        rotations: set[tuple[int, str]] = set()
        try:
            for owner_name, owner in self._modules.items():
                handles.append(owner.register_forward_pre_hook(self._enter, prepend=True))
                handles.append(owner.register_forward_hook(self._leave, always_call=True))
                for name, part in owner.named_modules():
                    if name:
                        full = f"{owner_name}.{name}" if owner_name else name
                        leaf = not any(True for _ in part.children())
                        handles += self._watch_leaf(full, part) if leaf else self._watch_holder(full, part)
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
            self._pages.clear()


@dataclass
class _Rotation:
    """A rotary function under watch: where it stands, what stood there, and who takes notes."""

    scope: Any  # a module's globals, or a class
    original: Any
    notebooks: list[Notebook]

    def put(self, name: str, value: Any) -> None:
        """Set what stands under the name."""
        if isinstance(self.scope, dict):
            self.scope[name] = value
        else:
            setattr(self.scope, name, value)


# One wrapper a function, however many take notes, so that they may leave in any order.
_rotations: dict[tuple[int, str], _Rotation] = {}


def _watch_rotation(scope: Any, name: str, notebook: Notebook) -> None:
    key = (id(scope), name)
    if key not in _rotations:
        original = scope[name] if isinstance(scope, dict) else vars(scope)[name]
        turn = original.__func__ if isinstance(original, staticmethod) else original
        watched = _Rotation(scope, original, [])

        @wraps(turn)
        def rotation(*args: Any, **kwargs: Any) -> Any:
            output = turn(*args, **kwargs)
            given = [x for x in (*args, *kwargs.values()) if x is not None]
            for reader in watched.notebooks:
                reader._note(name, given, output)
            return output

        _rotations[key] = watched
        watched.put(name, staticmethod(rotation) if isinstance(original, staticmethod) else rotation)
    _rotations[key].notebooks.append(notebook)


def _leave_rotation(key: tuple[int, str], notebook: Notebook) -> None:
    watched = _rotations[key]
    watched.notebooks.remove(notebook)
    if not watched.notebooks:
        watched.put(key[1], watched.original)
        del _rotations[key]

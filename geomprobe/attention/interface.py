"""Wrapping transformers' attention interface for the length of a context, and nothing longer.

transformers asks ``AttentionInterface.get_interface`` for the function that multiplies queries and keys. While a
listener listens, what comes back is that same function behind a thin wrapper, so the model keeps its kernel, its
masks and its configuration, and its output stays bit-identical.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch.nn import Module
from transformers import AttentionInterface, PreTrainedModel

Kernel = Callable[..., Any]
# listener(module, kernel_name, args, kwargs, run): returns what `run()` returns, which runs the kernel, once. The
# positional arguments given to `run` take the place of those that came, also for the listeners before this one.
Listener = Callable[[Module, str, tuple, dict, Callable[..., Any]], Any]

_listeners: list[Listener] = []
_originals: dict[str, Any] = {}
_MISSING = object()


def _wrap(kernel: Kernel, name: str) -> Kernel:
    @wraps(kernel)
    def watched(module: Module, *args: Any, **kwargs: Any) -> Any:
        asked = tuple(_listeners)  # the latest is asked first, and runs those before it

        def ask(place: int, given: tuple) -> Any:
            if place == len(asked):
                return kernel(module, *given, **kwargs)
            return asked[place](module, name, given, kwargs, lambda *new: ask(place + 1, new or given))

        return ask(0, args)

    return watched


def _install() -> None:
    original_get = AttentionInterface.get_interface
    original_item = AttentionInterface.__dict__.get("__getitem__", _MISSING)
    lookup = AttentionInterface.__getitem__  # found on a base class where it is not its own
    inside = []

    def get_interface(self: AttentionInterface, attn_implementation: str, default: Kernel) -> Kernel:
        inside.append(True)  # the original looks names up through __getitem__; wrap once
        try:
            kernel = original_get(self, attn_implementation, default)
        finally:
            inside.pop()
        return _wrap(kernel, attn_implementation)

    def getitem(self: AttentionInterface, name: str) -> Kernel:
        kernel = lookup(self, name)
        return kernel if inside else _wrap(kernel, name)

    _originals.update(get_interface=original_get, __getitem__=original_item)
    AttentionInterface.get_interface = get_interface
    AttentionInterface.__getitem__ = getitem


def _remove() -> None:
    AttentionInterface.get_interface = _originals.pop("get_interface")
    original_item = _originals.pop("__getitem__")
    if original_item is _MISSING:
        del AttentionInterface.__getitem__
    else:
        AttentionInterface.__getitem__ = original_item


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` at every attention product until the context closes, also by an exception.

    Listeners nest; the latest is asked first. transformers is patched while at least one listens.
    """
    if not _listeners:
        _install()
    _listeners.insert(0, listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
        if not _listeners:
            _remove()


def callers(model: Module) -> dict[str, Module]:
    """The modules of `model` whose code asks the interface for a kernel, by name, in the order of the model."""
    return _whose_code_names(model, {"ALL_ATTENTION_FUNCTIONS"})


def bypassing(model: Module) -> dict[str, Module]:
    """The modules of `model` that may compute attention in code of their own, by name, in the order of the model.

    Their code names a softmax, which a router of experts does too: whether it is attention shows when they run. So may
    modules that name the interface and do not ask it in the usual way, which may get a function of their own from it.
    """
    through = callers(model)
    asking = _whose_code_names(model, {"get_interface"})
    found = _whose_code_names(model, {"softmax", "Softmax", "scaled_dot_product_attention"})
    aside = {name: module for name, module in found.items() if name not in through}
    return aside | {name: module for name, module in through.items() if name not in asking}


def _whose_code_names(model: Module, wanted: set[str]) -> dict[str, Module]:
    def does(cls: type) -> bool:
        for base in cls.__mro__:
            if base is PreTrainedModel or base.__module__.startswith("torch."):
                break  # it knows the interface, to switch kernels; it does not attend
            for method in vars(base).values():
                code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
                if code is not None and not wanted.isdisjoint(code.co_names):
                    return True
        return False

    known: dict[type, bool] = {}
    found = {}
    for name, module in model.named_modules():
        cls = type(module)
        if cls not in known:
            known[cls] = does(cls)
        if known[cls]:
            found[name] = module
    return found

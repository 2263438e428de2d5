"""The residual stream: what enters the block of a model that an attention module is part of."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn import Module, ModuleList


def blocks_of(model: Module, names: Sequence[str]) -> dict[str, int]:
    """The blocks that attention modules are part of: by name, which of the modules a block's input belongs to.

    A block is the item of the outermost list of modules that an attention module lies in. Where several lie in one,
    the stream has taken up what the first one put out before it enters the next: the block's input is the first's.

    Parameters
    ----------
    model : Module
    names : sequence of str
        Of attention modules, in the order in which they run.
    """
    found: dict[str, int] = {}
    for index, name in enumerate(names):
        parts = name.split(".")
        for depth in range(1, len(parts)):
            item = ".".join(parts[: depth + 1])
            within = model.get_submodule(".".join(parts[:depth]))
            if isinstance(within, ModuleList) and not isinstance(model.get_submodule(item), ModuleList):
                found.setdefault(item, index)
                break
    return found


@contextmanager
def streaming(model: Module, names: Sequence[str], look: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Show what enters the blocks of attention modules, while the context lasts.

    Not what a model returns as its hidden states: these are all of the layers' at once, in some families of other
    layers than those with attention, and some models have none.

    Parameters
    ----------
    model : Module
    names : sequence of str
        Of attention modules, in the order in which they run.
    look : callable
        Gets which of the modules it is and what enters its block, (batch, pos, channel) in most families; may read it.
    """

    def hook(index: int) -> Callable[[Module, tuple, dict[str, Any]], None]:
        def see(_block: Module, args: tuple, kwargs: dict[str, Any]) -> None:
            hidden = args[0] if args else kwargs.get("hidden_states")
            if isinstance(hidden, Tensor):
                look(index, hidden)

        return see

    handles = []
    try:
        for name, index in blocks_of(model, names).items():
            handles.append(model.get_submodule(name).register_forward_pre_hook(hook(index), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()

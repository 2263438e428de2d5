"""One name, one thing: how probes and figures are found."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from geomprobe.errors import InvalidParameter, unknown_name

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes or functions by name, in the order of their registration; holds no instances."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that files its argument under `name`; a name is given once.

        What a notebook or script defines takes the place of its own earlier version, as a cell may be run again.
        """

        def add(entry: T) -> T:
            if name in self._entries and not _anew(self._entries[name], entry):
                raise ValueError(f"{self.kind} {name!r} is already registered as {self._entries[name]!r}.")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise InvalidParameter(unknown_name(self.kind, name, self._entries))
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _anew(old: object, new: object) -> bool:
    """Whether the same thing is defined anew, in the module that is run and can be changed while it is."""
    places = [(getattr(x, "__module__", None), getattr(x, "__qualname__", None)) for x in (old, new)]
    return places[0] == places[1] and places[0][0] == "__main__"

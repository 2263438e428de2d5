"""Threads that share the blocks of a layer on a CPU.

One block's operations are too small to be worth splitting over cores: the threads of each would wait for one another
longer than they work. Whole blocks are worth it, so each worker takes some, on one core.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
MOST = 8  # workers; a layer has few blocks, and what is done between them is done by one


class Crew:
    """Workers, each on one core; a context that ends with them.

    Parameters
    ----------
    size : int, optional
        By default as many as torch has threads, at most 8.
    """

    def __init__(self, size: int | None = None) -> None:
        threads = torch.get_num_threads()
        self.size = min(threads, MOST) if size is None else size
        self._pool: ThreadPoolExecutor | None = None
        if self.size > 1:
            self._pool = ThreadPoolExecutor(self.size, thread_name_prefix="geomprobe")
            # Each worker sets its own number of threads; the number that new threads start with is put back after.
            list(self._pool.map(lambda _: torch.set_num_threads(1), range(4 * self.size)))
            torch.set_num_threads(threads)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def share(self, n_items: int) -> list[list[int]]:
        """Which items each worker takes: in turn, there and back, since later blocks of a causal model are larger."""
        shares: list[list[int]] = [[] for _ in range(min(self.size, n_items))]
        for item in range(n_items):
            lap, place = divmod(item, len(shares))
            shares[place if lap % 2 == 0 else -1 - place].append(item)
        return shares

    def run(self, work: Callable[[int], T], n_workers: int) -> Sequence[T]:
        """work(0), work(1), … side by side; the first error is raised here."""
        if self._pool is None or n_workers == 1:
            return [work(worker) for worker in range(n_workers)]

        def alone(worker: int) -> T:
            torch.set_num_threads(1)
            with torch.no_grad():
                return work(worker)

        return list(self._pool.map(alone, range(n_workers)))

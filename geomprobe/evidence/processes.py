"""Commands side by side: started, waited for, and stopped together with the process that started them."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

CHILD: Final = "GEOMPROBE_SWEEP_CHILD"  # in a child's environment: its number, from 0
BEGUN: Final = "GEOMPROBE_SWEEP_BEGUN"  # there too: when the first was started, in seconds since 1970
THREADS: Final = "OMP_NUM_THREADS"
TERMINATED: Final = 128 + signal.SIGTERM  # exit code, as shells have it
_LOOK: Final = 0.2  # seconds between two looks at the children
_PATIENCE: Final = 20.0  # seconds from a signal to SIGKILL


def run_together(commands: Sequence[Sequence[str]], logs: Sequence[Path], watch: Callable[[], None]) -> list[int]:
    """Run commands side by side to their ends; Ctrl-C and SIGTERM are passed on to them.

    Parameters
    ----------
    commands : sequence of words
        The cores are shared out among their threads.
    logs : sequence of Path
        What each says is added here.
    watch : callable
        Is called now and then.

    Returns
    -------
    list of int
        Exit codes; negative: the signal that ended a process.
    """
    children: list[subprocess.Popen[bytes]] = []
    shared = {THREADS: str(_threads(len(commands))), BEGUN: str(time.time())}
    with _terminable():
        try:
            for number, (command, log) in enumerate(zip(commands, logs, strict=True)):
                children.append(_start(command, log, {**shared, CHILD: str(number)}))
            while any(child.poll() is None for child in children):
                watch()
                time.sleep(_LOOK)
        except BaseException as error:
            _stop(children, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
            raise
        finally:
            for child in children:
                if child.stdin is not None:
                    child.stdin.close()
    return [child.wait() for child in children]


def n_cores() -> int:
    """Cores that this process may use: fewer than the machine's in a job of a cluster."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent() -> None:
    """In a child: end when the parent has ended, however it did."""
    if CHILD in os.environ:
        threading.Thread(target=_await_parent, daemon=True).start()


def _await_parent() -> None:
    os.read(0, 1)  # nothing is ever written: this returns when the parent's end of the pipe is closed
    os.kill(os.getpid(), signal.SIGTERM)


def _threads(n: int) -> int:
    """Of each of n processes; fewer where the environment says so."""
    share = max(1, n_cores() // n)
    given = os.environ.get(THREADS, "")
    return min(share, int(given)) if given.isdecimal() and int(given) else share


def _start(command: Sequence[str], log: Path, told: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        # A session of its own: a terminal's Ctrl-C then reaches the parent alone, and each child once.
        return subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **told},
            start_new_session=True,
        )


def _stop(children: Sequence[subprocess.Popen[bytes]], how: signal.Signals) -> None:
    for child in children:
        child.send_signal(how)
    until = time.monotonic() + _PATIENCE
    for child in children:
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that what was begun can be ended."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return

    def end(_number: int, _frame: Any) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""What a person sees while a long job runs: on stderr, and nothing where it is not wanted."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from geomprobe.labels import APP

LINE_EVERY = 15.0  # seconds


class Reporter:
    """Steps and a bar on stderr.

    Parameters
    ----------
    quiet : bool
        Say nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """One line."""
        self.console.print(f"[dim]{APP}[/dim] ", end="")
        self.console.print(text, markup=False)

    @contextmanager
    def bar(self, name: str, total: int, *, done: int = 0, unit: str = "windows") -> Iterator["Bar"]:
        """A progress bar with tokens per second and the time left; `unit` is what is counted."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        # Where there is no terminal to redraw a bar on, a line now and then tells how far it is.
        shown = self.console.is_terminal and not self.quiet
        with Progress(*columns, console=self.console, transient=True, disable=not shown) as progress:
            progress.add_task(name, total=total, completed=done, rate="")
            yield Bar(progress, None if shown else self.say, done, unit)


class Bar:
    """A bar in use."""

    def __init__(self, progress: Progress, say: Callable[[str], None] | None, done: int, unit: str = "windows") -> None:
        self._progress, self._say, self._begun_at, self._unit = progress, say, done, unit
        self._begun = self._said = time.monotonic()

    def update_plain(self, done: int) -> None:
        """Show that `done` things are finished, which are no windows."""
        task = self._progress.tasks[0]
        self._progress.update(task.id, completed=done)
        now = time.monotonic()
        if self._say is not None and now - self._said > LINE_EVERY:
            self._say(f"{task.description}: {done} of {task.total:.0f}")
            self._said = now

    def update_of(self, done: int, total: int) -> None:
        """The same where only the work itself knows how much there is."""
        self._progress.update(self._progress.tasks[0].id, total=total)
        self.update_plain(done)

    def update(self, done: int, tokens_per_unit: int) -> None:
        """Show that `done` of them are finished."""
        now = time.monotonic()
        task = self._progress.tasks[0]
        rate = f"{(done - self._begun_at) * tokens_per_unit / max(now - self._begun, 1e-9):,.0f} tokens/s"
        self._progress.update(task.id, completed=done, rate=rate)
        if self._say is not None and now - self._said > LINE_EVERY:
            self._say(f"{done} of {task.total:.0f} {self._unit}, {rate}")
            self._said = now

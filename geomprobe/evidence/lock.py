"""A lock between processes: one of them has it, and the system takes it back from one that was killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geomprobe.errors import RunError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def holding(file: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold an advisory lock for as long as the block lasts; whether it was to be had.

    The file stays: if it were deleted, a process could lock the old one while another locks the new.

    Parameters
    ----------
    file : Path
        Made where it is missing.
    wait : bool
        Until another process lets go.

    Raises
    ------
    RunError
        Where the system or the file system has no such locks.
    """
    if fcntl is None:
        raise RunError("`geomprobe sweep` needs locks of POSIX systems, which this one does not have; use WSL.")
    with file.open("a") as handle:  # closing it lets go
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            mine = True
        except BlockingIOError:
            mine = False
        except OSError as error:
            raise RunError(f"{str(file)!r} cannot be locked ({error.strerror}); give another --out.") from error
        yield mine

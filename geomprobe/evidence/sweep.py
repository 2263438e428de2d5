"""The trainings of a plan, one after another or in several processes; whatever is stopped goes on when asked again."""

import fnmatch
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from geomprobe.errors import GeomprobeError, InvalidParameter, RunError, at_least
from geomprobe.evidence.lock import holding
from geomprobe.evidence.plan import Job, Plan
from geomprobe.evidence.processes import BEGUN, CHILD, end_with_parent, run_together
from geomprobe.evidence.standing import FAILED, MEASURED, TRAINED, state, write_state
from geomprobe.lab.recipe import Recipe
from geomprobe.progress import Bar, Reporter

if TYPE_CHECKING:
    from geomprobe.corpus.sources import Source
    from geomprobe.lab.text import TextData

LOGS: Final = "logs"
RECORDS: Final = "records"
_LOOK: Final = 2.0  # seconds between two looks at the runs of other processes

Measure = Callable[[Path, Plan], None]


def sweep(  # noqa: PLR0913 (each is a setting of the command line, by the same name)
    plan: Plan,
    *,
    out: Path,
    jobs: int = 1,
    only: Sequence[str] = (),
    array: tuple[int, int] | None = None,
    device: str = "auto",
    quiet: bool = False,
    measure_run: Measure | None = None,
) -> pd.DataFrame:
    """Train, and measure where the plan says so, what is not done yet and no other process is at.

    Parameters
    ----------
    plan : Plan
    out : Path
        Gets a folder a run, by its name, and `sweep.csv`.
    jobs : int
        Processes at a time; the cores are shared out among them, GPUs given to them in turn.
    only : sequence of str
        Patterns such as "nano-A0-*": runs whose name fits one. Default: all.
    array : (int, int), optional
        Which part of how many, from 0: every n-th of these runs.
    device : str
    quiet : bool
        Show no progress.
    measure_run : callable, optional
        Takes a run's folder and the plan, with `jobs` 1 alone. Default: `geomprobe.evidence.measure.measure_run`.

    Returns
    -------
    DataFrame
        The rows of `state` for these runs. A run that failed is one of them, its traceback in its folder.

    Raises
    ------
    GeomprobeError
        Where nothing could be begun: no such run, text or device, a folder in the way.
    """
    at_least("jobs", jobs, 1)
    if jobs > 1 and measure_run is not None:
        raise InvalidParameter("measure_run cannot be sent to other processes; leave it out, or set jobs to 1.")
    chosen = choose(plan, only=only, array=array)
    check_files(plan)
    try:
        (out / LOGS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"Cannot make the folder {str(out)!r}: {os.strerror(error.errno or 0)}.") from error
    reporter = Reporter(quiet=quiet)
    if jobs > 1 and len(chosen) > 1:
        _in_processes(plan, chosen, out, command_of(plan, out, only, array, device), jobs, reporter)
    else:
        end_with_parent()
        _Work(plan, out, place_of(device), reporter, measure_run).run(chosen)
    table = write_state(plan, out)
    return table[table["job"].isin([job.name for job in chosen])].reset_index(drop=True)


def choose(plan: Plan, *, only: Sequence[str] = (), array: tuple[int, int] | None = None) -> tuple[Job, ...]:
    """The runs whose names fit, and of these every n-th.

    Raises
    ------
    InvalidParameter
        Where a pattern fits none, or the part is none of so many.
    """
    for pattern in only:
        if not any(fnmatch.fnmatchcase(job.name, pattern) for job in plan.jobs):
            raise InvalidParameter(
                f"only must fit a run of the plan, as {plan.jobs[0].name!r}, and may hold * and ?; got {pattern!r}."
            )
    chosen = [job for job in plan.jobs if not only or any(fnmatch.fnmatchcase(job.name, each) for each in only)]
    if array is not None:
        part, n = array
        if not 0 <= part < n:
            raise InvalidParameter(f"array must be I/N with I from 0 to N - 1; got '{part}/{n}'.")
        chosen = chosen[part::n]
    return tuple(chosen)


def check_files(plan: Plan) -> None:
    """Raise where a file of the plan is missing: better now than behind hours of training.

    Raises
    ------
    InvalidParameter
    """
    named = [("text", path) for path in plan.text]
    if plan.categories is not None and plan.measure:
        named.append(("categories", plan.categories))
    for what, path in named:
        if not path.exists():
            raise InvalidParameter(f"{plan.file.name}: {what} must be there; got {str(path)!r}, which is not.")


# ---------------------------------------------------------------------- in this process
class _Work:
    """What one process does.

    Parameters
    ----------
    plan : Plan
    out : Path
    place : str
        A device.
    reporter : Reporter
    measure_run : callable or None
    """

    def __init__(self, plan: Plan, out: Path, place: str, reporter: Reporter, measure_run: Measure | None) -> None:
        self.plan, self.out, self.place, self.reporter = plan, out, place, reporter
        self.measure_run = measure_run
        self.begun = float(os.environ.get(BEGUN, time.time()))
        self._prepared: dict[tuple[int, int], TextData | GeomprobeError] = {}

    def run(self, jobs: Sequence[Job]) -> None:
        """Pass over the jobs until none is left that is free."""
        left = list(jobs)
        while left:
            held = [job for job in left if not self._take(job)]
            if len(held) == len(left):
                self.reporter.say(f"another process is at {', '.join(job.name for job in held)}")
                return
            left = held

    def _take(self, job: Job) -> bool:
        """Do a job, unless another process is at it; whether this one had it."""
        with holding(self.out / f".{job.name}.lock") as mine:
            if mine and not self._failed_just_now(job):
                self._do(job)
                write_state(self.plan, self.out)
        return mine

    def _failed_just_now(self, job: Job) -> bool:
        """Whether another process of this sweep tried it in vain; what failed in an earlier one is tried again."""
        try:
            return (self.out / job.name / FAILED).stat().st_mtime >= self.begun
        except OSError:
            return False

    def _do(self, job: Job) -> None:
        from geomprobe.lab.running import run_recipe

        folder = self.out / job.name
        # Where nothing else is in the folder, it would be in the way of the training.
        (folder / FAILED).unlink(missing_ok=True)
        trained = (folder / TRAINED).exists()  # needs a look whether it is this very training, and no word
        reporter = Reporter(quiet=self.reporter.quiet or trained)
        reporter.say(f"{job.name}: {self.plan.jobs.index(job) + 1} of {len(self.plan.jobs)}")
        try:
            data = self._data(job.recipe)
            if job.compiled or self.place.startswith("cuda"):
                _forget_compiled()
            run_recipe(
                job.recipe,
                data,
                out=folder,
                place=self.place,
                compiled=job.compiled,
                overwrite=False,
                reporter=reporter,
            )
            if self.plan.measure:
                self._measure(folder, data)
        except Exception as error:  # noqa: BLE001 (whatever it is, the other runs go on)
            folder.mkdir(exist_ok=True)
            (folder / FAILED).write_text(traceback.format_exc(), encoding="utf-8")
            self.reporter.say(f"{job.name} failed ({type(error).__name__}): {error}")

    def _measure(self, folder: Path, data: "TextData | None") -> None:
        self._measured(folder, data)
        record = folder / MEASURED
        if record.exists():  # what `geomprobe evidence` reads stands together, apart from the weights
            records = self.out / RECORDS
            records.mkdir(exist_ok=True)
            part = records / f".{folder.name}.part"
            shutil.copyfile(record, part)
            part.replace(records / f"{folder.name}.json")

    def _measured(self, folder: Path, data: "TextData | None") -> None:
        if self.measure_run is not None:
            self.measure_run(folder, self.plan)
            return
        from geomprobe.evidence.measure import measure_run

        measure_run(folder, data=data, categories=self.plan.categories, reporter=self.reporter)

    def _data(self, recipe: Recipe) -> "TextData | None":
        from geomprobe.lab.text import TextPlan, prepare_text

        if recipe.task != "text":
            return None
        key = (recipe.size.vocab_size, recipe.renamed)
        if key not in self._prepared:
            with holding(self.out / ".data.lock", wait=True):  # else each process would learn the same vocabulary
                try:
                    found = prepare_text(self._source, TextPlan(*key), say=self.reporter.say)
                except GeomprobeError as error:
                    self._prepared[key] = error  # it would be the same for the next run, after the same time
                    raise
            self._prepared[key] = found
        known = self._prepared[key]
        if isinstance(known, GeomprobeError):
            raise known
        return known

    @cached_property
    def _source(self) -> "Source":
        from geomprobe.corpus.sources import read_dataset, read_texts

        return read_dataset(self.plan.dataset) if self.plan.dataset is not None else read_texts(self.plan.text)


def place_of(device: str) -> str:
    """The device of this process: `auto` and `cuda` give processes of one machine its GPUs in turn."""
    import torch

    from geomprobe.models.load import choose_device

    place = choose_device(device)
    number = os.environ.get("LOCAL_RANK", os.environ.get(CHILD, "0"))  # torchrun's, and that of --jobs
    if device in ("auto", "cuda") and place.startswith("cuda") and number.isdecimal():
        return f"cuda:{int(number) % torch.cuda.device_count()}"
    return place


def _forget_compiled() -> None:
    """Compile each model anew: from the ninth on, torch would leave it uncompiled, which has other roundings."""
    import torch

    torch.compiler.reset()


# ---------------------------------------------------------------------- in other processes
def command_of(
    plan: Plan, out: Path, only: Sequence[str], array: tuple[int, int] | None, device: str
) -> tuple[str, ...]:
    """The command line that does the same in one process."""
    words = ["sweep", str(plan.file), "--out", str(out), "--jobs", "1", "--device", device]
    words += [word for pattern in only for word in ("--only", pattern)]
    words += [] if array is None else ["--array", f"{array[0]}/{array[1]}"]
    return (sys.executable, "-m", "geomprobe", *words)


def _in_processes(
    plan: Plan, chosen: Sequence[Job], out: Path, command: Sequence[str], jobs: int, reporter: Reporter
) -> None:
    n = min(jobs, len(chosen))
    part = f"{command[-1].partition('/')[0]}-" if "--array" in command else ""
    logs = [out / LOGS / f"{part}{number}.log" for number in range(1, n + 1)]
    reporter.say(f"{len(chosen)} runs in {n} processes, which write to {out / LOGS}")
    names = {job.name for job in chosen}
    with reporter.bar("runs", len(chosen)) as bar:
        codes = run_together([command] * n, logs, _Watch(plan, out, names, bar))
    table = state(plan, out)
    states = table.loc[table["job"].isin(names), "state"]
    left = int(states.isin(["waiting", "training"]).sum())
    for code, log in zip(codes, logs, strict=True):
        # 1: a run failed, which the table says. A process that was killed is no loss where others took its runs.
        if (code not in (0, 1) and left) or (code == 1 and not (states == "failed").any()):
            lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
            said = next((line for line in reversed(lines) if line.strip()), "nothing")
            raise RunError(
                f"A process of the sweep ended with code {code}, {left} runs are left; {str(log)!r} ends with: {said}"
            )


class _Watch:
    """Shows now and then how many runs are done."""

    def __init__(self, plan: Plan, out: Path, names: set[str], bar: Bar) -> None:
        self._plan, self._out, self._names, self._bar = plan, out, names, bar
        self._looked = 0.0

    def __call__(self) -> None:
        if time.monotonic() - self._looked < _LOOK:
            return
        table = state(self._plan, self._out)
        done = table["state"].isin(["measured", "failed"] if self._plan.measure else ["trained", "measured", "failed"])
        self._bar.update_plain(int((done & table["job"].isin(self._names)).sum()))
        self._looked = time.monotonic()

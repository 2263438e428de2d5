"""`geomprobe sweep`: every arm, seed and learning rate of a plan, stopped and taken up at will."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

_WIDE = 120  # columns where the output is no terminal
STYLES = {"measured": "green", "trained": "green", "failed": "bold red", "in_the_way": "bold red", "waiting": "dim"}


def sweep(
    plan: Annotated[Path, typer.Argument(help="A YAML file: text, measure, and groups of arms, seeds and rates.")],
    out: Annotated[Path | None, typer.Option(help="The folder of the runs. [default: sweeps/PLAN]")] = None,
    jobs: Annotated[int, typer.Option(help="Processes at a time.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Runs whose name fits, as 'nano-A0-*'; repeatable.")
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(
            help="I/N: every N-th run from the I-th on, counted from 0. [default: torchrun's RANK/WORLD_SIZE]"
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show how far each run is, and stop.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no table.")] = False,
) -> None:
    """Train every run of a plan, and measure it where the plan says so.

    The same command goes on from where one was stopped or killed. Several may
    be at one folder: a run that another is at is left alone. A run that fails
    leaves its traceback in failed.txt and the others go on; the exit code is 1.

    In a SLURM array that is numbered from 0, as by sbatch --array=0-7:
    geomprobe sweep PLAN --array $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT

    Under torchrun, where --array need not be given:
    torchrun --no-python --nproc-per-node 8 geomprobe sweep PLAN
    """
    import os

    from geomprobe.evidence.plan import read_plan
    from geomprobe.evidence.standing import TABLE, state
    from geomprobe.evidence.sweep import choose
    from geomprobe.evidence.sweep import sweep as run_sweep

    found = read_plan(plan)
    folder = out if out is not None else Path("sweeps") / found.name
    part = array_of(array, os.environ)
    names = tuple(only or ())
    if show:
        chosen = [job.name for job in choose(found, only=names, array=part)]
        table = state(found, folder)
        _print(table[table["job"].isin(chosen)])
        return
    table = run_sweep(found, out=folder, jobs=jobs, only=names, array=part, device=device, quiet=quiet)
    if not quiet:
        _print(table)
    typer.echo(folder / TABLE)
    if (table["state"] == "failed").any():
        raise typer.Exit(1)


def array_of(given: str | None, environment: "Mapping[str, str]") -> tuple[int, int] | None:
    """Which part of how many, as typed or as torchrun says; None for all.

    Raises
    ------
    InvalidParameter
        Where it is not I/N with I below N.
    """
    from geomprobe.errors import InvalidParameter

    rank, size = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if given is None and not (rank.isdecimal() and size.isdecimal()):
        return None
    said = given if given is not None else f"{rank}/{size}"
    part, _, n = said.partition("/")
    if not (part.isdecimal() and n.isdecimal() and int(part) < int(n)):
        raise InvalidParameter(f"array must be I/N with I from 0 to N - 1; got {said!r}.")
    return int(part), int(n)


def _print(table: "pd.DataFrame") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console = console if console.is_terminal else Console(width=_WIDE)
    counts = table["state"].value_counts()
    shown = Table(
        box=None,
        pad_edge=False,
        title=", ".join(f"{n} {name}".replace("_", " ") for name, n in counts.items()),
        title_justify="left",
    )
    for title in ("run", "state", "held-out loss", "minutes"):
        shown.add_column(title, overflow="fold")
    for row in table.to_dict("records"):
        words = str(row["state"]).replace("_", " ")
        if row["state"] == "training":
            words = f"training, step {row['step']:,} of {row['n_steps']:,}"
        loss, minutes = row["held_out_loss"], row["seconds"] / 60
        style = STYLES.get(row["state"], "")
        shown.add_row(
            row["job"],
            f"[{style}]{words}[/]" if style else words,
            "–" if loss != loss else f"{loss:.4f}",
            "–" if minutes != minutes else f"{minutes:.1f}",
        )
    console.print(shown)

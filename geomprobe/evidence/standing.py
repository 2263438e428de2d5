"""How far the runs of a plan are: read from their folders, without torch."""

import json
import math
from pathlib import Path
from typing import Any, Final

import pandas as pd

from geomprobe.evidence.lock import holding
from geomprobe.evidence.plan import Job, Plan
from geomprobe.lab.arms import name_of

TABLE: Final = "sweep.csv"
FAILED: Final = "failed.txt"  # in a run's folder: the traceback of the last try
# As geomprobe.lab.folder names them, which imports torch.
BEGUN: Final = "begun.json"
TRAINED: Final = "training.json"
MEASURED: Final = "measured.json"
VERSION: Final = 6  # of what is measured
STATES: Final = ("waiting", "training", "trained", "measured", "failed", "in_the_way")
COLUMNS: Final = (
    "job", "group", "arm", "seed", "rate", "state", "step", "n_steps", "held_out_loss", "seconds",
)  # fmt: skip


def state(plan: Plan, out: Path) -> pd.DataFrame:
    """How far each run of the plan is, from the files in its folder.

    Parameters
    ----------
    plan : Plan
    out : Path
        Of the sweep.

    Returns
    -------
    DataFrame
        A row a run: `job`, `group`, `arm`, `seed`, `rate`; `state`, one of STATES ("in_the_way": the folder holds a
        training of another recipe); `step` of `n_steps` (where a training is under way: the last saved one);
        `held_out_loss` at the training length in nats, NaN where there is none or training diverged; `seconds` of
        updates.
    """
    return pd.DataFrame([_row(job, out / job.name) for job in plan.jobs], columns=list(COLUMNS))


def _row(job: Job, folder: Path) -> dict[str, Any]:
    manifest, begun = _read(folder / TRAINED), _read(folder / BEGUN)
    note = manifest or begun
    own = note is not None and note.get("recipe") == job.recipe.described
    row = {
        "job": job.name,
        "group": job.group,
        "arm": name_of(job.recipe.arm),
        "seed": job.recipe.seed,
        "rate": job.recipe.rate,
        "state": "waiting" if note is None else _state(folder, manifest) if own else "in_the_way",
        "step": _saved_step(folder) if own else 0,
        "n_steps": job.recipe.n_steps,
        "held_out_loss": math.nan,
        "seconds": math.nan,
    }
    if (folder / FAILED).exists():
        row["state"] = "failed"
    if own and manifest is not None:
        loss = manifest["held_out_loss"].get("1") if manifest["diverged_at"] is None else None
        row["held_out_loss"] = math.nan if loss is None else loss
        row |= {"step": manifest["step"], "seconds": manifest["seconds"]}
    return row


def _state(folder: Path, manifest: dict[str, Any] | None) -> str:
    if manifest is None:
        return "training"
    measured = _read(folder / MEASURED)
    own = measured is not None and measured.get("fingerprint") == manifest["fingerprint"]
    return "measured" if own and measured is not None and measured.get("version") == VERSION else "trained"


def _saved_step(folder: Path) -> int:
    """The last step of a training that is kept: a checkpoint, or the state to go on from."""
    kept = (*folder.glob("steps/[0-9]*"), *folder.glob("state/[0-9]*.pt"))
    return max((int(path.stem) for path in kept), default=0)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_state(plan: Plan, out: Path) -> pd.DataFrame:
    """Write `state` into `sweep.csv`, by rename; return it."""
    with holding(out / ".sweep.lock", wait=True):  # else an older look could be written over a newer one
        table = state(plan, out)
        part = out / f".{TABLE}.part"
        table.to_csv(part, index=False)
        part.replace(out / TABLE)
    return table

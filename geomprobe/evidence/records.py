"""What was measured of many trained runs, as one table: a row a run."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe.errors import RunError

Floats = NDArray[np.float64]
SHORT_SINK: Final = "first_mass_64"  # attention on the first position, in windows of 64 tokens
_PARTS: Final = frozenset({"arm", "recipe", "tokens", "numbers", "losses", "curves", "on_the_way"})


@dataclass(frozen=True, eq=False)
class Records:
    """Measured runs.

    Attributes
    ----------
    table : DataFrame
        name, group, arm, seed, rate, tokens, and a column a number.
    whole : dict from name to dict
        The records as they were read.
    """

    table: pd.DataFrame
    whole: Mapping[str, dict[str, Any]]

    def rows(self, group: str, arm: str, rate: float | None = None) -> pd.DataFrame:
        """The runs of an arm in a group, by seed."""
        table = self.table
        chosen = (table["group"] == group) & (table["arm"] == arm)
        if rate is not None:
            chosen &= np.isclose(table["rate"], rate)
        return table[chosen].set_index("seed").sort_index()

    def one(self, group: str, arm: str, number: str, rate: float | None = None) -> pd.Series:
        """A number of an arm's runs, by seed; those that have none are left out."""
        rows = self.rows(group, arm, rate)
        return rows[number].dropna() if number in rows else pd.Series(dtype=float)

    def paired(self, group: str, arm: str, other: str, number: str, rate: float | None = None) -> Floats:
        """What an arm has more than another, of the seeds that both have: (seed,)."""
        difference = (self.one(group, arm, number, rate) - self.one(group, other, number, rate)).dropna()
        return difference.to_numpy(float)

    def rates(self, group: str) -> list[float]:
        """The learning rates of a group's runs."""
        return sorted({float(rate) for rate in self.table.loc[self.table["group"] == group, "rate"]})

    def seeds(self, group: str, arm: str) -> list[int]:
        """The seeds of an arm's runs in a group."""
        return [int(seed) for seed in self.rows(group, arm).index]


def read_records(folder: Path) -> Records:
    """The records of a folder: <run>.json each, the run's name begins with its group.

    Raises
    ------
    RunError
        Where there are none, or one is damaged.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise RunError(f"{str(folder)!r} holds no records (*.json); `geomprobe sweep` with measure: true makes them.")
    whole = {}
    for file in files:
        try:
            whole[file.stem] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{str(file)!r} is not valid JSON ({error}); measure that run again.") from error
        if not isinstance(whole[file.stem], dict) or _PARTS - whole[file.stem].keys():
            raise RunError(f"{str(file)!r} is no record of a measured run; measure that run again.")
    return make_records(whole)


def make_records(whole: Mapping[str, dict[str, Any]]) -> Records:
    """Records by name to one table."""
    rows = [
        {
            "name": name,
            "group": name.split("-")[0],
            "arm": record["arm"],
            "seed": record["recipe"]["seed"],
            "rate": record["recipe"]["rate"],
            "tokens": record["tokens"],
            **{number: math.nan if value is None else value for number, value in record["numbers"].items()},
        }
        for name, record in whole.items()
    ]
    return Records(pd.DataFrame(rows), whole)


def at_equal_loss(records: Records, group: str, arms: Iterable[str], number: str) -> dict[str, pd.Series]:
    """A number of each arm where the arms of a seed had the same held-out loss.

    The loss is the highest of the arms' last losses; where an arm passed it earlier, the number is read off the line
    between the two measured steps around it.

    Returns
    -------
    dict from arm to Series (seed)
        Seeds in which every arm can be read.
    """
    runs = {
        arm: dict(zip(records.seeds(group, arm), records.rows(group, arm)["name"].astype(str), strict=True))
        for arm in arms
    }
    common = set.intersection(*(set(own) for own in runs.values())) if runs else set()
    read: dict[str, dict[int, float]] = {arm: {} for arm in runs}
    for seed in sorted(common):
        lines = {arm: _line(records.whole[own[seed]], number) for arm, own in runs.items()}
        target = max(line[-1][0] for line in lines.values())
        values = {arm: _read_off(line, target) for arm, line in lines.items()}
        if all(math.isfinite(value) for value in values.values()):
            for arm, value in values.items():
                read[arm][seed] = value
    return {arm: pd.Series(values, dtype=float) for arm, values in read.items()}


def _line(record: Mapping[str, Any], number: str) -> list[tuple[float, float]]:
    """(held-out loss, number) of the measured steps, the last one last; both on the short held-out text."""
    last_loss = record["losses"][-1]["loss"]
    earlier = [(one["loss"], one["numbers"].get(number)) for one in record["on_the_way"]]
    whole = [*earlier, (last_loss, record["numbers"].get(number))]
    return [(loss, math.nan if value is None else value) for loss, value in whole]


def _read_off(line: list[tuple[float, float]], target: float) -> float:
    losses, values = zip(*sorted(line), strict=True)
    if not losses[0] <= target <= losses[-1]:
        return math.nan
    return float(np.interp(target, losses, values))

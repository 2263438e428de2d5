"""Which arms and trainings the claims are about, by the names that the plan gives them."""

from typing import Final

from geomprobe.evidence.contrasts import Contrast, Rule
from geomprobe.evidence.records import Records

PLAIN: Final = "A0"
NORMED: Final = "A1"
VERSUS: Final = f"{NORMED} − {PLAIN}"
SHORT: Final = "nano"  # the groups of the plan
LONG: Final = "long"
STABILITY: Final = "stability"
NO_BOS: Final = "nobos"  # as long, and sequences begin without a BOS


def own(records: Records, arm: str, name: str, rule: Rule | None = None) -> Contrast:
    """A number of an arm itself, over the seeds of the short trainings."""
    return Contrast(name, arm, records.one(SHORT, arm, name).to_numpy(float), rule)

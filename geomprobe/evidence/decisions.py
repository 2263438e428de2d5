"""The claims that only trained twins can decide, each with its contrasts and rules."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from geomprobe.evidence.angle_decisions import constant_lengths, rare, tighter
from geomprobe.evidence.contrasts import Decision
from geomprobe.evidence.records import Records
from geomprobe.evidence.sink_decision import sinks
from geomprobe.evidence.training_decisions import after_rope, inflation, stability, temperature
from geomprobe.evidence.twins import LONG, NORMED, PLAIN, SHORT, STABILITY

# The group and the arms without which a claim is not tested.
NEEDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "C1t": (SHORT, (PLAIN,)),
        "C3": (SHORT, (NORMED,)),
        "C4": (SHORT, (PLAIN, NORMED)),
        "C5": (SHORT, (PLAIN, NORMED)),
        "C6q": (SHORT, (NORMED, "A3")),
        "C7b": (STABILITY, (PLAIN, NORMED)),
        "C8": (SHORT, (NORMED, "A6", "A7")),
        "H9": (LONG, (PLAIN, NORMED)),
    }
)


def decide(records: Records) -> list[Decision]:
    """Every claim on twins, whether its runs are there or not."""
    return [
        inflation(records),
        constant_lengths(records),
        tighter(records),
        rare(records),
        after_rope(records),
        stability(records),
        temperature(records),
        sinks(records),
    ]

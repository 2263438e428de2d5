"""Claims about lengths and angles of keys, which must hold in the raw and in the balanced gauge."""

from collections.abc import Sequence
from dataclasses import dataclass

from geomprobe.evidence.contrasts import Contrast, Decision
from geomprobe.ledger.endpoint import INCONCLUSIVE, NOT_IDENTIFIED, NOT_TESTED, REFUTED, SUPPORTED, Verdict


@dataclass(frozen=True, eq=False)
class InGauges(Decision):
    """A claim about lengths and angles, decided in each gauge by itself.

    Not identified where one gauge speaks for it and another against it; where one says neither, neither is said.

    Attributes
    ----------
    gauges : tuple of tuple of Contrast
        The deciding contrasts of each gauge; what does not depend on it is in all of them.
    """

    gauges: tuple[tuple[Contrast, ...], ...] = ()

    @property
    def p(self) -> float:
        """Both gauges must say so, and the same."""
        if not self.tested:
            return 1.0
        sides = [Decision(self.claim, self.title, own, self.agree).sides for own in self.gauges]
        return min(max(side) for side in zip(*sides, strict=True))

    def level_of(self, level: float) -> float:
        """The part of the level at which each contrast is asked: as many share it as a gauge has."""
        return level / max(len(own) for own in self.gauges)

    def verdict(self, level: float) -> Verdict:
        """What both gauges say at a level."""
        if not self.tested:
            return NOT_TESTED
        asked = self.level_of(level)
        said = {self.agree([one.speaks(asked) for one in own]) for own in self.gauges}
        if {SUPPORTED, REFUTED} <= said:
            return NOT_IDENTIFIED
        return said.pop() if len(said) == 1 else INCONCLUSIVE


def in_gauges(
    raw: Sequence[Contrast], balanced: Sequence[Contrast], both: Sequence[Contrast] = ()
) -> tuple[tuple[Contrast, ...], ...]:
    """The contrasts that decide in each gauge: in the balanced one those that all seeds of the raw one have, if any.

    Gauges are not held against each other on different seeds: records of an older version have one gauge.
    """
    measured = [one for one, own in zip(balanced, raw, strict=True) if one.n and one.n == own.n]
    return ((*raw, *both), (*measured, *both)) if measured else ((*raw, *both),)


def deciding(gauges: Sequence[tuple[Contrast, ...]]) -> tuple[Contrast, ...]:
    """Those of all gauges, each once."""
    return tuple(dict.fromkeys(one for own in gauges for one in own))


def about_gauges(gauges: Sequence[tuple[Contrast, ...]]) -> str:
    """What the balanced gauge lacks of what the raw one has."""
    raw = gauges[0]
    if not any(one.n for one in raw):
        return ""
    if len(gauges) == 1:
        return "Keys were measured in the raw gauge alone."
    lacks = len(gauges[1]) < len(raw)
    return "In the balanced gauge not all was measured: there the rest of the contrasts decides." if lacks else ""

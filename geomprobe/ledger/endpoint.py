"""What a claim is decided by: quantities with their draws, a rule for each, and what all of them allow to say."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from geomprobe.stats.resampling import holm_levels, interval, share_beyond

Verdict = Literal["supported", "refuted", "inconclusive", "not_identified", "not_tested"]
SUPPORTED: Final = "supported"
REFUTED: Final = "refuted"
INCONCLUSIVE: Final = "inconclusive"
NOT_IDENTIFIED: Final = "not_identified"
NOT_TESTED: Final = "not_tested"
VERDICTS: Final = (SUPPORTED, REFUTED, INCONCLUSIVE, NOT_IDENTIFIED, NOT_TESTED)


@dataclass(frozen=True)
class Rule:
    """When a quantity speaks for a claim, and when against it.

    Attributes
    ----------
    text : str
        In words, with its numbers.
    above, below : float
        It speaks for the claim where its interval lies above `above` (and the estimate reaches `least`), against it
        where its interval lies below `below`. NaN: never.
    least : float
        That the estimate must reach to speak for the claim; −∞ where the interval decides alone.
    turned : bool
        The other way round: for the claim below `above`, against it above `below`.
    within : float
        A margin of equivalence instead: for the claim where the 90 % interval lies within ±within (TOST); NaN where
        there is none.
    """

    text: str
    above: float = math.nan
    below: float = math.nan
    least: float = -math.inf
    turned: bool = False
    within: float = math.nan


@dataclass(frozen=True, eq=False)
class Quantity:
    """A number of a run, with its bootstrap draws.

    Attributes
    ----------
    name : str
        As in the tables: norm_share, class_sink.
    estimate : float
    draws : ndarray (draw,)
        Empty where there is no interval.
    rule : Rule or None
        None where it is shown beside the others and decides nothing.
    gauge : str
        raw or balanced; empty where lengths and angles play no part.
    where : str
        Layers in words.
    token_class : str
    p : float
        Of a permutation test against no effect; NaN without one.
    p_smallest : float
        The smallest that this test can give.
    n_types, n_documents, n_layers, n_heads : int
        What is behind it; 0 where it is not of such things.
    """

    name: str
    estimate: float
    draws: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    rule: Rule | None = None
    gauge: str = ""
    where: str = ""
    token_class: str = ""
    p: float = math.nan
    p_smallest: float = math.nan
    n_types: int = 0
    n_documents: int = 0
    n_layers: int = 0
    n_heads: int = 0

    @property
    def refutes(self) -> bool:
        """Whether its rule says when it speaks against the claim."""
        return self.rule is not None and not math.isnan(self.rule.below)

    def interval(self, level: float) -> tuple[float, float]:
        """The interval that errs by `level`."""
        return interval(self.draws, level)

    def p_for(self) -> float:
        """Two-sided p that the quantity speaks for the claim."""
        rule = self.rule
        if rule is None or not len(self.draws):
            return 1.0
        if rule.within == rule.within:
            return max(
                share_beyond(self.draws, -rule.within, above=True), share_beyond(self.draws, rule.within, above=False)
            )
        if math.isnan(rule.above):
            return 1.0
        found = 2 * share_beyond(self.draws, rule.above, above=not rule.turned)
        return min(1.0, found if math.isnan(self.p) else max(found, self.p))

    def p_against(self) -> float:
        """Two-sided p that it speaks against it."""
        if self.rule is None or not len(self.draws) or math.isnan(self.rule.below):
            return 1.0
        return min(1.0, 2 * share_beyond(self.draws, self.rule.below, above=self.rule.turned))

    def speaks(self, level: float) -> Verdict:
        """What it says of the claim at a level."""
        rule = self.rule
        if rule is None or math.isnan(self.estimate) or not len(self.draws):
            return NOT_TESTED
        if rule.within == rule.within:
            low, high = self.interval(2 * level)
            return SUPPORTED if -rule.within < low and high < rule.within else INCONCLUSIVE
        low, high = self.interval(level)
        if math.isnan(low):
            return INCONCLUSIVE
        against = low > rule.below if rule.turned else high < rule.below
        if against:  # where both rules hold, this one wins
            return REFUTED
        if rule.turned:
            return SUPPORTED if high < rule.above else INCONCLUSIVE
        reached = low > rule.above and self.estimate >= rule.least
        return SUPPORTED if reached and not self.p > level else INCONCLUSIVE


@dataclass(frozen=True, eq=False)
class Endpoint:
    """One primary endpoint of a report: it is decided once, and counts once among the others.

    Attributes
    ----------
    quantities : tuple of Quantity
        Those that decide, in both gauges where lengths or angles play a part, and those shown beside them.
    agree : callable
        From a gauge and what its quantities say, by name, to what the gauge says.
    one_refutes : bool
        Whether one quantity alone may speak against the claim; p and level then pay for there being several.
    """

    quantities: tuple[Quantity, ...]
    agree: Callable[[str, dict[str, Verdict]], Verdict]
    one_refutes: bool = False

    @property
    def gauges(self) -> list[str]:
        """The gauges in which it is decided."""
        return list(dict.fromkeys(q.gauge for q in self.deciding if q.gauge)) or [""]

    @property
    def deciding(self) -> list[Quantity]:
        """The quantities with a rule."""
        return [quantity for quantity in self.quantities if quantity.rule is not None]

    @property
    def p(self) -> float:
        """Of the side that has more for it: all that it is decided by must say so, in every gauge."""
        if not self.deciding:
            return 1.0
        for_ = max(self._shares(q) * q.p_for() for q in self.deciding)
        return min(1.0, for_, max(self._p_against(gauge) for gauge in self.gauges))

    def _p_against(self, gauge: str) -> float:
        found = [self._shares(q) * q.p_against() for q in self._of(gauge)]
        return min(found) if self.one_refutes else max(found)

    def level_of(self, quantity: Quantity, level: float) -> float:
        """The part of its level at which one of its quantities is asked: those that may refute alone share it."""
        return level / self._shares(quantity)

    def _shares(self, quantity: Quantity) -> int:
        if not self.one_refutes or not quantity.refutes:
            return 1
        return sum(other.refutes for other in self._of(quantity.gauge))

    def _of(self, gauge: str) -> list[Quantity]:
        return [q for q in self.deciding if q.gauge in ("", gauge)]

    def verdict(self, level: float) -> Verdict:
        """What it says at a level: gauges that disagree leave it not identified."""
        said = set()
        for gauge in self.gauges:
            mine = {q.name: q.speaks(self.level_of(q, level)) for q in self._of(gauge)}
            said.add(self.agree(gauge, mine))
        return said.pop() if len(said) == 1 else NOT_IDENTIFIED


def all_agree(_gauge: str, said: dict[str, Verdict]) -> Verdict:
    """For or against where every quantity says so."""
    values = set(said.values())
    for verdict in (REFUTED, SUPPORTED):
        if values == {verdict}:
            return verdict
    return INCONCLUSIVE


def levels(endpoints: Sequence[Endpoint], level: float) -> list[float]:
    """The level at which each endpoint of a report is decided, so that all together err by `level` (Holm)."""
    return [float(x) for x in holm_levels(np.array([one.p for one in endpoints]), level)] if endpoints else []


def first_of(verdicts: Iterable[Verdict], *wanted: Verdict) -> Verdict | None:
    """The first of the wanted verdicts that is among them."""
    there = set(verdicts)
    return next((verdict for verdict in wanted if verdict in there), None)

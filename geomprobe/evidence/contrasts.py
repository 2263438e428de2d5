"""Differences between arms, paired by seed: t intervals, exact sign flips, equivalence, Holm over the claims."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from geomprobe.ledger.endpoint import INCONCLUSIVE, NOT_TESTED, REFUTED, SUPPORTED, Verdict
from geomprobe.stats.resampling import holm_levels

Floats = NDArray[np.float64]
LEVEL: Final = 0.05
LEAST_SEEDS: Final = 2


def t_interval(values: Floats, level: float) -> tuple[float, float]:
    """Mean of seeds ± Student's t: the interval that errs by `level`; NaN for fewer than two.

    A percentile bootstrap of 3, 6 or 9 seeds would cover .75, .86 or .90 where it promises .95.
    """
    n = len(values)
    if n < LEAST_SEEDS:
        return math.nan, math.nan
    half = float(t.ppf(1 - level / 2, n - 1) * values.std(ddof=1) / math.sqrt(n))
    middle = float(values.mean())
    return middle - half, middle + half


def p_beyond(values: Floats, bound: float, *, above: bool) -> float:
    """One-sided p, by Student's t, against the mean lying on the other side of a bound; 1 for fewer than two seeds."""
    n = len(values)
    if n < LEAST_SEEDS:
        return 1.0
    error = float(values.std(ddof=1)) / math.sqrt(n)
    away = (float(values.mean()) - bound) * (1 if above else -1)
    if error == 0:
        return 0.0 if away > 0 else 1.0
    return float(t.sf(away / error, n - 1))


def sign_flip_p(values: Floats) -> tuple[float, float]:
    """Exact two-sided p of paired differences under flips of their signs, and the smallest that so many can give.

    Under no effect each difference may as well have the other sign: all 2ⁿ sums of flipped differences are counted
    that are at least as large as the one seen. (NaN, NaN) without values.
    """
    n = len(values)
    if n == 0:
        return math.nan, math.nan
    flips = np.array(list(itertools.product((1.0, -1.0), repeat=n)))  # (2ⁿ, n)
    sums = np.abs(flips @ values)
    seen = abs(float(values.sum()))
    return float((sums >= seen * (1 - 1e-12)).mean()), 2.0 ** (1 - n)


@dataclass(frozen=True)
class Rule:
    """When a mean over seeds speaks for a claim, and when against it.

    Attributes
    ----------
    text : str
        In words, with its numbers.
    above : float
        For the claim where the whole interval lies above; NaN: never.
    least : float
        That the mean must reach besides.
    below : float
        Against the claim where the whole interval lies below; NaN: never.
    none_within : float
        Against it also where the interval that errs by twice the level lies within ± this: no effect worth the name
        (TOST); NaN: never.
    within : float
        For the claim, instead, where that interval lies within ± this; NaN: never.
    turned : bool
        Small is for the claim: `above`, `below` and `least` are asked of the negative.
    """

    text: str
    above: float = math.nan
    least: float = -math.inf
    below: float = math.nan
    none_within: float = math.nan
    within: float = math.nan
    turned: bool = False


@dataclass(frozen=True, eq=False)
class Contrast:
    """A number of each seed: a difference between twins, or one arm's own.

    Attributes
    ----------
    name : str
        Of the quantity.
    what : str
        Of what: "A1 − A0".
    values : ndarray (seed,)
    rule : Rule or None
        None where it is shown and decides nothing.
    """

    name: str
    what: str
    values: Floats
    rule: Rule | None = None

    @property
    def n(self) -> int:
        """Seeds."""
        return len(self.values)

    @property
    def estimate(self) -> float:
        """Mean over seeds."""
        return float(self.values.mean()) if self.n else math.nan

    @cached_property
    def _turned(self) -> Floats:
        return -self.values if self.rule is not None and self.rule.turned else self.values

    @property
    def _sign(self) -> float:
        return -1.0 if self.rule is not None and self.rule.turned else 1.0

    def p_for(self) -> float:
        """Two-sided p (one-sided for equivalence) that it speaks for the claim."""
        rule = self.rule
        if rule is None:
            return 1.0
        if not math.isnan(rule.within):
            return self._p_within(rule.within)
        if math.isnan(rule.above):
            return 1.0
        return min(1.0, 2 * p_beyond(self._turned, self._sign * rule.above, above=True))

    def p_against(self) -> float:
        """The same that it speaks against it."""
        rule = self.rule
        if rule is None:
            return 1.0
        found = [1.0]
        if not math.isnan(rule.below):
            found.append(2 * p_beyond(self._turned, self._sign * rule.below, above=False))
        if not math.isnan(rule.none_within):
            found.append(self._p_within(rule.none_within))
        return min(found)

    def _p_within(self, margin: float) -> float:
        """TOST: the larger p of "above −margin" and "below margin"."""
        return max(p_beyond(self.values, -margin, above=True), p_beyond(self.values, margin, above=False))

    def speaks(self, level: float) -> Verdict:
        """What it says of the claim at a level; where both rules hold, against wins."""
        rule = self.rule
        if rule is None or self.n < LEAST_SEEDS or not np.isfinite(self.values).all():
            return NOT_TESTED
        if self.p_against() < level:
            return REFUTED
        reached = math.isinf(rule.least) or self._sign * self.estimate >= self._sign * rule.least
        return SUPPORTED if self.p_for() < level and reached else INCONCLUSIVE


Agree = Callable[[Sequence[Verdict]], Verdict]


def all_for(said: Sequence[Verdict]) -> Verdict:
    """For where all are, against where one is."""
    return _decide(said, for_="all", against="any")


def any_for(said: Sequence[Verdict]) -> Verdict:
    """For where one is, against where all are."""
    return _decide(said, for_="any", against="all")


def both_all(said: Sequence[Verdict]) -> Verdict:
    """For where all are, against where all are."""
    return _decide(said, for_="all", against="all")


_Quantor = Literal["all", "any"]


def _decide(said: Sequence[Verdict], *, for_: _Quantor, against: _Quantor) -> Verdict:
    if not said or NOT_TESTED in said:
        return NOT_TESTED
    asked = {"all": all, "any": any}
    if asked[against](one == REFUTED for one in said):
        return REFUTED
    if asked[for_](one == SUPPORTED for one in said):
        return SUPPORTED
    return INCONCLUSIVE


@dataclass(frozen=True, eq=False)
class Decision:
    """One claim on trained twins.

    Attributes
    ----------
    claim, title : str
    contrasts : tuple of Contrast
        Those that decide (with a rule), and others beside them.
    agree : callable
        From what those with a rule say to the verdict.
    missing : str
        Why it is not tested, where it is not.
    note : str
        What a reader must know beside the verdict.
    """

    claim: str
    title: str
    contrasts: tuple[Contrast, ...]
    agree: Agree = all_for
    missing: str = ""
    note: str = ""

    @property
    def deciding(self) -> list[Contrast]:
        """Those with a rule."""
        return [one for one in self.contrasts if one.rule is not None]

    @property
    def tested(self) -> bool:
        """Whether there is something to decide by."""
        return not self.missing and bool(self.deciding) and all(one.n >= LEAST_SEEDS for one in self.deciding)

    @property
    def p(self) -> float:
        """Of the side that has more for it, as Holm's procedure wants it."""
        return min(1.0, *self.sides) if self.tested else 1.0

    @property
    def sides(self) -> tuple[float, float]:
        """For each side, that it speaks for the claim and against it, its p."""
        fors, againsts = [one.p_for() for one in self.deciding], [one.p_against() for one in self.deciding]
        if self.agree is any_for:  # one of several may speak alone, and pays for it
            return min(fors) * len(fors), max(againsts)
        if self.agree is all_for:
            return max(fors), min(againsts) * len(againsts)
        return max(fors), max(againsts)

    def level_of(self, level: float) -> float:
        """The part of the level at which each contrast is asked: several of which one suffices share it."""
        return level if self.agree is both_all else level / len(self.deciding)

    def verdict(self, level: float) -> Verdict:
        """What the seeds say at a level."""
        if not self.tested:
            return NOT_TESTED
        return self.agree([one.speaks(self.level_of(level)) for one in self.deciding])


def holm(decisions: Sequence[Decision], level: float = LEVEL) -> list[float]:
    """The level of each decision so that all together err by `level`; those not tested take no part."""
    tested = [one for one in decisions if one.tested]
    given = iter(holm_levels(np.array([one.p for one in tested]), level)) if tested else iter(())
    return [float(next(given)) if one.tested else math.nan for one in decisions]


def seeds_needed(m: int) -> int:
    """How many seeds the exact sign flip needs before its smallest p survives Holm over m claims: 2^(1−n) ≤ .05/m."""
    n = 1
    while 2.0 ** (1 - n) > LEVEL / m:
        n += 1
    return n

"""From a checkpoint to its ledger: a row a claim, and the evidence behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import pandas as pd

from geomprobe.ledger.claims import STUDIES
from geomprobe.ledger.endpoint import (
    INCONCLUSIVE,
    NOT_IDENTIFIED,
    NOT_TESTED,
    REFUTED,
    SUPPORTED,
    Quantity,
    Verdict,
    first_of,
    levels,
)
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.study import TITLES, Study
from geomprobe.ledger.thresholds import dated, thresholds

CLAIMS: Final = ("claim", "title", "verdict", "sentence")
EVIDENCE: Final = (
    *("claim", "quantity", "gauge", "where", "token_class", "estimate", "low", "high", "level", "p", "p_smallest"),
    *("n_types", "n_documents", "n_layers", "n_heads", "primary", "verdict", "rule"),
)


@dataclass(frozen=True, eq=False)
class Ledger:
    """What a checkpoint says of the claims.

    Attributes
    ----------
    name : str
        Of the model.
    manifest : mapping
        Of the model, as its run has it.
    claims : DataFrame
        claim, title, verdict, sentence; a row a claim.
    evidence : DataFrame
        A row a quantity (docs/claims.md).
    n_primary : int
        m, the endpoints that share the level by Holm's procedure.
    commands : tuple of str
        That made the runs.
    dated : date
        When the thresholds were fixed.
    """

    name: str
    manifest: Mapping[str, Any]
    claims: pd.DataFrame
    evidence: pd.DataFrame
    n_primary: int
    commands: tuple[str, ...]
    dated: date

    def verdict(self, claim: str) -> Verdict:
        """Of one claim."""
        found: dict[str, Verdict] = dict(zip(self.claims["claim"], self.claims["verdict"], strict=True))
        return found[claim]


def make_ledger(checkpoint: Checkpoint) -> Ledger:
    """Decide every claim on one checkpoint, from the tables of its runs alone."""
    level = 1 - float(thresholds()["statistics"]["confidence"])
    studies = [study(checkpoint) for study in STUDIES] if checkpoint.analysis is not None else []
    endpoints = [one for study in studies for one in study.endpoints]
    given = dict(zip(map(id, endpoints), levels(endpoints, level), strict=True))
    claims, evidence = [], []
    for study in studies:
        own = [one.verdict(given[id(one)]) for one in study.endpoints]
        verdict = study.verdict(own)
        claims.append((study.claim, study.title, verdict, study.tell(verdict, own)))
        for one, said in zip(study.endpoints, own, strict=True):
            evidence += [_row(study, q, one.level_of(q, given[id(one)]), said) for q in one.quantities]
        evidence += [_row(study, q, level, None) for q in study.shown]
    return Ledger(
        name=checkpoint.name,
        manifest=checkpoint.manifest,
        claims=pd.DataFrame(_with_whole(claims), columns=CLAIMS),
        evidence=pd.DataFrame(evidence, columns=EVIDENCE),
        n_primary=len(endpoints),
        commands=tuple(str(run.manifest["command"]) for run in checkpoint.runs),
        dated=dated(),
    )


def _row(study: Study, quantity: Quantity, level: float, said: Verdict | None) -> tuple[Any, ...]:
    rule = quantity.rule
    decides = said is not None and rule is not None
    at = 2 * level if rule is not None and rule.within == rule.within else level  # TOST: the 90 % interval
    low, high = quantity.interval(at)
    verdict = quantity.speaks(level) if decides else ""
    return (
        *(study.claim, quantity.name, quantity.gauge, quantity.where, quantity.token_class, quantity.estimate),
        *(low, high, at if len(quantity.draws) else float("nan"), quantity.p, quantity.p_smallest),
        *(quantity.n_types, quantity.n_documents, quantity.n_layers, quantity.n_heads, decides, verdict),
        rule.text if rule is not None else "",
    )


def _with_whole(claims: Sequence[tuple[str, str, Verdict, str]]) -> list[tuple[str, str, Verdict, str]]:
    """C2 as a whole before its parts: all of them are needed for it, a or c is enough against it."""
    by_claim = {claim: verdict for claim, _, verdict, _ in claims}
    made = []
    for row in claims:
        if row[0] == "C2a" and {"C2a", "C2b", "C2c"} <= set(by_claim):
            made.append(("C2", TITLES["C2"], *_whole(by_claim)))
        made.append(row)
    return made


def _whole(said: Mapping[str, Verdict]) -> tuple[Verdict, str]:
    lengths, sinks, why = (said[f"C2{part}"] for part in "abc")
    both = (lengths, why)
    if REFUTED in both and sinks == SUPPORTED:
        return REFUTED, "Function words are sinks here, but not through length."
    if REFUTED in both:
        return REFUTED, "Length does not make sinks of function words here."
    if (lengths, sinks, why) == (SUPPORTED, SUPPORTED, SUPPORTED):
        return SUPPORTED, "Function words have long keys here, are sinks, and are so because of it."
    if sinks == SUPPORTED:
        return INCONCLUSIVE, "Function words are sinks here; that it comes through length is not shown."
    if sinks == REFUTED:
        return INCONCLUSIVE, "Function words are no sinks here, so there is nothing that length would have to explain."
    verdict = first_of((lengths, sinks, why), NOT_IDENTIFIED, INCONCLUSIVE) or NOT_TESTED
    return verdict, "Not all of its three parts could be decided (C2a, C2b, C2c)."

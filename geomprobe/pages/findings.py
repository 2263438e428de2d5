"""The opening paragraphs of a page, in words: every sentence is made from values of the run's tables."""

from collections.abc import Callable
from typing import Final

from geomprobe.pages import (
    class_findings,
    direction_findings,
    edit_findings,
    length_findings,
    logit_findings,
    model_findings,
    sink_findings,
    split_findings,
)
from geomprobe.pages.finding import Finding
from geomprobe.run.reading import Run

TELLERS: Final[tuple[Callable[[Run], Finding | None], ...]] = (
    model_findings.tell_scope,
    model_findings.tell_loss,
    model_findings.tell_norm,
    model_findings.tell_gains,
    model_findings.tell_gauge,
    length_findings.tell_key_lengths,
    length_findings.tell_norm_effect,
    length_findings.tell_first_length,
    sink_findings.tell_first_mass,
    sink_findings.tell_mass_by_depth,
    sink_findings.tell_sink_rate,
    sink_findings.tell_learned_sink,
    sink_findings.tell_sink_tokens,
    sink_findings.tell_sink_classes,
    sink_findings.tell_massive,
    split_findings.tell_values,
    class_findings.tell_approximate,
    class_findings.tell_function_tokens,
    class_findings.tell_yardstick,
    class_findings.tell_function_lift,
    class_findings.tell_closed_classes,
    class_findings.tell_marks,
    split_findings.tell_split,
    split_findings.tell_fidelity,
    split_findings.tell_first_split,
    logit_findings.tell_entropy,
    direction_findings.tell_clusters,
    direction_findings.tell_neighbours,
    direction_findings.tell_frequency,
    *edit_findings.TELLERS,
    model_findings.tell_parity,
)


def findings(run: Run) -> list[Finding]:
    """What the run says, in the order of the page; a teller without numbers says nothing."""
    told = (tell(run) for tell in TELLERS)
    return [finding for finding in told if finding is not None]


def paragraphs(found: list[Finding]) -> dict[str, list[Finding]]:
    """Findings by topic, in the order in which the topics come up."""
    shaped: dict[str, list[Finding]] = {}
    for finding in found:
        shaped.setdefault(finding.topic, []).append(finding)
    return shaped

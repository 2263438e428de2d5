"""The claims in the order of the ledger."""

from collections.abc import Callable
from typing import Final

from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.function_claims import because_of_length, function_sinks, inflated_lengths
from geomprobe.ledger.length_claims import constant_lengths, length_or_angle
from geomprobe.ledger.logit_claims import before_rotation, folded_scale, grown_logits, one_hot_rows
from geomprobe.ledger.study import Study

STUDIES: Final[tuple[Callable[[Checkpoint], Study], ...]] = (
    length_or_angle,
    inflated_lengths,
    function_sinks,
    because_of_length,
    constant_lengths,
    before_rotation,
    grown_logits,
    one_hot_rows,
    folded_scale,
)

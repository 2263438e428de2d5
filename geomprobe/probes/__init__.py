"""The statistics, one file each.

All are imported here, in the order in which they run: each registers itself, and whoever imports one of them first
cannot change the order.
"""

from geomprobe.probes import norms  # isort: skip
from geomprobe.probes import gains  # isort: skip
from geomprobe.probes import logits  # isort: skip
from geomprobe.probes import sinks  # isort: skip
from geomprobe.probes import class_attention  # isort: skip
from geomprobe.probes import loss  # isort: skip
from geomprobe.probes import split  # isort: skip
from geomprobe.probes import values  # isort: skip
from geomprobe.probes import order  # isort: skip
from geomprobe.probes import massive  # isort: skip
from geomprobe.probes import clusters  # isort: skip
from geomprobe.probes import neighbours  # isort: skip

__all__ = [
    "class_attention",
    "clusters",
    "gains",
    "logits",
    "loss",
    "massive",
    "neighbours",
    "norms",
    "order",
    "sinks",
    "split",
    "values",
]

"""All figures by name, in the order of the page."""

from typing import Final

from geomprobe import tables
from geomprobe.figures.class_lift import CLASS_LIFT
from geomprobe.figures.class_sink import CLASS_SINK
from geomprobe.figures.class_split import CLASS_SPLIT
from geomprobe.figures.cluster_auc import CLUSTER_AUC
from geomprobe.figures.dose_response import DOSE_RESPONSE
from geomprobe.figures.drawing import Drawing
from geomprobe.figures.edit_layers import EDIT_LAYERS
from geomprobe.figures.entropy import ENTROPY
from geomprobe.figures.fidelity import FIDELITY
from geomprobe.figures.first_mass import FIRST_MASS
from geomprobe.figures.gains import GAINS
from geomprobe.figures.hubs import HUBS
from geomprobe.figures.length_attention import LENGTH_ATTENTION
from geomprobe.figures.lengths import KEY_LENGTHS, QUERY_LENGTHS
from geomprobe.figures.max_logit import MAX_LOGIT
from geomprobe.figures.neighbour_quality import NEIGHBOUR_QUALITY
from geomprobe.figures.norm_share import NORM_SHARE
from geomprobe.figures.norm_stages import NORM_STAGES
from geomprobe.figures.sink_rates import SINK_RATES
from geomprobe.figures.sink_tokens import SINK_TOKENS
from geomprobe.figures.word_map import WORD_MAP
from geomprobe.registry import Registry
from geomprobe.run.reading import Run

FIGURES: Final[Registry[Drawing]] = Registry("figure")
FIGURES.register("key_lengths")(KEY_LENGTHS)
FIGURES.register("query_lengths")(QUERY_LENGTHS)
FIGURES.register("norm_stages")(NORM_STAGES)
FIGURES.register("gains")(GAINS)
FIGURES.register("first_mass")(FIRST_MASS)
FIGURES.register("sink_rates")(SINK_RATES)
FIGURES.register("sink_tokens")(SINK_TOKENS)
FIGURES.register("class_lift")(CLASS_LIFT)
FIGURES.register("class_sink")(CLASS_SINK)
FIGURES.register("entropy")(ENTROPY)
FIGURES.register("max_logit")(MAX_LOGIT)
FIGURES.register("norm_share")(NORM_SHARE)
FIGURES.register("class_split")(CLASS_SPLIT)
FIGURES.register("fidelity")(FIDELITY)
FIGURES.register("length_attention")(LENGTH_ATTENTION)
FIGURES.register("cluster_auc")(CLUSTER_AUC)
FIGURES.register("word_map")(WORD_MAP)
FIGURES.register("neighbour_quality")(NEIGHBOUR_QUALITY)
FIGURES.register("hubs")(HUBS)
FIGURES.register("edit_layers")(EDIT_LAYERS)
FIGURES.register("dose_response")(DOSE_RESPONSE)


def figures_of(run: Run) -> list[str]:
    """The names of the figures that such a run can have, in the order of the page."""
    return [name for name in FIGURES if FIGURES[name].kind == tables.kind(run)]

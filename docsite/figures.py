"""The catalogue of figures, from the registry: what each shows, how it is made, which probe it is of."""

import json
from pathlib import Path
from typing import Final

from docsite.markdown import code, plain

PICTURES: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "figures"
INTERVENE: Final = "intervene"
# Whose tables a figure draws; what is not a probe's is the command's.
OF: Final = {
    "key_lengths": "norms",
    "query_lengths": "norms",
    "norm_stages": "norms",
    "gains": "gains",
    "first_mass": "sinks",
    "sink_rates": "sinks",
    "sink_tokens": "sinks",
    "class_lift": "class_attention",
    "class_sink": "class_attention",
    "entropy": "logits",
    "max_logit": "logits",
    "norm_share": "split",
    "class_split": "split",
    "fidelity": "split",
    "length_attention": "split",
    "cluster_auc": "clusters",
    "word_map": "clusters",
    "neighbour_quality": "neighbours",
    "hubs": "neighbours",
    "edit_layers": INTERVENE,
    "dose_response": INTERVENE,
}


def captions() -> dict[str, str]:
    """Captions as pages have them, from the runs of which docsite.pictures drew the examples."""
    file = PICTURES / "captions.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def figure_catalogue() -> str:
    """Every registered figure: an example where there is one, the caption of that example, whose tables it draws."""
    from geomprobe.figures.catalogue import FIGURES

    said = captions()
    return "\n\n".join(_entry(name, said.get(name, "")) for name in FIGURES)


def figures_of(probe: str) -> str:
    """A list of the figures that draw a probe's tables; empty where there is none."""
    from geomprobe.figures.catalogue import FIGURES

    names = [name for name in FIGURES if OF.get(name) == probe]
    return "\n".join(f"- [{FIGURES[name].title}](../figures.md#{name}): {_sentence(name)}" for name in names)


def _sentence(name: str) -> str:
    from geomprobe.figures.catalogue import FIGURES

    said = FIGURES[name].alt
    return plain(said[0].lower() + said[1:])


def _entry(name: str, caption: str) -> str:
    from geomprobe.figures.catalogue import FIGURES

    drawing = FIGURES[name]
    owner = OF.get(name)
    if owner is None:
        whose = ""
    elif owner == INTERVENE:
        whose = "Of the runs of `geomprobe intervene`."
    else:
        whose = f"Of the probe [{owner}](probes/{owner}.md)."
    parts = [f'## <a id="{name}"></a>{plain(drawing.title)}', f"Name: {code(name)}. {whose}"]
    if (PICTURES / f"{name}.png").is_file():
        parts.append(f"![{plain(drawing.alt)}](pictures/figures/{name}.png)")
    else:
        parts.append(plain(drawing.alt))
    return "\n\n".join([*parts, plain(caption)] if caption else parts)

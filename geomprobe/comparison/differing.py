"""What else differs between checkpoints, from the manifests, so that no difference is taken for an effect."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from geomprobe import tables
from geomprobe.comparison.sides import Sides
from geomprobe.run.reading import Run

UNKNOWN: Final = "unknown"
# What an arm is, or what follows from it: twins may differ in these.
OF_THE_ARM: Final = ("arm", "QK norm", "parameters", "softmax scale", "family")


def _each(name: str) -> Callable[[Run], str]:
    """A property of the layers: one value, or all that there are."""

    def read(run: Run) -> str:
        found = {_plain(entry.get(name)) for entry in run.manifest["model"]["anatomy"]}
        return ", ".join(sorted(found))

    return read


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _norm(run: Run) -> str:
    words = set()
    for entry in run.manifest["model"]["anatomy"]:
        for vector in ("q", "k"):
            norm = entry[f"{vector}_norm"]
            words.add(f"over each {norm['axis']}, {norm['order'].replace('_', ' ')}" if norm else "none")
    return ", ".join(sorted(words))


def _model(name: str) -> Callable[[Run], str]:
    return lambda run: _plain(run.manifest["model"].get(name))


def _corpus(name: str) -> Callable[[Run], str]:
    return lambda run: _plain(run.manifest["corpus"].get(name))


def _window(run: Run) -> str:
    windows = {entry["window"] for entry in run.manifest["model"]["anatomy"]}
    return ", ".join("all" if one is None else f"{one:,}" for one in sorted(windows, key=lambda w: (w is None, w)))


def _quantised(run: Run) -> str:
    """Whether the weights were rounded before they came here, as far as their source tells."""
    about = f"{run.manifest['model']['id']} {run.manifest['model']['source']}".lower()
    if "gguf" in about:
        return "GGUF"
    return {"package": "no (bfloat16)", "object": UNKNOWN}.get(run.manifest["model"]["source"], UNKNOWN)


def _training(name: str) -> Callable[[Run], str]:
    return lambda run: _plain((run.manifest["model"].get("training") or {}).get(name, UNKNOWN))


def _characters(run: Run) -> str:
    corpus = run.manifest["corpus"]
    read = sum(w["char_end"] - w["char_start"] for w in corpus.get("windows", []) if "char_end" in w)
    return f"{read / corpus['n_tokens']:.2f}" if read else UNKNOWN


ASPECTS: Final[Mapping[str, Callable[[Run], str]]] = {
    "family": _model("family"),
    "parameters": _model("parameters"),
    "layers": lambda run: str(len(tables.layers(run))),
    "query heads": _each("q_heads"),
    "key heads": _each("kv_heads"),
    "head width": _each("head_dim"),
    "keys a query sees": _window,
    "QK norm": _norm,
    "softmax scale": _each("scale"),
    "soft-cap": _each("softcap"),
    "learned sinks": _each("learned_sinks"),
    "quantised": _quantised,
    "dtype": _model("dtype"),
    "device": _model("device"),
    "tokens read": lambda run: run.manifest["corpus"]["tokens_sha256"][:8],
    "characters a token": _characters,
    "BOS": _corpus("bos"),
    "window": _corpus("window"),
    "windows": _corpus("n_windows"),
    "text": lambda run: f"{run.manifest['corpus']['name']} ({run.manifest['corpus']['sha256'][:8]})",
    "arm": _training("arm"),
    "training step": _training("step"),
    "training data": lambda run: (run.manifest["model"].get("training") or {}).get("pair", UNKNOWN)[:8],
    "geomprobe": lambda run: str(run.manifest["geomprobe"]),
}


def differing(sides: Sides) -> pd.DataFrame:
    """A row an aspect: aspect, a column a side, `same` (whether all are known and alike)."""
    rows = []
    for aspect, read in ASPECTS.items():
        said = [read(run) for run in sides.runs]
        same = len(set(said)) == 1 and said[0] != UNKNOWN
        rows.append({"aspect": aspect, **dict(zip(sides.labels, said, strict=True)), "same": same})
    return pd.DataFrame(rows)


def twins(sides: Sides) -> bool:
    """Whether all sides are twins of `geomprobe train`, equally long trained: same initial weights, same batches."""
    training = [run.manifest["model"].get("training") for run in sides.runs]
    pairs = {(one["pair"], one["step"]) for one in training if one}
    return all(training) and len(pairs) == 1


def one_training(sides: Sides) -> bool:
    """Whether all sides are checkpoints of one training, at different steps."""
    training = [run.manifest["model"].get("training") for run in sides.runs]
    known = [one for one in training if one and one.get("fingerprint")]
    same = len(known) == sides.n and len({one["fingerprint"] for one in known}) == 1
    return same and len({one["step"] for one in known}) > 1


def caveat(sides: Sides) -> str:
    """A sentence or two on what a difference here can mean."""
    table = differing(sides)
    apart = [str(name) for name in table[~table["same"]]["aspect"]]
    told = ~table[list(sides.labels)].isin([UNKNOWN]).all(
        axis=1
    )  # of twins, and of one checkpoint, all else is the same
    known = [str(name) for name in table[~table["same"] & told]["aspect"]]
    if one_training(sides):
        steps = [run.manifest["model"]["training"]["step"] for run in sides.runs]
        return (
            f"These are checkpoints of one training, from step {min(steps):,} to step {max(steps):,}: what differs is "
            "how long it was trained – in this one seed."
        )
    if twins(sides):
        arms = [run.manifest["model"]["training"]["arm"] for run in sides.runs]
        others = [name for name in known if name not in OF_THE_ARM and name != "tokens read"]
        rest = f" Besides, they differ in {_listed(others)}." if others else ""
        if len(set(arms)) == 1:
            return f"These are the same training, at the same step.{rest}"
        return (
            f"Twins: the arms {_listed(arms)} had the same initial weights and the same batches, so what differs comes "
            "of the arm – in this one seed; another seed moves the numbers too, and geomprobe sweep says by how much."
            f"{rest}"
        )
    if not known and same_weights(sides):
        return "These are runs of one checkpoint on the same tokens."
    return (
        f"These checkpoints differ in {_listed([name for name in apart if name not in _TOLD])}, and what each was "
        "trained on is not known here. So a difference is described and not explained: it is not the effect of any one "
        "of these, QK norm included."
    )


_TOLD: Final = ("training data", "arm", "training step", "geomprobe", "device")


def same_weights(sides: Sides) -> bool:
    """Whether all sides are one checkpoint."""
    found = {run.manifest["model"]["sha256"] or run.manifest["model"]["revision"] for run in sides.runs}
    return len(found) == 1 and None not in found


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nothing"

"""Analysing a trained run: its last checkpoint whole, its edits, its renamed words, and clusters on the way."""

import json
import math
import shutil
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch
from scipy.optimize import minimize_scalar
from transformers import AutoTokenizer

from geomprobe.api import analyze
from geomprobe.attention.anatomy import examine
from geomprobe.attention.seam import attending
from geomprobe.attention.stages import Notebook
from geomprobe.corpus.sources import Document, Source, sotu
from geomprobe.corpus.windows import WindowPlan, cut_windows
from geomprobe.evidence.record import (
    clusters,
    curves,
    losses,
    of_analysis,
    of_edits,
    of_renamed,
    of_training,
    uniform_first,
)
from geomprobe.evidence.records import SHORT_SINK
from geomprobe.evidence.renamed import parent_ranks
from geomprobe.evidence.standing import MEASURED as RECORD
from geomprobe.evidence.standing import VERSION
from geomprobe.experiment import intervene
from geomprobe.lab.backcopy import BackcopySupply, idle_sinks
from geomprobe.lab.folder import TrainingFolder, write_json
from geomprobe.lab.growth import first_masses
from geomprobe.lab.model import LabForCausalLM
from geomprobe.lab.objective import head_loss
from geomprobe.lab.recipe import read_recipe
from geomprobe.lab.running import Trained, open_training
from geomprobe.lab.supply import TextSupply
from geomprobe.lab.text import END_ID, TextData
from geomprobe.lab.train import finite
from geomprobe.models.quiet import quiet_transformers
from geomprobe.probes.sinks import RATE_ROWS
from geomprobe.progress import Reporter

ON_THE_WAY: Final = 2  # saved steps before the last at which clusters are looked at, to compare at equal loss
APART: Final = 0.9  # a step later than this share of the last says nothing new
EDITS: Final = ("neutral_norm", "permute_norm", "swap_angle:permute_norm")
OF_GAINS: Final = "scalar_gain"  # where there is a gain before the rotation
IDLE_SEQUENCES: Final = 256
SINK_WINDOWS: Final = 256  # of 64 tokens
OTHER_WINDOWS: Final = 128  # of another text
CHARACTERS: Final = 8  # of an address, for each token of a window: more than a token covers
ROWS: Final = 8  # windows a forward pass over it
FACTORS: Final = (1, 2, 4)  # of the training length, at which the best temperature is looked for
TEMPERATURE_TOKENS: Final = 8192
LARGEST_BETA: Final = 32.0  # it is looked for between this and its inverse


def measure_run(path: Path, *, data: TextData | None, categories: Path | None, reporter: Reporter) -> dict[str, Any]:
    """Measure a trained run, unless its folder says that this was done.

    Parameters
    ----------
    path : Path
        Of a finished training.
    data : TextData or None
        What it was trained on; its held-out texts are what is read. None for a task without texts.
    categories : Path or None
        For clusters; None: the packaged nouns.
    reporter : Reporter

    Returns
    -------
    dict
        `numbers` (by name), and what ties them to the run. Kept in measured.json, written last; the run folders of the
        analyses stand beside it.

    Raises
    ------
    RunError
        Where the training is not finished.
    """
    note = path / RECORD
    trained = open_training(path)
    if note.exists():
        known: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
        if known.get("version") == VERSION and known.get("fingerprint") == trained.manifest["fingerprint"]:
            return known
    numbers = of_training(path, trained.manifest)
    on_the_way: list[dict[str, Any]] = []
    if not numbers["diverged"]:
        if data is None:
            numbers |= _idle(trained)
        else:
            numbers |= _numbers(trained, data, categories, reporter)
            on_the_way = _on_the_way(trained, data, categories, reporter)
    record = {
        "version": VERSION,
        **{name: trained.manifest[name] for name in ("arm", "recipe", "fingerprint", "pair", "step", "tokens")},
        "data": {name: value for name, value in trained.manifest["data"].items() if name.endswith("sha256")},
        "seconds": trained.manifest["seconds"],
        "threads": trained.manifest["threads"],
        "compiled": trained.manifest["compiled"],
        "numbers": {name: finite(value) for name, value in numbers.items()},
        "on_the_way": on_the_way,
        "losses": losses(path),
        "curves": [{name: _short(value) for name, value in row.items()} for row in curves(path)],
    }
    write_json(note, record)
    return record


def _numbers(trained: Trained, data: TextData, categories: Path | None, reporter: Reporter) -> dict[str, float]:
    text, checkpoint = data.held_out_texts, str(trained.checkpoint)
    reporter.say("analysing the last checkpoint")
    run = analyze(
        checkpoint,
        text=text,
        probes="all",
        categories=categories,
        max_types=200,
        page=False,
        out=_fresh(trained.path / "analysis"),
        quiet=True,
    )
    reporter.say("trying its edits")
    arm = read_recipe(trained.manifest["recipe"]).arm
    has_gain = arm.qk_norm == "rms" and arm.axis == "head" and arm.order == "before_rope"
    tried = (*EDITS, OF_GAINS) if has_gain else EDITS
    edits = intervene(
        checkpoint, tried, text=text, windows=32, page=False, out=_fresh(trained.path / "edits"), quiet=True
    )
    reporter.say("looking for the best temperatures")
    numbers = of_analysis(run) | of_edits(edits) | {"loss_other_text": other_loss(trained)}
    numbers |= best_temperatures(trained, data) | short_sinks(trained, data)
    if data.renamed:
        reporter.say("looking for the parents of renamed words")
        ranks = _ranks(trained, data)
        ranks.to_parquet(trained.path / "renamed.parquet", index=False, compression="zstd")
        numbers |= of_renamed(ranks)
    return numbers


def _on_the_way(trained: Trained, data: TextData, categories: Path | None, reporter: Reporter) -> list[dict[str, Any]]:
    """Clusters at the last saved steps, beside the held-out loss there."""
    folder = TrainingFolder(trained.path)
    held_out = pd.read_parquet(trained.path / "held_out.parquet")
    short = held_out[(held_out["factor"] == 1)].drop_duplicates("step").set_index("step")["loss"]
    found = []
    last = folder.steps[-1]
    for step in [step for step in folder.steps if step < APART * last][-ON_THE_WAY:]:
        reporter.say(f"clusters at step {step}")
        out = trained.path / f"clusters-{step}"
        run = analyze(
            str(folder.step_path(step)),
            text=data.held_out_texts,
            probes="clusters",  # the windows fix the balanced gauge alone: the same as at the end
            categories=categories,
            max_types=200,
            page=False,
            out=_fresh(out),
            quiet=True,
        )
        numbers = {name: finite(value) for name, value in clusters(run)}
        found.append({"step": step, "loss": float(short.loc[step]), "numbers": numbers})
        shutil.rmtree(out)
    return found


def _short(value: float) -> float | None:
    """Six digits are enough for a curve."""
    return finite(float(f"{value:.6g}"))


def _fresh(path: Path) -> Path:
    """The folder, without what a stopped measurement left there."""
    shutil.rmtree(path, ignore_errors=True)
    return path


def load_trained(trained: Trained) -> LabForCausalLM:
    """The last checkpoint's model, ready to be watched."""
    with quiet_transformers():
        model = LabForCausalLM.from_pretrained(str(trained.checkpoint))
    model.eval().requires_grad_(requires_grad=False)
    return model


def other_loss(trained: Trained) -> float:
    """Mean cross-entropy on text of another kind, the State of the Union addresses: nats a token."""
    model = load_trained(trained)
    length = read_recipe(trained.manifest["recipe"]).length
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(str(trained.checkpoint))
    documents = sotu().documents
    # A window or so from the head of each: no more of them needs to be turned into tokens.
    enough = CHARACTERS * length * -(-OTHER_WINDOWS // len(documents))
    heads = [Document(one.name, one.text[:enough]) for one in documents]
    plan = WindowPlan(window=length + 1, windows=OTHER_WINDOWS)
    corpus = cut_windows(Source("sotu", heads), tokenizer, plan=plan)
    return _loss(model, torch.from_numpy(corpus.ids), ROWS)


def short_sinks(trained: Trained, data: TextData) -> dict[str, float]:
    """Attention on the first of 64 positions, and what uniform attention gives it there.

    A sink is a larger part of what few positions share: in 64 it can be told from uniform attention where in hundreds
    it cannot, and most of the literature's sink rates are of 64 (Gu et al. 2024).
    """
    recipe = read_recipe(trained.manifest["recipe"])
    model = load_trained(trained)
    length = min(RATE_ROWS, recipe.length)
    ids = TextSupply(data, recipe).held_out(length, SINK_WINDOWS)[:, :-1]
    masses = first_masses(model, ids, Notebook(attending(model)))
    return {SHORT_SINK: sum(masses) / len(masses), f"{SHORT_SINK}_uniform": uniform_first(length)}


def best_temperatures(trained: Trained, data: TextData) -> dict[str, float]:
    """By what number all logits should be multiplied, at one, two and four times the training length.

    Returns
    -------
    dict
        `best_beta_1x`, …: the number with the least held-out loss, in all layers at once, between 1/32 and 32 (1: the
        model's own); `beta_gain_1x`, …: the loss less that, nats a token. All lengths read the same tokens.
    """
    model = load_trained(trained)
    recipe = read_recipe(trained.manifest["recipe"])
    supply = TextSupply(data, recipe)
    attentions: list[Any] = list(attending(model).values())
    own = [attention.scaling for attention in attentions]
    found = {}
    span = max(FACTORS) * recipe.length
    spans = supply.held_out(span, max(1, TEMPERATURE_TOKENS // span))  # (sequence, span + 1)
    for factor in FACTORS:
        length = factor * recipe.length
        ids = supply.begun(torch.cat([spans[:, begin : begin + length + 1] for begin in range(0, span, length)]))

        def loss(log_beta: float, ids: torch.Tensor = ids, rows: int = max(1, ROWS // factor)) -> float:
            for attention, scaling in zip(attentions, own, strict=True):
                attention.scaling = scaling * math.exp(log_beta)
            return _loss(model, ids, rows)

        widest = math.log(LARGEST_BETA)
        best = minimize_scalar(loss, bounds=(-widest, widest), method="bounded", options={"xatol": 0.01})
        found[f"best_beta_{factor}x"] = math.exp(float(best.x))
        found[f"beta_gain_{factor}x"] = loss(0.0) - float(best.fun)
    return found


def _loss(model: LabForCausalLM, ids: torch.Tensor, rows: int) -> float:
    """Mean cross-entropy of sequences (sequence, length + 1), some at a time: nats a token."""
    total = 0.0
    with torch.no_grad():
        for part in ids.split(rows):
            hidden = model.model(part[:, :-1]).last_hidden_state.flatten(0, 1)
            total += float(head_loss(hidden, model.lm_head.weight, part[:, 1:].flatten())) * len(part)
    return total / len(ids)


def _ranks(trained: Trained, data: TextData) -> pd.DataFrame:
    model = load_trained(trained)
    notebook = Notebook(attending(model))
    ids = torch.from_numpy(data.held_out[:64].astype("int64"))[None]
    spec = examine(model, ids, notebook=notebook)
    folder = _fresh(trained.path / ".renamed")
    bos = END_ID if read_recipe(trained.manifest["recipe"]).bos else None
    try:
        return parent_ranks(model, spec, notebook, data, folder, bos=bos)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _idle(trained: Trained) -> dict[str, float]:
    """The sinks of a model of the Bigram–Backcopy task, mean over heads, by layer."""
    recipe = read_recipe(trained.manifest["recipe"])
    ids = BackcopySupply(recipe).held_out(recipe.length, IDLE_SEQUENCES)[:, :-1]
    table = idle_sinks(load_trained(trained), ids)
    table.to_parquet(trained.path / "idle_sinks.parquet", index=False, compression="zstd")
    means = table.groupby("layer").mean(numeric_only=True).drop(columns="head", errors="ignore")
    return {f"{column}_layer{layer}": float(value) for layer, row in means.iterrows() for column, value in row.items()}

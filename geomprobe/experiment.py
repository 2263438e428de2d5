"""Interventions on a checkpoint: edits of its queries and keys while it reads, and what they cost."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.analysis import Analysis, Job, at_rest
from geomprobe.api import read_corpus
from geomprobe.attention.batch import Tokens
from geomprobe.attention.seam import watching
from geomprobe.corpus.windows import Corpus
from geomprobe.errors import InvalidParameter, ParityError, at_least
from geomprobe.interventions.calibration import Calibration
from geomprobe.interventions.edits import EDITS, Setting, parse_edit
from geomprobe.interventions.trial import ALL_DOCUMENTS, SHAM, SHAM_LIMIT, Trial, Variant, variants_of
from geomprobe.labels import FROM_ROW
from geomprobe.models.calling import run as call
from geomprobe.observation import default_batch_size
from geomprobe.pages.page import write_page
from geomprobe.progress import Reporter
from geomprobe.run.reading import Run, open_run
from geomprobe.subject import make_subject

LEAST_WINDOWS = 2


def intervene(  # noqa: PLR0913 (each is a setting of the command line, by the same name)
    model: Any,
    edits: str | Sequence[str],
    *,
    layers: Sequence[int] | None = None,
    one_by_one: bool = False,
    tokenizer: Any = None,
    text: str | Path | Sequence[str | Path] | None = None,
    dataset: str | None = None,
    language: str = "en",
    window: int | None = None,
    windows: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    loading: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    page: bool = True,
    quiet: bool = False,
) -> Run:
    """Edit queries and keys inside the attention while a model reads, and measure what it costs.

    The weights are never changed: the kernel is handed other vectors. The first half of the windows tells the edits
    what lengths are usual, the second is read with each edit and without. A sham, which rewrites keys with themselves,
    is among them every time.

    Parameters
    ----------
    model : str, Path or transformers model
        As `analyze` takes it; a causal language model.
    edits : str or sequence of str
        Of: sham, neutral_norm, permute_norm, swap_angle[:dose, :neutral_norm or :permute_norm], neutral_query,
        temperature:β, scale_class:CLASS:δ, equalise_class:CLASS, scalar_gain. With @balanced behind it an edit is made
        in the balanced gauge.
    layers : sequence of int, optional
        Attention layers to edit. Default: all.
    one_by_one : bool
        Each of those layers by itself too.
    tokenizer, text, dataset, language, window, windows, batch_size, out, overwrite, page, quiet
        As `analyze` has them.
    seed : int
        Of what is drawn: shuffled lengths, swapped directions.
    loading : mapping, optional
        For a name: revision, dtype, device, device_map, trust_remote_code.

    Returns
    -------
    Run
        With the table `interventions` (docs/schema.md) and a page.

    Raises
    ------
    GeomprobeError
        With one sentence that says what to do.
    """
    settings = [parse_edit(edit) for edit in ([edits] if isinstance(edits, str) else edits)]
    if not settings:
        raise InvalidParameter(f"edits must name at least one of {', '.join(EDITS)}.")
    if batch_size is not None:
        at_least("batch_size", batch_size, 1)
    job = Job(Reporter(quiet=quiet))
    given = {"dtype": "auto", "device": "auto", "device_map": None, "trust_remote_code": False, **(loading or {})}
    revision = given.pop("revision", None)
    with job.step("load", "loading the model"):
        subject = make_subject(model, tokenizer, "text", revision=revision, loading=given, reporter=job.reporter)
    with at_rest(subject.model), job.step("corpus", "reading the text"):
        corpus = read_corpus(subject, text=text, dataset=dataset, language=language, window=window, windows=windows)
        if corpus.n_windows < LEAST_WINDOWS:
            raise InvalidParameter("windows must be at least 2: one half tells what lengths are usual; got 1.")
        at_least("window", corpus.window, FROM_ROW + 2)  # else no loss is counted
    run_settings = {
        "probes": {"interventions": {"edits": [str(setting) for setting in settings], "one_by_one": one_by_one}},
        "layers": None if layers is None else list(layers),
        "seed": seed,
        "batch_size": batch_size or default_batch_size(subject.model, corpus.window),
    }
    analysis = Analysis(job, subject, corpus, run_settings)
    folder = analysis.folder(out, overwrite=overwrite)
    if folder.finished:
        job.reporter.say(f"{folder.path} holds this very run already; --overwrite makes it anew")
        return analysis.found(folder, drawn=page)
    try:
        with at_rest(subject.model):
            table = _try(analysis, settings, layers, one_by_one=one_by_one)
            with job.step("tables", "writing tables"):
                files = folder.write_tables({"interventions": table, "parity": analysis.parity})
            folder.finish(analysis.manifest(files))
            if page:
                with job.step("page", "drawing figures and the page"):
                    write_page(open_run(folder.path))
    except BaseException:
        folder.abandon()
        raise
    return open_run(folder.path)


def _try(
    analysis: Analysis, settings: list[Setting], layers: Sequence[int] | None, *, one_by_one: bool
) -> pd.DataFrame:
    job, model, corpus = analysis.job, analysis.subject.model, analysis.corpus
    torch.manual_seed(analysis.settings["seed"])
    with job.step("parity", "checking that what is captured is what the model computes"):
        spec = analysis.prove()
    there = [layer.layer for layer in spec.layers]
    for layer in layers or ():
        if layer not in there:
            raise InvalidParameter(f"layers must be among the attention layers {there[0]} to {there[-1]}; got {layer}.")
    variants = variants_of(settings, there if layers is None else sorted(set(layers)), one_by_one=one_by_one)
    middle, size = corpus.n_windows // 2, analysis.settings["batch_size"]
    calibration = Calibration(spec, settings)
    with job.step("calibration", f"learning the usual lengths from {middle} windows"):
        for _ in range(calibration.passes):
            for ids, tokens in token_batches(model, corpus, (0, middle), size):
                with torch.no_grad(), watching(model, _adding(calibration, tokens), stages=False):
                    call(model, {"input_ids": ids})
            calibration.settle()
    trial = Trial(model, spec, analysis.notebook, calibration.known(), analysis.settings["seed"])
    rest = corpus.n_windows - middle
    passes = -(-rest // size) * (1 + len(variants))
    words = f"reading {rest} windows with {len(variants)} edits and without"
    with job.step("trial", words), job.reporter.bar("edits", passes) as bar:
        batches = token_batches(model, corpus, (middle, corpus.n_windows), size)
        table = trial.run(batches, variants, len(corpus.document_names), bar.update_plain)
    _check_sham(table, variants[0])
    return table


def _adding(calibration: Calibration, tokens: Tokens) -> Any:
    return lambda seen: calibration.add(seen, tokens.token_class)


def _check_sham(table: pd.DataFrame, sham: Variant) -> None:
    """Raise where rewriting keys with themselves changes the loss: then no edit can be judged."""
    rows = table[(table["edit"] == SHAM.edit) & (table["document"] == ALL_DOCUMENTS)]
    for row in rows.to_dict("records"):
        if not abs(row["delta_ce"]) < SHAM_LIMIT:
            raise ParityError(
                f"Rewriting keys with themselves in {len(sham.layers)} layers ({row['setting']}) changes the loss by "
                f"{abs(row['delta_ce']):.2g} nats a token (allowed {SHAM_LIMIT:g}), so no edit of this model can be "
                "judged."
            )


def token_batches(model: Any, corpus: Corpus, span: tuple[int, int], size: int) -> Iterator[tuple[Tensor, Tokens]]:
    """Some windows in batches: ids, and what tokens are."""
    device = next(model.parameters()).device
    for start in range(span[0], span[1], size):
        at = slice(start, min(start + size, span[1]))
        ids = torch.from_numpy(np.ascontiguousarray(corpus.ids[at])).to(device)
        token_class = torch.from_numpy(np.ascontiguousarray(corpus.token_class[at])).to(device)
        nothing = torch.zeros_like(ids)
        document = torch.from_numpy(np.ascontiguousarray(corpus.document[at])).to(device)
        yield ids, Tokens(token_class, nothing, nothing, nothing, document, torch.ones_like(ids, dtype=torch.bool))

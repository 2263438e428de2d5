"""All that the command line can do, for Python."""

import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from geomprobe import provenance
from geomprobe.attention.anatomy import examine, positions_of
from geomprobe.attention.parity import check_parity, probe_length
from geomprobe.attention.seam import attending
from geomprobe.attention.spec import ModelSpec, Spec
from geomprobe.attention.stages import Notebook
from geomprobe.corpus.function_words import function_words
from geomprobe.corpus.pictures import find_images, image_corpus, pixels_of
from geomprobe.corpus.sources import Source, read_dataset, read_texts, sotu
from geomprobe.corpus.types import index_types
from geomprobe.corpus.windows import Corpus, WindowPlan, cut_windows
from geomprobe.errors import InvalidParameter, at_least
from geomprobe.observation import (
    Observation,
    Progress,
    choose_probes,
    corpus_spec,
    default_batch_size,
    described,
    inputs_of,
)
from geomprobe.pages import page
from geomprobe.pages.page import report
from geomprobe.progress import Reporter
from geomprobe.run.manifest import SCHEMA
from geomprobe.run.reading import Run, open_run
from geomprobe.run.store import RunFolder, open_folder
from geomprobe.subject import Subject, make_subject

__all__ = ["analyze", "report"]

DEFAULT_WINDOW = 512
RUNS = Path("runs")


def analyze(  # noqa: PLR0913 (each is a setting of the command line, by the same name)
    model: Any,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    text: str | Path | Sequence[str | Path] | None = None,
    dataset: str | None = None,
    input: str | Path | Sequence[str | Path] | None = None,
    language: str = "en",
    window: int | None = None,
    windows: int | None = None,
    tokens: int | None = None,
    bos: str = "default",
    allow_short: bool = False,
    probes: str | Sequence[str] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    device_map: str | Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
    csv: bool = False,
    quiet: bool = False,
) -> Run:
    """Watch a checkpoint's attention on real text and write a run folder with tables, figures and a page.

    Parameters
    ----------
    model : str, Path or transformers model
        A hub id, an alias, a folder, a .gguf file, or a model that is already loaded (then give its tokenizer).
    tokenizer : transformers tokenizer, optional
        With a loaded model; a fast one.
    processor : transformers image processor, optional
        With a loaded model that looks at images.
    text : path or paths, optional
        Text files, or folders of them. Default: 249 State of the Union addresses.
    dataset : str, optional
        A hub data set instead, "owner/name[:split[:column]]".
    input : path or paths, optional
        Images, or folders of them, for a model that looks at images: each is a window, whose tokens are its patches.
    language : str
        Of the function words.
    window : int, optional
        Tokens a window. Default: 512, or as many positions as the model has.
    windows, tokens : int, optional
        How many windows, or how many tokens in all. Default: 32 windows, or every image.
    bos : {"default", "always", "never"}
        Whether a BOS token stands in front of each window.
    allow_short : bool
        Take fewer windows where the text has no more.
    probes : str or sequence of str, optional
        Which; separated by commas. Default: all.
    seed : int
        Recorded, and set before the pass for what a model draws at random.
    batch_size : int, optional
        Windows a forward pass. Default: what suits the device.
    revision, dtype, device, device_map, trust_remote_code
        How a checkpoint is loaded (geomprobe.models.load).
    out : path, optional
        The run folder. Default: runs/<model>.<corpus>.<hash>.
    overwrite : bool
        Replace a run that is there.
    csv : bool
        Write each table as CSV besides.
    quiet : bool
        Show no progress.

    Returns
    -------
    Run

    Raises
    ------
    GeomprobeError
        With one sentence that says what to do: a model that cannot be had or seen, a text that is too short, a folder
        that is in the way, a capture that does not reproduce the model's attention.
    """
    if batch_size is not None:
        at_least("batch_size", batch_size, 1)
    if text is not None and dataset is not None:
        raise InvalidParameter("text and dataset are two sources; give one of them.")
    chosen = choose_probes(probes if probes is None or isinstance(probes, str) else ",".join(probes))
    function_words(language)  # an unknown language is told before anything is downloaded
    shape: dict[str, Any] = {"windows": windows, "tokens": tokens, "bos": bos, "allow_short": allow_short}
    WindowPlan(window=DEFAULT_WINDOW if window is None else window, **shape)  # so are wrong numbers
    images = None if input is None else find_images(_listed(input))
    if images is not None:
        _check_alone(text=text, dataset=dataset, window=window, tokens=tokens)
    reader = tokenizer if images is None else processor
    job = _Job(Reporter(quiet=quiet))

    with job.step("load", "loading the model"):
        subject = make_subject(
            model,
            reader,
            "text" if images is None else "images",
            revision=revision,
            loading={
                "dtype": dtype,
                "device": device,
                "device_map": device_map,
                "trust_remote_code": trust_remote_code,
            },
            reporter=job.reporter,
        )
    with _at_rest(subject.model), job.step("corpus", f"reading the {'text' if images is None else 'images'}"):
        if images is None:
            plan = WindowPlan(window=_window(window, subject.model), **shape)
            corpus = cut_windows(_source(text, dataset), subject.reader, plan=plan, language=language)
        else:
            corpus = _image_corpus(subject, images[:windows])
    settings = {
        "probes": described(chosen),
        "seed": seed,
        "batch_size": batch_size or default_batch_size(subject.model, corpus.window),
    }
    analysis = _Analysis(job, subject, corpus, settings)
    folder = analysis.folder(out, overwrite=overwrite)
    if folder.finished:
        job.reporter.say(f"{folder.path} holds this very run already; --overwrite makes it anew")
        return open_run(folder.path)
    try:
        with _at_rest(subject.model):
            analysis.run(folder, chosen, csv=csv)
    except BaseException:
        folder.abandon()
        raise
    return open_run(folder.path)


@dataclass
class _Job:
    """What is shown of the work, and how long each step took."""

    reporter: Reporter
    timings: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str, words: str) -> Iterator[None]:
        self.reporter.say(words)
        begun = time.monotonic()
        yield
        self.timings[name] = round(time.monotonic() - begun, 3)


def _source(text: str | Path | Sequence[str | Path] | None, dataset: str | None) -> Source:
    if dataset is not None:
        return read_dataset(dataset)
    if text is None:
        return sotu()
    return read_texts(_listed(text))


def _listed(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


def _check_alone(**others: Any) -> None:
    """Raise where something is given that says nothing about images."""
    for name, value in others.items():
        if value is not None:
            raise InvalidParameter(f"{name} is about texts; leave it out where input names images.")


def _image_corpus(subject: Subject, images: Sequence[Path]) -> Corpus:
    parameter = next(subject.model.parameters())
    pixels = pixels_of(subject.reader, images[:1]).to(parameter.device, parameter.dtype)
    patch = getattr(subject.model.config, "patch_size", None)
    return image_corpus(
        images,
        subject.reader,
        positions=positions_of(subject.model, {"pixel_values": pixels}),
        patch=patch if isinstance(patch, int) else None,
    )


def _window(asked: int | None, model: Any) -> int:
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    most = positions if isinstance(positions, int) and positions > 0 else None
    if asked is None:
        return min(DEFAULT_WINDOW, most) if most else DEFAULT_WINDOW
    if most is not None and asked > most:
        raise InvalidParameter(f"window must be at most {most}, the positions that this model has; got {asked}.")
    return asked


@contextmanager
def _at_rest(model: Any) -> Iterator[None]:
    """The model in eval mode, as nothing random may happen; back in its own mode afterwards."""
    training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in training:
            module.training = mode


@dataclass(frozen=True, eq=False)
class _Analysis:
    """One analysis: what is studied, on which text, with which settings."""

    job: _Job
    subject: Subject
    corpus: Corpus
    settings: dict[str, Any]

    @cached_property
    def notebook(self) -> Notebook:
        """How the vectors come about: traced once, on a short text."""
        return Notebook(attending(self.subject.model))

    @property
    def fingerprint(self) -> str:
        """The hash of all that decides the numbers."""
        return provenance.fingerprint(
            {
                "model": self.subject.about,
                "dtype": str(self.subject.model.dtype),
                "tokens": self.corpus.tokens_sha256,
                "corpus": self.corpus.sha256,
                "language": self.corpus.language,
                "shape": list(self.corpus.ids.shape),
                **self.settings,
            }
        )

    def folder(self, out: str | Path | None, *, overwrite: bool) -> RunFolder:
        """The run folder, made or taken up."""
        short = self.fingerprint[:8]
        path = (
            Path(out) if out is not None else RUNS / f"{self.subject.slug}.{provenance.slug(self.corpus.name)}.{short}"
        )
        return open_folder(path, self.fingerprint, named=out is not None, overwrite=overwrite)

    def run(self, folder: RunFolder, probes: dict[str, Any], *, csv: bool) -> None:
        """Everything from the self-check to the page."""
        job = self.job
        torch.manual_seed(self.settings["seed"])
        with job.step("parity", "checking that what is captured is what the model computes"):
            spec, parity = self._prove()
        with job.step("pass", f"watching {self.corpus.described}"):
            observation = self._observe(folder, spec, probes)
        with job.step("tables", "writing tables"):
            tables = {**observation.tables(), "parity": parity}
            files = folder.write_tables(tables, csv=csv)
        manifest = self._manifest(spec, parity, files)
        folder.finish(manifest)
        with job.step("page", "drawing figures and the page"):
            page.write_page(open_run(folder.path))

    def _prove(self) -> tuple[ModelSpec, Any]:
        model = self.subject.model
        if not self.corpus.of_text:
            inputs = inputs_of(self.corpus, model, slice(0, 1))
            spec = examine(model, inputs, length=self.corpus.window, notebook=self.notebook)
            return spec, check_parity(model, spec, inputs)
        ids = torch.from_numpy(self.corpus.ids[:1]).to(next(model.parameters()).device)
        spec = examine(model, ids[:, :64], notebook=self.notebook)
        return spec, check_parity(model, spec, ids[:, : self._probed(spec)])

    def _probed(self, spec: ModelSpec) -> int:
        """Positions of the input that the self-check ran on."""
        return probe_length(spec, self.corpus.window) if self.corpus.of_text else self.corpus.window

    def _observe(self, folder: RunFolder, model_spec: ModelSpec, probes: dict[str, Any]) -> Observation:
        index = index_types(self.corpus)
        spec = Spec(model_spec, corpus_spec(self.corpus, index))
        observation = Observation(spec, probes, self.corpus, index=index)
        if observation.resume(folder.state):
            self.job.reporter.say(f"going on from window {observation.done}")
        total = self.corpus.n_windows
        with self.job.reporter.bar("attention", total, done=observation.done) as bar:

            def show(progress: Progress) -> None:
                bar.update(progress.done, self.corpus.window)

            observation.run(
                self.subject.model,
                batch_size=self.settings["batch_size"],
                report=show,
                save_to=folder.state,
                notebook=self.notebook,
            )
        return observation

    def _manifest(self, spec: ModelSpec, parity: Any, files: dict[str, str]) -> dict[str, Any]:
        subject = self.subject
        return {
            "schema": SCHEMA,
            "geomprobe": provenance.version(),
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv[0] else "python",
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "fingerprint": self.fingerprint,
            "seed": self.settings["seed"],
            "batch_size": self.settings["batch_size"],
            "model": {"name": subject.name, **subject.about, **provenance.of_model(subject.model, spec)},
            "corpus": provenance.of_corpus(self.corpus),
            "probes": self.settings["probes"],
            "parity": provenance.of_parity(parity, self._probed(spec)),
            "versions": provenance.versions(),
            "timings": dict(self.job.timings),
            "files": files,
        }

"""One analysis: from the self-check to the page."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from geomprobe import provenance
from geomprobe.attention.anatomy import examine
from geomprobe.attention.parity import check_parity, probe_length
from geomprobe.attention.seam import attending
from geomprobe.attention.spec import ModelSpec, Spec
from geomprobe.attention.stages import Notebook
from geomprobe.corpus.types import index_types
from geomprobe.corpus.windows import Corpus
from geomprobe.observation import Observation, Progress, corpus_spec, inputs_of
from geomprobe.pages import page
from geomprobe.progress import Reporter
from geomprobe.run.manifest import SCHEMA
from geomprobe.run.naming import slug
from geomprobe.run.reading import Run, open_run
from geomprobe.run.store import RunFolder, open_folder
from geomprobe.subject import Subject
from geomprobe.words import WordStudy

RUNS = Path("runs")


@dataclass
class Job:
    """What is shown of the work, and how long each step took."""

    reporter: Reporter
    timings: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str, words: str) -> Iterator[None]:
        """Say what begins, and note how long it took."""
        self.reporter.say(words)
        begun = time.monotonic()
        yield
        self.timings[name] = round(time.monotonic() - begun, 3)


@contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """The model in eval mode, as nothing random may happen; back in its own mode afterwards."""
    training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in training:
            module.training = mode


@dataclass(eq=False)
class Analysis:
    """One analysis: what is studied, on which text, with which settings."""

    job: Job
    subject: Subject
    corpus: Corpus
    settings: dict[str, Any]
    words: WordStudy | None = None
    spec: ModelSpec | None = None  # once proved
    parity: Any = None

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
                **({"words": self.words.sha256} if self.words else {}),
                **self.settings,
            }
        )

    def folder(self, out: str | Path | None, *, overwrite: bool) -> RunFolder:
        """The run folder, made or taken up."""
        short = self.fingerprint[:8]
        path = Path(out) if out is not None else RUNS / f"{self.subject.slug}.{slug(self.corpus.name)}.{short}"
        return open_folder(path, self.fingerprint, named=out is not None, overwrite=overwrite)

    def run(self, folder: RunFolder, probes: dict[str, Any], *, csv: bool, drawn: bool = True) -> None:
        """Everything from the self-check to the page, which may be left to be drawn later."""
        job = self.job
        torch.manual_seed(self.settings["seed"])
        with job.step("parity", "checking that what is captured is what the model computes"):
            spec = self.prove()
        with job.step("pass", f"watching {self.corpus.described}"):
            observation = self._observe(folder, spec, probes)
        tables = observation.tables()
        result = None
        if self.words is not None:
            known = self.words.described()
            with job.step("directions", f"watching {known['n_types']} words in {known['n_contexts']:,} contexts"):
                half = self.corpus.ids[: self.corpus.n_windows // 2]  # as `split` fixes its gauge
                result = self.words.run(self.subject.model, spec, self.notebook, folder.state, job.reporter, half)
                tables |= result.tables
        with job.step("tables", "writing tables"):
            files = folder.write_tables({**tables, "parity": self.parity}, csv=csv)
            if self.words is not None and result is not None:
                files |= self.words.save_vectors(result, folder.path)
        folder.finish(self.manifest(files))
        if drawn:
            with job.step("page", "drawing figures and the page"):
                page.write_page(open_run(folder.path))

    def found(self, folder: RunFolder, *, drawn: bool) -> Run:
        """The finished run that the folder holds already; its page is drawn where it is wanted and not there yet."""
        run = open_run(folder.path)
        if drawn and not (folder.path / page.HTML).is_file():
            with self.job.step("page", "drawing figures and the page"):
                page.write_page(run)
        return run

    def prove(self) -> ModelSpec:
        """Describe the model's attention, and check that what is captured is what it computes."""
        self.spec, self.parity = self._prove()
        return self.spec

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
        if not probes:  # only words are asked for
            return observation
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
        if self.words is not None:
            observation.save(folder.state)  # a run that is stopped among the words need not watch the windows again
        return observation

    def manifest(self, files: dict[str, str]) -> dict[str, Any]:
        """What run.json says, after `prove`."""
        assert self.spec is not None
        subject, spec, parity = self.subject, self.spec, self.parity
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
            **({"words": self.words.described()} if self.words else {}),
            "parity": provenance.of_parity(parity, self._probed(spec)),
            "versions": provenance.versions(),
            "timings": dict(self.job.timings),
            "files": files,
        }

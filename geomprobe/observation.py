"""The pass: windows of text flow through the model, and every layer's attention through the probes."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Module

from geomprobe.attention.batch import Tokens, Visibilities, make_batch
from geomprobe.attention.seam import Seen, watching
from geomprobe.attention.spec import CorpusSpec, Spec
from geomprobe.attention.stages import Notebook
from geomprobe.attention.stream import streaming
from geomprobe.corpus.types import TypeIndex, index_types
from geomprobe.corpus.windows import Corpus
from geomprobe.errors import InvalidParameter, unknown_name
from geomprobe.models.calling import run as call
from geomprobe.models.calling import text_inputs
from geomprobe.probes.assembly import summarise
from geomprobe.probes.base import PROBES, HalvedProbe, OutputProbe, Probe, ResidualProbe, State, observe, show
from geomprobe.probes.typed import TYPE_PROBES, TypeProbe

PROGRESS = "progress.json"
ALL = "all"
WITHOUT_FLOAT64 = ("mps",)
# Tokens of one forward pass: enough to keep the device busy and to make what is done once a layer cheap.
TOKENS_A_PASS = {"cpu": 2048}
TOKENS_ELSEWHERE = 8192
LOGIT_BYTES = 1 << 30  # what the logits of a pass may take: a vocabulary of 262 144 needs half of it a window of 512
SAVE_EVERY = 60.0  # seconds between two savings of the state; a stopped run loses no more than that


def choose_probes(names: str | None) -> tuple[dict[str, Probe], tuple[str, ...]]:
    """The probes of the windows, and the names of those of words in context, in the order of the registries.

    Parameters
    ----------
    names : str or None
        Separated by commas; "all" for all. None = those of the windows: words need a second, longer pass.
    """
    if names is None:
        return {name: PROBES[name]() for name in PROBES}, ()
    every = [*PROBES, *TYPE_PROBES]
    asked = [name.strip() for name in names.split(",") if name.strip()]
    if not asked:
        raise InvalidParameter(f"probes must name at least one of {', '.join(every)}; got {names!r}.")
    for name in asked:
        if name not in (*every, ALL):
            raise InvalidParameter(unknown_name("probe", name, (*every, ALL)))
    taken = every if ALL in asked else asked
    windows = {name: PROBES[name]() for name in PROBES if name in taken}
    return windows, tuple(name for name in TYPE_PROBES if name in taken)


def default_batch_size(model: Any, window: int) -> int:
    """Windows of one forward pass where nobody says: what suits the device."""
    device = next(model.parameters()).device.type
    vocabulary = getattr(model.config.get_text_config(), "vocab_size", 1)
    fit = LOGIT_BYTES // max(1, 4 * vocabulary * window)
    return max(1, min(TOKENS_A_PASS.get(device, TOKENS_ELSEWHERE) // window, fit))


def corpus_spec(corpus: Corpus, index: TypeIndex) -> CorpusSpec:
    """What probes need to know of a corpus."""
    return CorpusSpec(
        documents=corpus.document_names,
        types=index.types,
        zipf=index.zipf,
        cells=index.cells,
        tokens=index.tokens,
        window=corpus.window,
    )


def inputs_of(corpus: Corpus, model: Module, windows: slice) -> dict[str, Tensor]:
    """What a model is called with so that it sees some windows."""
    parameter = next(model.parameters())
    if corpus.pixels is not None:
        return {"pixel_values": corpus.pixels(windows).to(parameter.device, parameter.dtype)}
    return text_inputs(model, torch.from_numpy(corpus.ids[windows]).to(parameter.device))


@dataclass(frozen=True, eq=False)
class Progress:
    """How far a pass is."""

    done: int
    total: int
    tokens: int


class _Batch:
    """The batch under way: its tokens by device, and the masks of its forward pass."""

    def __init__(self) -> None:
        self.tokens: dict[torch.device, Tokens] = {}
        self.visibilities = Visibilities()

    def on(self, device: torch.device) -> Tokens:
        """The tokens on a device."""
        if device not in self.tokens:
            self.tokens[device] = next(iter(self.tokens.values())).to(device)
        return self.tokens[device]


class Observation:
    """A pass over a corpus, with the states that it fills.

    Parameters
    ----------
    spec : Spec
    probes : mapping from name to Probe
    corpus : Corpus
    index : TypeIndex, optional
        Of that corpus; made where not given.
    """

    def __init__(
        self, spec: Spec, probes: Mapping[str, Probe], corpus: Corpus, *, index: TypeIndex | None = None
    ) -> None:
        self.spec = spec
        self.corpus = corpus
        self.index = index or index_types(corpus)
        self.states: dict[str, tuple[Probe, State]] = {name: (p, p.init(spec)) for name, p in probes.items()}
        self.done = 0  # windows that are in the states

    def tokens(self, windows: slice) -> Tokens:
        """The tokens of some windows."""
        take = lambda array: torch.from_numpy(np.ascontiguousarray(array[windows]))  # noqa: E731
        token_class = take(self.corpus.token_class)
        return Tokens(
            token_class=token_class,
            type_index=take(self.index.type_index),
            cell_index=take(self.index.cell_index),
            token_index=take(self.index.token_index),
            document=take(self.corpus.document),
            valid=torch.ones_like(token_class, dtype=torch.bool),
        )

    def run(
        self,
        model: Module,
        *,
        batch_size: int,
        report: Callable[[Progress], None] = lambda _progress: None,
        save_to: Path | None = None,
        notebook: Notebook | None = None,
    ) -> None:
        """Observe the windows that are not yet in the states.

        Parameters
        ----------
        model : Module
        batch_size : int
            Windows a forward pass.
        report : callable
            Told after each batch.
        save_to : Path, optional
            A folder in which the states are saved now and then, for `resume`.
        notebook : Notebook, optional
            That of `examine`, which knows the paths of the vectors already.
        """
        saved = time.monotonic()
        total = self.corpus.n_windows
        now = _Batch()
        stages = notebook if notebook is not None else True
        halved = [(probe, state) for probe, state in self.states.values() if isinstance(probe, HalvedProbe)]
        middle = total // 2 if halved else 0
        if self.done == 0 and middle:
            for probe, state in halved:
                probe.begin(state)
        with torch.no_grad(), watching(model, self._seer(now), stages=stages), self._streams(model, now):
            while self.done < total:
                # A batch never lies across the middle, on both sides of which such a probe does different things.
                end = middle if self.done < middle else total
                windows = slice(self.done, min(self.done + batch_size, end))
                self._forward(model, windows, now)
                self.done = windows.stop
                if self.done == middle:
                    for probe, state in halved:
                        probe.settle(state, self.spec)
                report(Progress(self.done, total, self.done * self.corpus.window))
                if save_to is not None and self.done < total and time.monotonic() - saved > SAVE_EVERY:
                    self.save(save_to)
                    saved = time.monotonic()

    def _seer(self, now: "_Batch") -> Callable[[Seen], None]:
        """What is done with each attention product of the batch under way."""
        places = {layer.module: index for index, layer in enumerate(self.spec.model.layers)}
        probes = list(self.states.values())

        def see(seen: Seen) -> None:
            if seen.call.name not in places:  # a layer that was set aside (ModelSpec.skipped)
                return
            if seen.call.query.device.type in WITHOUT_FLOAT64:
                seen = seen.on_cpu()
            tokens = now.on(seen.call.query.device)
            visibility = now.visibilities.of(seen.call, tokens.valid)
            observe(probes, make_batch(seen, places[seen.call.name], tokens, visibility))

        return see

    def _streams(self, model: Module, now: "_Batch") -> AbstractContextManager[None]:
        """What is done with the residual stream of the batch under way, if a probe wants to see it."""
        lookers = [(probe, state) for probe, state in self.states.values() if isinstance(probe, ResidualProbe)]
        layers = self.spec.model.layers
        # Two residual streams have no one layer, and the places of an image are no tokens.
        if not lookers or not self.corpus.of_text or any(layer.part for layer in layers):
            return nullcontext()

        def look(index: int, hidden: Tensor) -> None:
            if hidden.device.type in WITHOUT_FLOAT64:
                hidden = hidden.cpu()
            tokens = now.on(hidden.device)
            if hidden.shape[:-1] == tokens.valid.shape:  # some families have several streams, or merge positions
                show(lookers, index, hidden, tokens)

        return streaming(model, [layer.module for layer in layers], look)

    def _forward(self, model: Module, windows: slice, now: "_Batch") -> None:
        device = next(model.parameters()).device
        ids = torch.from_numpy(self.corpus.ids[windows]).to(device)
        tokens = self.tokens(windows).to(device)
        now.tokens = {device: tokens}
        logits = getattr(call(model, inputs_of(self.corpus, model, windows)), "logits", None)
        now.visibilities.forget()
        if logits is not None and self.corpus.of_text:  # an encoder without a head predicts nothing
            self._read(logits, ids, tokens)

    def _read(self, logits: Tensor, ids: Tensor, tokens: Tokens) -> None:
        for probe, state in self.states.values():
            if isinstance(probe, OutputProbe):
                probe.read(state, logits, ids.to(logits.device), tokens.to(logits.device))

    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of what has been seen."""
        return summarise(self.states, self.spec)

    def save(self, folder: Path) -> None:
        """Save the states; the note of how far they go comes last, by rename."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"state-{self.done}.safetensors"
        flat = {f"{name}/{key}": value.contiguous() for name, (_, s) in self.states.items() for key, value in s.items()}
        save_file(flat, file)
        part = folder / f"{PROGRESS}.part"
        part.write_text(json.dumps({"done": self.done, "file": file.name}), encoding="utf-8")
        part.replace(folder / PROGRESS)
        for old in folder.glob("state-*.safetensors"):
            if old != file:
                old.unlink()

    def resume(self, folder: Path) -> bool:
        """Take up states that `save` left, if there are any; whether there were."""
        note = folder / PROGRESS
        if not note.exists():
            return False
        progress = json.loads(note.read_text(encoding="utf-8"))
        flat = load_file(folder / progress["file"])
        for name, (_, state) in self.states.items():
            for key in state:
                state[key] = flat[f"{name}/{key}"]
        self.done = int(progress["done"])
        return True


def described(probes: Mapping[str, Probe | TypeProbe]) -> dict[str, dict]:
    """Probes and their parameters, for the manifest."""
    return {name: asdict(probe) for name, probe in probes.items()}  # type: ignore[call-overload]

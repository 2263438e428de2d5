"""The training loop: an update at a time, saved so that a killed run goes on bit for bit."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe import provenance
from geomprobe.attention.seam import attending
from geomprobe.attention.stages import Notebook
from geomprobe.lab.arms import name_of
from geomprobe.lab.folder import TrainingFolder, to_disk
from geomprobe.lab.growth import VECTORS, measure, projections, step_geometry
from geomprobe.lab.model import LabConfig, LabForCausalLM, initialise
from geomprobe.lab.objective import head_loss
from geomprobe.lab.recipe import POSITIONS, Recipe
from geomprobe.lab.supply import Supply
from geomprobe.models.quiet import quiet_transformers
from geomprobe.run.manifest import SCHEMA

GROWTH_POINTS: Final = 32  # evenly spaced steps at which lengths are measured
PER_OCTAVE: Final = 2  # saved steps each time that the number of steps doubles
STATE_EVERY: Final = 120.0  # seconds between states of a run
MEASURED: Final = 2  # sequences of the growth measurements
HELD_OUT_TOKENS: Final = 16_384  # of a held-out loss on the way; of the last ones eight times as many
FACTORS: Final = (1, 2, 4)  # times the training length, of the last held-out loss
_SPIKE_AGAINST: Final = 64  # steps before one that it is held against
_SPIKE: Final = 6.0  # median absolute deviations (as standard deviations) above their median
_MAD: Final = 1.4826  # standard deviations of a Gaussian in one median absolute deviation


def save_steps(n_steps: int) -> list[int]:
    """Log-spaced: 0, 1, 2, 3, 4, 6, 8, 11, 16 … and the last."""
    octaves = int(math.log2(n_steps) * PER_OCTAVE) if n_steps > 1 else 0
    return sorted({0, n_steps, *(round(2 ** (index / PER_OCTAVE)) for index in range(octaves + 1))})


def growth_steps(n_steps: int) -> list[int]:
    """Evenly spaced from 0 on; the last step is among them."""
    return sorted({round(n_steps * index / GROWTH_POINTS) for index in range(GROWTH_POINTS + 1)})


def make_model(recipe: Recipe) -> LabForCausalLM:
    """A decoder of the recipe's arm and size, its weights drawn from the seed."""
    size = recipe.size
    config = LabConfig(
        vocab_size=size.vocab_size,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_dim,
        max_position_embeddings=POSITIONS * recipe.length,
        eos_token_id=0,
        bos_token_id=0,
        **recipe.arm.fields,
    )
    with quiet_transformers():
        model = LabForCausalLM(config)
    initialise(model, recipe.seed)
    return model


def optimiser_of(model: LabForCausalLM, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW with decay on matrices alone."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.95), eps=1e-8, fused=True)


@dataclass(eq=False)
class Training:
    """One training under way.

    Attributes
    ----------
    recipe : Recipe
    supply : Supply
    folder : TrainingFolder
    tokenizer : Path or None
        Files that go beside each saved checkpoint.
    about : dict
        What manifests say of the data.
    device : str
    compiled : bool
        Whether the decoder runs through torch.compile.
    """

    recipe: Recipe
    supply: Supply
    folder: TrainingFolder
    tokenizer: Path | None
    about: dict[str, Any]
    device: str = "cpu"
    compiled: bool = False
    step: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    growth: list[dict[str, Any]] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0  # of updates alone
    diverged_at: int | None = None

    def run(self, report: Callable[[int], None] = lambda _step: None) -> dict[str, Any]:
        """Train to the end, from where an earlier run was stopped; the manifest."""
        self.model = make_model(self.recipe).to(self.device)
        self.optimiser = optimiser_of(self.model, self.recipe)
        self.body = torch.compile(self.model.model) if self.compiled else self.model.model
        self.notebook = Notebook(attending(self.model))
        self.before: dict[str, Tensor] = {}
        self.pointed: dict[tuple[int, str], dict[str, float]] = {}  # how the last update did, by layer and vector
        self._take_up()
        saving, growing = set(save_steps(self.recipe.n_steps)), set(growth_steps(self.recipe.n_steps))
        self.model.train()
        saved = time.monotonic()
        while self.step < self.recipe.n_steps and self.diverged_at is None:
            if self.step in saving:
                self._save_step()
            with self._watched(self.step in growing):
                self._update()
            report(self.step)
            due = time.monotonic() - saved > STATE_EVERY or self.step in saving
            if due and self.diverged_at is None:
                self._save_state()
                saved = time.monotonic()
        self._save_step()
        if self.diverged_at is None:
            self._measure()
        return self._finish()

    # ------------------------------------------------------------------ one update
    def _update(self) -> None:
        begun = time.monotonic()
        recipe = self.recipe
        rate = recipe.rate_at(self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        ids = self.supply.batch(self.step).to(self.device)
        self.optimiser.zero_grad(set_to_none=True)
        self.pointed = {}  # no step as yet
        loss = self.loss(ids)
        loss.backward()
        norms = self._gradient_norms()
        if recipe.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip)
        value = float(loss.detach())
        if not math.isfinite(value):
            self.diverged_at = self.step
            return
        before = {key: weight.detach().clone() for key, weight in projections(self.model).items()}
        self.optimiser.step()
        self._look_where_it_went(before, shrunk=rate * recipe.decay)
        parts = {
            f"{name}_{vector}": float(np.mean([found[name] for (_, of), found in self.pointed.items() if of == vector]))
            for vector in VECTORS
            for name in ("radial", "tangential")
        }
        self.steps.append({"step": self.step, "rate": rate, "loss": value, **norms, **parts})
        self.step += 1
        self.seconds += time.monotonic() - begun

    def loss(self, ids: Tensor) -> Tensor:
        """Mean cross-entropy of sequences (sequence, length + 1)."""
        with self._precision():
            hidden = self.body(ids[:, :-1]).last_hidden_state
            return head_loss(hidden.flatten(0, 1), self.model.lm_head.weight, ids[:, 1:].flatten())

    def _precision(self) -> Any:
        if self.recipe.dtype == "float32":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)

    def _gradient_norms(self) -> dict[str, float]:
        def norm(parameters: Iterator[torch.nn.Parameter]) -> float:
            return float(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))

        made = projections(self.model)
        named = {
            f"gradient_{vector}": norm(weight for (_, which), weight in made.items() if which == vector)
            for vector in VECTORS
        }
        return {"gradient": norm(self.model.parameters()), **named}

    # ------------------------------------------------------------------ what is measured
    def _look_where_it_went(self, before: dict[tuple[int, str], Tensor], *, shrunk: float) -> None:
        head_dim = self.recipe.size.head_dim
        self.pointed = {
            key: step_geometry(weight.detach(), before[key], shrunk=shrunk, head_dim=head_dim)
            for key, weight in projections(self.model).items()
        }

    @contextmanager
    def _watched(self, growing: bool) -> Iterator[None]:  # noqa: FBT001
        """Measure lengths before an update, and afterwards how it pointed."""
        if not growing:
            yield
            return
        rows = self._measure_rows()
        yield
        for (layer, vector), found in self.pointed.items():
            rows[layer] |= {f"{name}_{vector}": value for name, value in found.items()}
        self.growth.extend(rows)

    def _measure_rows(self) -> list[dict[str, Any]]:
        ids = self.supply.held_out(self.recipe.length, MEASURED)[:, :-1].to(self.device)
        rows, self.before = measure(self.model, ids, self.before, self.notebook)
        return [{"step": self.step, **row} for row in rows]

    def _measure(self) -> None:
        """At the end: lengths once more, and the held-out loss at one, two and four times the length."""
        if not self.growth or self.growth[-1]["step"] != self.step:
            self.growth.extend(self._measure_rows())
        for factor in FACTORS:
            self._held_out(factor, 8 * HELD_OUT_TOKENS)

    def _held_out(self, factor: int, tokens: int) -> float:
        length = factor * self.recipe.length
        ids = self.supply.held_out(length, max(1, tokens // length))
        rows = max(1, self.recipe.batch // factor)
        self.model.eval()
        with torch.no_grad():
            parts = [(float(self.loss(part.to(self.device))), len(part)) for part in ids.split(rows)]
        self.model.train()
        loss = sum(value * n for value, n in parts) / len(ids)
        self.losses.append({"step": self.step, "factor": factor, "loss": loss, "n_tokens": ids[:, 1:].numel()})
        return loss

    # ------------------------------------------------------------------ what is kept
    def _save_step(self) -> None:
        # A killed run may have saved this very step; the loss is measured all the same, for the table goes on with it.
        loss = float("nan") if self.diverged_at is not None else self._held_out(1, HELD_OUT_TOKENS)
        note = {**self._note(), "step": self.step, "tokens": self._tokens, "held_out_loss": finite(loss)}
        with quiet_transformers():
            self.folder.save_step(self.step, self.model, self.tokenizer, note)

    def _save_state(self) -> None:
        self.folder.save_state(
            self.step,
            {
                "step": self.step,
                "model": self.model.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "before": self.before,
                "steps": self.steps,
                "growth": self.growth,
                "losses": self.losses,
                "seconds": self.seconds,
            },
        )

    def _take_up(self) -> None:
        state = self.folder.load_state()
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.before = {name: x.to(self.device) for name, x in state["before"].items()}
        self.step, self.seconds = state["step"], state["seconds"]
        self.steps, self.growth, self.losses = state["steps"], state["growth"], state["losses"]

    def _finish(self) -> dict[str, Any]:
        steps = pd.DataFrame(self.steps)
        if len(steps):
            steps["spike"] = spikes(steps["loss"].to_numpy())
        tables = {"metrics": steps, "growth": pd.DataFrame(self.growth), "held_out": pd.DataFrame(self.losses)}
        for name, table in tables.items():
            part = self.folder.path / f".{name}.parquet.part"
            table.to_parquet(part, index=False, compression="zstd")
            to_disk(part)
            part.replace(self.folder.path / f"{name}.parquet")
        # Of a run that broke, the losses before say nothing of what it came to.
        last = {} if self.diverged_at is not None else {int(row["factor"]): row["loss"] for row in self.losses}
        manifest = {
            **self._note(),
            "schema": SCHEMA,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "step": self.step,
            "tokens": self._tokens,
            "n_parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "held_out_loss": {str(factor): finite(loss) for factor, loss in last.items()},
            "training_loss": finite(steps["loss"].tail(_SPIKE_AGAINST).mean()) if len(steps) else None,
            "n_spikes": int(steps["spike"].sum()) if len(steps) else 0,
            "diverged_at": self.diverged_at,
            "saved_steps": self.folder.steps,
            "seconds": round(self.seconds, 1),
            "threads": torch.get_num_threads(),
            "device": self.device,
            "compiled": self.compiled,
            "versions": provenance.versions(),
            "weights_sha256": provenance.sha256_of_weights(self.model),
        }
        self.folder.finish(manifest)
        return manifest

    @property
    def _tokens(self) -> int:
        return self.step * self.recipe.batch * self.recipe.length

    def _note(self) -> dict[str, Any]:
        """What ties a checkpoint to its twins."""
        return {
            "geomprobe": provenance.version(),
            "arm": name_of(self.recipe.arm),
            "recipe": self.recipe.described,
            "fingerprint": self.recipe.fingerprint(self.supply.sha256),
            "pair": self.recipe.pair(self.supply.sha256),
            "data": self.about,
        }


def spikes(loss: np.ndarray) -> np.ndarray:
    """Which steps' losses jump: more than six standard deviations (by the median absolute deviation) above the median
    of the 64 before; the first 64 never do. (step,) to bool (step,).
    """  # noqa: D205
    found = np.zeros(len(loss), dtype=bool)
    for step in range(_SPIKE_AGAINST, len(loss)):
        past = loss[step - _SPIKE_AGAINST : step]
        middle = np.median(past)
        found[step] = loss[step] > middle + _SPIKE * _MAD * np.median(np.abs(past - middle))
    return found


def finite(value: float) -> float | None:
    """A number for JSON: nothing where it is none."""
    return float(value) if math.isfinite(value) else None

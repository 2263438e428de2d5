"""Makes the ledgers of claims: three checkpoints, and one with random weights that must support nothing.

    python reports/claims.py FOLDER [--windows 32] [--edited 16] [--only smollm2-135m …] [--out reports/claims]

Runs lie in FOLDER and are not made again where they are finished; an analysis goes on where it was stopped. In float32
on a CPU; two cores take about half an hour.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch
import transformers

import geomprobe
from geomprobe.models.load import load
from geomprobe.models.resolve import resolve
from geomprobe.run.manifest import NAME

CHECKPOINTS = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b")
RANDOM = "random-weights"
SHAPE_OF = "smollm2-135m"
PROBES = "norms,gains,logits,sinks,class_attention,loss,split,values,order"
EDITS = [
    "neutral_norm",
    *(f"{edit}{gauge}" for gauge in ("", "@balanced") for edit in ("permute_norm", "swap_angle:permute_norm")),
    "scale_class:function:0.5",
]
SETTINGS = ("--dtype", "float32", "--device", "cpu")


def random_checkpoint(path: Path) -> None:
    """A model of that shape with the weights it has before any training, and its tokenizer."""
    if not (path / "config.json").exists():
        loaded = load(resolve(SHAPE_OF), dtype="float32", device="cpu")
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(loaded.model.config).save_pretrained(path)
        loaded.tokenizer.save_pretrained(path)


def runs_of(name: str, folder: Path, windows: int, edited: int) -> list[Path]:
    """The analysis of a checkpoint and the trial of edits, made where they are missing."""
    if name == RANDOM:
        random_checkpoint(folder / RANDOM)
    shape = ("--window", "512", *SETTINGS)
    analysis, trial = folder / f"{name}.analysis", folder / f"{name}.edits"
    if not (analysis / NAME).exists():
        _geomprobe(
            folder,
            "analyze",
            "--model",
            name,
            "--probes",
            PROBES,
            "--windows",
            str(windows),
            *shape,
            "--out",
            analysis.name,
        )
    if not (trial / NAME).exists():
        normed = bool(geomprobe.open_run(analysis).manifest["model"]["anatomy"][0]["k_norm"])
        edits = [word for edit in [*EDITS, *(["scalar_gain"] if normed else [])] for word in ("--edit", edit)]
        _geomprobe(folder, "intervene", "--model", name, *edits, "--windows", str(edited), *shape, "--out", trial.name)
    return [analysis, trial]


def _geomprobe(folder: Path, *words: str) -> None:
    """A command as a person would type it in that folder, so that the run's manifest has it."""
    subprocess.run([sys.executable, "-m", "geomprobe", *words], cwd=folder, check=True)


def main() -> None:
    """Make runs and ledgers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--windows", type=int, default=32, help="of an analysis")
    parser.add_argument("--edited", type=int, default=16, help="of a trial of edits, half of which are tested")
    parser.add_argument("--only", nargs="*", default=[*CHECKPOINTS, RANDOM])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "claims")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    made = {name: runs_of(name, options.folder, options.windows, options.edited) for name in options.only}
    trained = [run for name in CHECKPOINTS for run in made.get(name, [])]
    if trained:
        geomprobe.claims(trained, family=True, out=options.out)
    if RANDOM in made:
        control = geomprobe.claims(made[RANDOM], out=options.out).ledgers[0]
        assert "supported" not in set(control.claims["verdict"]), control.claims


if __name__ == "__main__":
    main()

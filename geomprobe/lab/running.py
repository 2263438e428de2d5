"""`geomprobe train`: from a recipe and texts to a folder of checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from geomprobe.corpus.sources import Source, read_dataset, read_texts, sotu
from geomprobe.errors import InvalidParameter, RunError
from geomprobe.lab.arms import name_of
from geomprobe.lab.backcopy import BackcopySupply
from geomprobe.lab.folder import TrainingFolder
from geomprobe.lab.recipe import Recipe
from geomprobe.lab.supply import Supply, TextSupply
from geomprobe.lab.text import TextData, TextPlan, prepare_text
from geomprobe.lab.train import Training
from geomprobe.models.load import choose_device
from geomprobe.progress import Reporter

ROOT: Final = Path("trained")


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes
    ----------
    path : Path
    manifest : dict
        What training.json says.
    """

    path: Path
    manifest: dict[str, Any]

    @property
    def checkpoint(self) -> Path:
        """The last saved checkpoint, which `geomprobe analyze --model` takes."""
        return TrainingFolder(self.path).step_path(int(self.manifest["step"]))


def train(  # noqa: PLR0913 (each is a setting of the command line, by the same name)
    recipe: Recipe,
    *,
    text: str | Path | Sequence[str | Path] | None = None,
    dataset: str | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    compiled: bool | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Trained:
    """Train a decoder of the lab, or go on with a training that was stopped.

    Parameters
    ----------
    recipe : Recipe
        All that decides the weights; `geomprobe.lab.recipe.preset` has some by name.
    text : path or paths, optional
        Text files, or folders of them; a tenth of the files is held out. Default: State of the Union addresses.
    dataset : str, optional
        A hub data set instead, "owner/name[:split[:column]]".
    out : path, optional
        The folder. Default: trained/<preset's size>.<arm>.s<seed>.<hash>.
    device : str
    compiled : bool, optional
        Whether the decoder runs through torch.compile. Default: on a GPU.
    overwrite : bool
        Drop a training that is there.
    quiet : bool
        Show no progress.

    Raises
    ------
    GeomprobeError
        With one sentence that says what to do: too little text, a folder that is in the way, an unknown device.
    """
    place = choose_device(device)
    reporter = Reporter(quiet=quiet)
    data = None
    if recipe.task == "text":
        source = _source(text, dataset)
        plan = TextPlan(recipe.size.vocab_size, recipe.renamed)
        data = prepare_text(source, plan, say=reporter.say)
    elif text is not None or dataset is not None:
        raise InvalidParameter("text and dataset are for the task text; backcopy makes its own sequences.")
    return run_recipe(recipe, data, out=out, place=place, compiled=compiled, overwrite=overwrite, reporter=reporter)


def run_recipe(  # noqa: PLR0913
    recipe: Recipe,
    data: TextData | None,
    *,
    out: str | Path | None,
    place: str,
    compiled: bool | None,
    overwrite: bool,
    reporter: Reporter,
) -> Trained:
    """`train` on data that is prepared; None for a task that makes its own."""
    supply: Supply = TextSupply(data, recipe) if data is not None else BackcopySupply(recipe)
    fingerprint = recipe.fingerprint(supply.sha256)
    path = Path(out) if out is not None else ROOT / default_name(recipe, fingerprint)
    folder = TrainingFolder(path)
    about = data.about if data is not None else {"name": recipe.task, "tokens_sha256": supply.sha256}
    note = {"recipe": recipe.described, "data": about}
    if folder.open(fingerprint, note, overwrite=overwrite):
        reporter.say(f"{path} holds this very training already; --overwrite makes it anew")
        return open_training(path)
    training = Training(
        recipe=recipe,
        supply=supply,
        folder=folder,
        tokenizer=_tokenizer(data, recipe),
        about=about,
        device=place,
        compiled=place.startswith("cuda") if compiled is None else compiled,
    )
    what = f"{name_of(recipe.arm)}, seed {recipe.seed}"
    reporter.say(f"training {what}: {recipe.tokens:,} tokens, {recipe.n_steps:,} steps")
    per_step = recipe.batch * recipe.length
    with reporter.bar("training", recipe.n_steps, done=folder.state_step, unit="steps") as bar:
        manifest = training.run(lambda step: bar.update(step, per_step))
    if manifest["diverged_at"] is not None:
        reporter.say(f"the loss is no number at step {manifest['diverged_at']}: the training ends there")
    return Trained(path, manifest)


def open_training(path: str | Path) -> Trained:
    """A finished training's folder.

    Raises
    ------
    RunError
        Where there is none, or it is not finished.
    """
    manifest = TrainingFolder(Path(path)).finished
    if manifest is None or "recipe" not in manifest:
        raise RunError(
            f"{str(path)!r} is no finished training; `geomprobe train` with the same settings goes on from where one "
            "was stopped."
        )
    return Trained(Path(path), manifest)


def default_name(recipe: Recipe, fingerprint: str) -> str:
    """A folder's name that says what is in it."""
    size = recipe.size
    what = recipe.task if recipe.task != "text" else f"d{size.hidden}l{size.layers}"
    return f"{what}.{name_of(recipe.arm)}.s{recipe.seed}.{fingerprint[:8]}"


def with_size(recipe: Recipe, **given: int | None) -> Recipe:
    """The recipe with those widths and counts of its size that are given."""
    changed = {name: value for name, value in given.items() if value is not None}
    return replace(recipe, size=replace(recipe.size, **changed)) if changed else recipe


def _tokenizer(data: TextData | None, recipe: Recipe) -> Path | None:
    if data is None:
        return None
    return data.tokenizer_with_bos if recipe.bos else data.tokenizer


def _source(text: str | Path | Sequence[str | Path] | None, dataset: str | None) -> Source:
    if text is not None and dataset is not None:
        raise InvalidParameter("text and dataset are two sources; give one of them.")
    if dataset is not None:
        return read_dataset(dataset)
    if text is None:
        return sotu()
    return read_texts([text] if isinstance(text, str | Path) else text)

"""A plan of many trainings: arms, seeds and learning rates by group, read from a YAML file."""

import os
import re
from collections import Counter
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import yaml

from geomprobe.errors import InvalidParameter, unknown_name
from geomprobe.lab.arms import find_arm, name_of
from geomprobe.lab.recipe import Recipe, Size, preset

PLAN_KEYS: Final = ("name", "text", "dataset", "categories", "measure", "groups")
# A recipe's fields that a group may change; arm and seed come from its lists.
RECIPE_FIELDS: Final = {field.name: field.type for field in fields(Recipe) if field.name not in ("arm", "seed", "size")}
SIZE_FIELDS: Final = {field.name: field.type for field in fields(Size)}
GROUP_KEYS: Final = ("name", "preset", "arms", "seeds", "rates", "compile", *RECIPE_FIELDS, *SIZE_FIELDS)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # what is a folder's name everywhere
_VARIABLE: Final = re.compile(r"\$(\w+|\{[^}]*\})")


@dataclass(frozen=True)
class Job:
    """One training of a plan.

    Attributes
    ----------
    name : str
        Of its folder: group, arm, rate where the group has several, seed.
    group : str
    recipe : Recipe
    compiled : bool or None
        Whether it runs through torch.compile; None: on a GPU.
    """

    name: str
    group: str
    recipe: Recipe
    compiled: bool | None = None


@dataclass(frozen=True)
class Group:
    """Trainings that differ in arm, seed and learning rate alone.

    Attributes
    ----------
    name : str
    recipe : Recipe
        What they have in common; its arm and seed are those of none.
    arms : tuple of str
    seeds : tuple of int
    rates : tuple of float
        None: the recipe's own.
    compiled : bool or None
        Of all its trainings: it has other roundings, and twins have the same.
    """

    name: str
    recipe: Recipe
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    rates: tuple[float, ...] = ()
    compiled: bool | None = None

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Its trainings, the arms of a seed and rate one after another, so that twins are finished together."""
        made = []
        for seed, rate, arm in product(self.seeds, self.rates or (None,), self.arms):
            recipe = replace(self.recipe, arm=find_arm(arm), seed=seed)
            parts = [self.name, arm]
            if rate is not None:
                recipe = replace(recipe, rate=rate)
                parts.append(f"r{rate_in_words(rate)}")
            made.append(Job("-".join((*parts, f"s{seed}")), self.name, recipe, self.compiled))
        return tuple(made)


@dataclass(frozen=True)
class Plan:
    """What a plan file says.

    Attributes
    ----------
    file : Path
    name : str
    text : tuple of Path
        Text files, or folders of them; none where there is a data set, or no group needs texts.
    dataset : str or None
        A hub data set, "owner/name[:split[:column]]".
    categories : Path or None
        For measuring clusters; None: the packaged nouns.
    measure : bool
        Whether each run is analysed as soon as it is trained.
    groups : tuple of Group
    jobs : tuple of Job
        The trainings of all groups, in their order.
    """

    file: Path
    name: str
    text: tuple[Path, ...]
    dataset: str | None
    categories: Path | None
    measure: bool
    groups: tuple[Group, ...]
    jobs: tuple[Job, ...]


def rate_in_words(rate: float) -> str:
    """A learning rate as names of runs have it: 3e-4."""
    digits, exponent = f"{rate:.12e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def read_plan(file: str | Path) -> Plan:
    """Read a plan file.

    Parameters
    ----------
    file : path

    Returns
    -------
    Plan

    Raises
    ------
    InvalidParameter
        With one sentence that names file, group and key: no such file, no YAML, an unknown key, arm or preset, a value
        outside its domain, two runs of one name, no text or two sources of it.
    """
    file = Path(file)
    given = _mapping(file.name, _load(file), PLAN_KEYS)
    groups = given.get("groups")
    if not isinstance(groups, list) or not groups:
        raise _wrong(file.name, "groups", "a list of one group at least", groups)
    read = [_group(file.name, f"group {number}", group) for number, group in enumerate(groups, 1)]
    made = tuple(group for group, _ in read)
    jobs = tuple(job for _, own in read for job in own)
    _one_recipe(file.name, made)
    _distinct(file.name, "runs", [job.name for job in jobs])
    text, dataset = _sources(file, given, needed=[group.name for group in made if group.recipe.task == "text"])
    measure = given.get("measure", False)
    if not isinstance(measure, bool):
        raise _wrong(file.name, "measure", "true or false", measure)
    categories = given.get("categories")
    return Plan(
        file=file,
        name=_name(file.name, given.get("name")),
        text=text,
        dataset=dataset,
        categories=None if categories is None else _path(file, "categories", categories),
        measure=measure,
        groups=made,
        jobs=jobs,
    )


# ---------------------------------------------------------------------- the file
def _load(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidParameter(f"There is no plan {str(file)!r}; give a YAML file.") from error
    except OSError as error:
        raise InvalidParameter(f"The plan {str(file)!r} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"The plan {str(file)!r} must be UTF-8; the byte at {error.start} is not.") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"line {mark.line + 1}" if mark is not None else "it"
        said = problem or str(error).partition("\n")[0]
        raise InvalidParameter(f"The plan {str(file)!r} must be YAML; {where} is not: {said}.") from error


def _sources(file: Path, given: dict[str, Any], *, needed: list[str]) -> tuple[tuple[Path, ...], str | None]:
    text, dataset = given.get("text"), given.get("dataset")
    if text is not None and dataset is not None:
        raise InvalidParameter(f"{file.name}: text and dataset are two sources; give one of them.")
    if needed and text is None and dataset is None:
        raise InvalidParameter(f"{file.name}: group {needed[0]!r} trains on texts; give text or dataset.")
    if dataset is not None and not isinstance(dataset, str):
        raise _wrong(file.name, "dataset", "OWNER/NAME[:split[:column]]", dataset)
    if text is None:
        return (), dataset
    paths = text if isinstance(text, list) else [text]
    if not paths:
        raise _wrong(file.name, "text", "a path or a list of paths", text)
    return tuple(_path(file, "text", path) for path in paths), None


def _path(file: Path, what: str, value: Any) -> Path:
    """A path of the plan: relative to the file, with the environment's variables put in."""
    if not isinstance(value, str) or not value:
        raise _wrong(file.name, what, "a path", value)
    unset = [name for name in _VARIABLE.findall(value) if name.strip("{}") not in os.environ]
    if unset:
        raise InvalidParameter(
            f"{file.name}: the environment variable {unset[0].strip('{}')} of {what} must be set; it is not."
        )
    return file.parent / Path(os.path.expandvars(value)).expanduser()


# ---------------------------------------------------------------------- a group
def _group(file: str, number: str, value: Any) -> tuple[Group, tuple[Job, ...]]:
    given = _mapping(f"{file}, {number}", value, GROUP_KEYS)
    name = _name(f"{file}, {number}", given.get("name"))
    where = f"{file}, group {name!r}"
    try:
        group = Group(
            name=name,
            recipe=_recipe(where, given),
            arms=tuple(_arm(where, arm) for arm in _list(where, "arms", given.get("arms"), "arms")),
            seeds=_seeds(where, given.get("seeds")),
            rates=_rates(where, given),
            compiled=_compiled(where, given),
        )
        return group, group.jobs
    except InvalidParameter as error:
        # What arms, presets and recipes say of a value does not know where it was written.
        said = str(error)
        raise (error if said.startswith(where) else InvalidParameter(f"{where}: {said}")) from error


def _recipe(where: str, given: dict[str, Any]) -> Recipe:
    changes, sizes = (
        {name: _value(where, name, given[name], kind) for name, kind in kinds.items() if name in given}
        for kinds in (RECIPE_FIELDS, SIZE_FIELDS)
    )
    # The task backcopy has a size of its own, as on the command line.
    known = "backcopy" if changes.get("task") == "backcopy" else str(given.get("preset", "nano"))
    size = preset(known).size
    return preset(known, size=replace(size, **sizes), **changes)


def _arm(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "an arm", "a name such as A1", value)
    return name_of(find_arm(value))


def _seeds(where: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        number = _value(where, "seeds", value, int)
        if number < 1:
            raise _wrong(where, "seeds", "a count from 1 on, or a list of seeds", value)
        return tuple(range(number))
    seeds = tuple(_value(where, "a seed", seed, int) for seed in _list(where, "seeds", value, "whole numbers"))
    if min(seeds) < 0:
        raise _wrong(where, "a seed", "a whole number from 0 on", min(seeds))
    return seeds


def _compiled(where: str, given: dict[str, Any]) -> bool | None:
    value = given.get("compile")
    if value is not None and not isinstance(value, bool):
        raise _wrong(where, "compile", "true or false", value)
    return value


def _rates(where: str, given: dict[str, Any]) -> tuple[float, ...]:
    if "rates" not in given:
        return ()
    if "rate" in given:
        raise InvalidParameter(f"{where}: rate and rates say the same; give one of them.")
    return tuple(_value(where, "a rate", rate, float) for rate in _list(where, "rates", given["rates"], "numbers"))


# ---------------------------------------------------------------------- values
def _mapping(where: str, value: Any, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidParameter(f"{where} must be a mapping with the keys {', '.join(known[:5])} …; got {value!r}.")
    for key in value:
        if key not in known:
            raise InvalidParameter(f"{where}: {unknown_name('key', str(key), known)}")
    return value


def _list(where: str, what: str, value: Any, kind: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _wrong(where, what, f"a list of {kind}", value)
    return value


def _name(where: str, value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _wrong(where, "name", "a word of letters, digits, '.', '_' and '-'", value)
    return value


def _value(where: str, what: str, value: Any, kind: Any) -> Any:
    """A value of a recipe's field, in the field's type."""
    if kind is bool:
        if not isinstance(value, bool):
            raise _wrong(where, what, "true or false", value)
        return value
    if kind is str:
        if not isinstance(value, str):
            raise _wrong(where, what, "a word", value)
        return value
    try:
        # YAML 1.1 takes 3e-4 for a word.
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None or (kind is int and not number.is_integer()):
        raise _wrong(where, what, "a whole number" if kind is int else "a number", value)
    return kind(number)


def _one_recipe(where: str, groups: tuple[Group, ...]) -> None:
    """Parts of a group (other arms, more seeds) may stand apart, so that one is trained before the other."""
    recipes: dict[str, tuple[Recipe, bool | None]] = {}
    for group in groups:
        if "-" in group.name:  # what stands before the first one in the name of a run is its group
            raise InvalidParameter(f"{where}: the name of a group must be without '-'; got {group.name!r}.")
        own = group.recipe, group.compiled
        if recipes.setdefault(group.name, own) != own:
            raise InvalidParameter(
                f"{where}: the parts of group {group.name!r} must have the same recipe but for arms, seeds and rates; "
                "give one of them another name."
            )


def _distinct(where: str, what: str, names: list[str]) -> None:
    name, n = Counter(names).most_common(1)[0]
    if n > 1:
        raise InvalidParameter(f"{where}: the names of {what} must differ; got {name!r} {n} times.")


def _wrong(where: str, what: str, domain: str, value: Any) -> InvalidParameter:
    return InvalidParameter(f"{where}: {what} must be {domain}; got {value!r}.")

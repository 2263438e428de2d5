"""Ledgers of several runs, and what they say together."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from geomprobe.errors import RunError
from geomprobe.figures.ledger import SIZE, draw_ledger
from geomprobe.figures.saving import save_picture
from geomprobe.ledger.evidence import Checkpoint, checkpoints
from geomprobe.ledger.family import Growth, growth, pooled, told
from geomprobe.ledger.ledger import Ledger, make_ledger
from geomprobe.ledger.writing import WORDS, write
from geomprobe.run.naming import slug
from geomprobe.run.reading import Run, open_run


@dataclass(frozen=True, eq=False)
class Claims:
    """What `claims` gives.

    Attributes
    ----------
    ledgers : tuple of Ledger
        One a checkpoint.
    growth : tuple of Growth
        C7a, a row a family without QK norm that has several sizes.
    pooled : DataFrame or None
        Signs over families, where asked for.
    files : tuple of Path
        What was written.
    """

    ledgers: tuple[Ledger, ...]
    growth: tuple[Growth, ...] = ()
    pooled: pd.DataFrame | None = None
    files: tuple[Path, ...] = ()


def claims(
    runs: Run | str | Path | Iterable[Run | str | Path],
    *,
    family: bool = False,
    out: str | Path | None = None,
) -> Claims:
    """Decide on the claims about length, angle and sinks, from the tables of finished runs alone.

    Parameters
    ----------
    runs : Run, path, or several
        Of `analyze`, and of `intervene` where its edits are wanted as evidence; runs of one checkpoint belong together.
        Several sizes of a family without QK norm decide C7a.
    family : bool
        Whether to count, over model families, on which side of each threshold they lie.
    out : path, optional
        A folder for the ledgers as Markdown, CSV and pictures.

    Returns
    -------
    Claims

    Raises
    ------
    RunError
        Where a folder holds no finished run, or none is of an analysis.
    """
    given = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    opened = [one if isinstance(one, Run) else open_run(one) for one in given]
    every = checkpoints(opened)
    for one in every:
        if one.analysis is None:
            raise RunError(
                f"{str(one.trials[0].path)!r} holds interventions on {one.name}; give a run of `geomprobe analyze` of "
                "that checkpoint (same dtype) too."
            )
    if not every:
        raise RunError("claims needs at least one run folder.")
    grown = tuple(growth(every))
    ledgers = tuple(_with_growth(make_ledger(one), one, grown) for one in every)
    signs = pooled(ledgers) if family else None
    made = Claims(ledgers, grown, signs)
    return made if out is None else Claims(ledgers, grown, signs, _write(made, Path(out)))


def _with_growth(ledger: Ledger, checkpoint: Checkpoint, grown: tuple[Growth, ...]) -> Ledger:
    """The ledger with what the sizes of its family say of C7a."""
    mine = [one for one in grown if one.family == checkpoint.manifest["family"]]
    if not mine or checkpoint.normed:
        return ledger
    rows = ledger.claims.copy()
    rows.loc[rows["claim"] == "C7a", ["claim", "title", "verdict", "sentence"]] = list(told(mine))
    return Ledger(**{**vars(ledger), "claims": rows})


def _write(made: Claims, folder: Path) -> tuple[Path, ...]:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{str(folder)!r} is a file; --out must name a folder.")
    names: dict[str, int] = {}
    files: list[Path] = []
    for ledger in made.ledgers:
        name = slug(ledger.name)
        names[name] = names.get(name, 0) + 1
        name = name if names[name] == 1 else f"{name}-{names[name]}"
        files += write(ledger, folder, name)
        files += save_picture(partial(draw_ledger, ledger), SIZE, folder / name)
    if made.pooled is not None:
        part = folder / "family.md.part"
        part.write_text(family_markdown(made), encoding="utf-8")
        files.append(part.replace(folder / "family.md"))
    return tuple(files)


def family_markdown(made: Claims) -> str:
    """The ledgers side by side, and the signs over families."""
    assert made.pooled is not None
    names = [ledger.name for ledger in made.ledgers]
    lines = [
        "# The claims over several checkpoints",
        "",
        "Verdicts are each checkpoint's own. These checkpoints differ in family, data and size as well as in QK norm: "
        "what differs between them is described here and not explained.",
        "",
        f"| | claim | {' | '.join(names)} |",
        f"|---|---|{'---|' * len(names)}",
    ]
    for row in made.ledgers[0].claims.to_dict("records"):
        verdicts = " | ".join(WORDS[ledger.verdict(row["claim"])] for ledger in made.ledgers)
        lines.append(f"| {row['claim']} | {row['title']} | {verdicts} |")
    lines += [
        "",
        "## Signs over families",
        "",
        "A family counts once, on the side of the threshold on which its checkpoints lie on average in every gauge; "
        "exact two-sided sign test.",
        "",
        "| claim | quantity | checkpoints | families | on the claim's side | p | smallest p |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['claim']} | {row['quantity']} | {row['n_checkpoints']} | {row['n_families']} | {row['n_for']} | "
        f"{_p(row['p'])} | {_p(row['p_smallest'])} |"
        for row in made.pooled.to_dict("records")
    ]
    return "\n".join([*lines, ""])


def _p(value: float) -> str:
    return "–" if value != value else f"{value:.3g}"

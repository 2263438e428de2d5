"""`compare`: checkpoints held against each other, analyzed first where they are not yet."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from geomprobe.comparison.comparison import OVER, Comparison, compare_runs
from geomprobe.errors import RunError, one_of
from geomprobe.pages.side_page import chosen_formats, write_comparison
from geomprobe.progress import Reporter
from geomprobe.run.manifest import NAME
from geomprobe.run.naming import slug
from geomprobe.run.reading import Run, open_run
from geomprobe.run.store import STATE

COMPARISONS: Final = Path("comparisons")
PAIR: Final = ("plain", "qknorm")  # what comes with the package


def compare(
    *subjects: Run | str | Path,
    over: str | None = None,
    formats: str | Sequence[str] = ("html", "md"),
    out: str | Path | None = None,
    quiet: bool = False,
    **analysis: Any,
) -> Comparison:
    """Hold checkpoints against each other: paired differences with intervals, figures on common scales, a page.

    Parameters
    ----------
    *subjects : Run, run folder or model
        Two or more; the first is what the others are held against. Whatever `analyze` takes as a model is analyzed
        first, with the same text and settings; what was analyzed so before is taken up. Default: the packaged pair,
        `plain` and `qknorm`.
    over : {"step", "params"}, optional
        String the runs along their training step or number of parameters, and draw quantities as lines.
    formats : str or sequence of str
        Of html, md, latex and csv; separated by commas.
    out : path, optional
        The folder of what is written. Default: comparisons/<first>.vs.<others>.<hash>.
    quiet : bool
        Show no progress.
    **analysis
        How models are analyzed: text, dataset, window, windows, probes and the other settings of `analyze`. Where some
        subjects are run folders, window, windows and probes are theirs unless they are given.

    Returns
    -------
    Comparison
        With the tables `differences`, `values`, `by_depth`, `by_rank` and `differing`, and `files`.

    Raises
    ------
    GeomprobeError
        With one sentence that says what to do: fewer than two, no common document, a model that cannot be had.
    """
    names = chosen_formats(formats)
    if over is not None:
        one_of("over", over, OVER)
    given: Sequence[Run | str | Path] = subjects or PAIR
    if len(given) < 2:
        raise RunError("compare needs two subjects or more: run folders, or what analyze takes as a model; got 1.")
    folder = None if out is None else Path(out)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise RunError(f"{str(folder)!r} is a file; --out must name a folder.")
    reporter = Reporter(quiet=quiet)
    runs = _analyzed(given, reporter, analysis)
    reporter.say(f"comparing {', '.join(run.name for run in runs)}")
    with reporter.bar("word vectors", 1) as bar:
        comparison = compare_runs(runs, over=over, report=bar.update_of)
    reporter.say("drawing figures and the page")
    comparison.files = tuple(write_comparison(comparison, folder or _folder(comparison), names))
    return comparison


def _analyzed(given: Sequence[Run | str | Path], reporter: Reporter, analysis: dict[str, Any]) -> list[Run]:
    """Every subject as a run: folders are opened first, so that a bad one is told before a model is loaded."""
    opened = [_opened(one) for one in given]
    missing = [one for one, run in zip(given, opened, strict=True) if run is None]
    if not missing:
        return [run for run in opened if run is not None]
    from geomprobe.api import analyze  # torch, which comparing finished runs does without

    settings = {**_settings_of([run for run in opened if run is not None]), **analysis}
    made = []
    for one, run in zip(given, opened, strict=True):
        if run is None:
            reporter.say(f"analyzing {one}")
            run = analyze(str(one), page=False, quiet=reporter.quiet, **settings)
        made.append(run)
    return made


def _opened(one: Run | str | Path) -> Run | None:
    """A finished run, or None for what must be a model."""
    if isinstance(one, Run):
        return one
    path = Path(one)
    if (path / NAME).is_file() or (path / STATE).is_dir():
        return open_run(path)  # which says of an unfinished run that it is one
    return None


def _settings_of(runs: Sequence[Run]) -> dict[str, Any]:
    """What of the runs' settings a model that is analyzed beside them should share."""
    if not runs:
        return {}
    manifest = runs[0].manifest
    settings = {
        "window": manifest["corpus"]["window"],
        "windows": manifest["corpus"]["n_windows"],
        "probes": tuple(manifest["probes"]),
        "language": manifest["corpus"]["language"] or "en",
    }
    words = manifest.get("words")
    return {**settings, **({"context": words["context"]} if words else {})}


def _folder(comparison: Comparison) -> Path:
    first, others = comparison.labels[0], comparison.labels[1:]
    rest = others[0] if len(others) == 1 else f"{len(others)}-others"
    said = "".join([*(str(run.manifest["fingerprint"]) for run in comparison.sides.runs), comparison.over])
    return COMPARISONS / f"{slug(first)}.vs.{slug(rest)}.{hashlib.sha256(said.encode()).hexdigest()[:8]}"

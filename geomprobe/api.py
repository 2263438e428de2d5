"""All that the command line can do, for Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geomprobe.analysis import Analysis, Job, at_rest
from geomprobe.attention.anatomy import positions_of
from geomprobe.corpus.categories import packaged, read_categories
from geomprobe.corpus.contexts import CONTEXT, MAX_TYPES, ContextPlan
from geomprobe.corpus.function_words import function_words
from geomprobe.corpus.pictures import find_images, image_corpus, pixels_of
from geomprobe.corpus.reference import check_reference
from geomprobe.corpus.sources import Source, read_dataset, read_texts, sotu
from geomprobe.corpus.windows import Corpus, WindowPlan, cut_windows
from geomprobe.errors import InvalidParameter, at_least
from geomprobe.observation import (
    choose_probes,
    default_batch_size,
    described,
)
from geomprobe.pages.page import report
from geomprobe.probes.typed import TYPE_PROBES, TypeProbe
from geomprobe.progress import Reporter
from geomprobe.run.manifest import sha256_of
from geomprobe.run.reading import Run, open_run
from geomprobe.subject import Subject, make_subject
from geomprobe.words import WordStudy

__all__ = ["analyze", "report"]

DEFAULT_WINDOW = 512


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
    categories: str | Path | None = None,
    context: int = CONTEXT,
    max_types: int = MAX_TYPES,
    reference: str = "",
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
    page: bool = True,
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
        Which; separated by commas. Default: those of the windows. "all" takes clusters and neighbours too, which look
        at words in contexts of their own: a second pass, of some hundred thousand tokens.
    categories : path, optional
        A file of categories for clusters, a line each: "name: word word …". Default: the packaged nouns.
    context : int
        Tokens of a word's window, the word included.
    max_types : int
        Words of the clusters, and of the neighbours.
    reference : str
        Of meaning, for neighbours: "glove", "wordnet" or a file of word vectors.
    seed : int
        Decides which words and contexts are drawn; set before the pass for what a model draws at random.
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
    page : bool
        Draw figures and the page; without, `report` draws them later.
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
    chosen, of_words = choose_probes(probes if probes is None or isinstance(probes, str) else ",".join(probes))
    word_plan = _word_plan(
        of_words, categories, language, {"context": context, "max_types": max_types, "seed": seed, "bos": bos}
    )
    check_reference(reference)
    function_words(language)  # an unknown language is told before anything is downloaded
    shape: dict[str, Any] = {"windows": windows, "tokens": tokens, "bos": bos, "allow_short": allow_short}
    WindowPlan(window=DEFAULT_WINDOW if window is None else window, **shape)  # so are wrong numbers
    images = None if input is None else find_images(_listed(input))
    if images is not None:
        _check_alone(of_words, text=text, dataset=dataset, window=window, tokens=tokens)
    reader = tokenizer if images is None else processor
    job = Job(Reporter(quiet=quiet))

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
    with at_rest(subject.model), job.step("corpus", f"reading the {'text' if images is None else 'images'}"):
        if images is None:
            source = _source(text, dataset)
            plan = WindowPlan(window=_window(window, subject.model), **shape)
            corpus = cut_windows(source, subject.reader, plan=plan, language=language)
        else:
            corpus = _image_corpus(subject, images[:windows])
    words = None
    if word_plan is not None:
        with job.step("words", "looking for words in context"):
            words = _study(subject, source, _typed(of_words, reference), word_plan)
    settings = {
        "probes": described({**chosen, **(words.probes if words else {})}),
        **({"reference_sha256": sha256_of(Path(reference))} if Path(reference).is_file() else {}),
        "seed": seed,
        "batch_size": batch_size or default_batch_size(subject.model, corpus.window),
    }
    analysis = Analysis(job, subject, corpus, settings, words)
    folder = analysis.folder(out, overwrite=overwrite)
    if folder.finished:
        job.reporter.say(f"{folder.path} holds this very run already; --overwrite makes it anew")
        return analysis.found(folder, drawn=page)
    try:
        with at_rest(subject.model):
            analysis.run(folder, chosen, csv=csv, drawn=page)
    except BaseException:
        folder.abandon()
        raise
    return open_run(folder.path)


def read_corpus(
    subject: Subject,
    *,
    text: str | Path | Sequence[str | Path] | None,
    dataset: str | None,
    language: str,
    window: int | None,
    windows: int | None,
) -> Corpus:
    """The windows that an analysis with these settings reads.

    Raises
    ------
    GeomprobeError
        Where the text cannot be had or is too short, or a setting is outside its domain.
    """
    if text is not None and dataset is not None:
        raise InvalidParameter("text and dataset are two sources; give one of them.")
    plan = WindowPlan(window=_window(window, subject.model), windows=windows)
    return cut_windows(_source(text, dataset), subject.reader, plan=plan, language=language)


def _typed(of_words: tuple[str, ...], reference: str) -> dict[str, TypeProbe]:
    """The probes of words, with their parameters."""
    told = {"neighbours": {"reference": reference}}
    return {name: TYPE_PROBES[name](**told.get(name, {})) for name in of_words}


def _study(subject: Subject, source: Source, probes: dict[str, TypeProbe], plan: ContextPlan) -> WordStudy:
    _bound("context", plan.context, _positions(subject.model))
    return WordStudy.prepare(source, subject.reader, probes, plan)


def _word_plan(
    of_words: tuple[str, ...], categories: str | Path | None, language: str, shape: dict[str, Any]
) -> ContextPlan | None:
    """What is looked for in the text, where a probe wants words; a bad file of categories is told before anything."""
    named: Mapping[str, tuple[str, ...]] = {}
    if categories is not None:
        named = read_categories(categories)
    elif "clusters" in of_words:
        named = packaged(language)
    if not of_words:
        return None
    return ContextPlan(categories=named, contrasts="neighbours" in of_words, language=language, **shape)


def _source(text: str | Path | Sequence[str | Path] | None, dataset: str | None) -> Source:
    if dataset is not None:
        return read_dataset(dataset)
    if text is None:
        return sotu()
    return read_texts(_listed(text))


def _listed(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


def _check_alone(of_words: tuple[str, ...], **others: Any) -> None:
    """Raise where something is given that says nothing about images."""
    if of_words:
        raise InvalidParameter(f"{' and '.join(of_words)} look at words; leave them out where input names images.")
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
    most = _positions(model)
    if asked is None:
        return min(DEFAULT_WINDOW, most) if most else DEFAULT_WINDOW
    _bound("window", asked, most)
    return asked


def _positions(model: Any) -> int | None:
    """As many tokens as the model can read, where it says so."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else None


def _bound(name: str, asked: int, most: int | None) -> None:
    if most is not None and asked > most:
        raise InvalidParameter(f"{name} must be at most {most}, the positions that this model has; got {asked}.")

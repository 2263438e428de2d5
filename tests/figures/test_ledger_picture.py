"""The ledger as a picture: a row a claim, its verdict in a field of its colour, nothing over anything else."""

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from geomprobe.figures.ledger import COLOURS, SIZE, draw_ledger
from geomprobe.figures.saving import save_picture
from geomprobe.figures.style import style
from geomprobe.ledger.endpoint import VERDICTS
from geomprobe.ledger.evidence import Checkpoint
from geomprobe.ledger.ledger import Ledger, make_ledger
from geomprobe.ledger.thresholds import thresholds
from geomprobe.ledger.writing import WORDS
from geomprobe.run.reading import Run
from tests.ledger.made import checkpoint, edits


@pytest.fixture(scope="module", autouse=True)
def fewer_draws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(thresholds()["statistics"], "draws", 400)
        patch.setitem(thresholds()["statistics"], "permutations", 199)
        yield


@pytest.fixture(scope="module")
def ledger(fewer_draws: None) -> Ledger:
    """One in which every verdict comes up."""
    errors = {"commutation_error": 0.3, "shift_error": 0.3, "folding_error": 1e-7}
    lift = {"raw": 0.1, "balanced": 0.0}
    return make_ledger(checkpoint(edits(0.01, 0.09), norm=True, gain_cv=0.2, lift=lift, sink=0.5, errors=errors))


def drawn(ledger: Ledger) -> tuple[Figure, Axes]:
    with style():
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.add_subplot()
        assert draw_ledger(ledger, ax) is ax
        figure.draw_without_rendering()
    return figure, ax


def check_readable(figure: Figure, ax: Axes) -> None:
    """Nothing cut off, and no text over another."""
    renderer = figure.canvas.get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in ax.texts]
    page = figure.bbox.padded(1.0)
    for text, box in boxes:
        assert page.x0 <= box.x0, text
        assert page.y0 <= box.y0, text
        assert box.x1 <= page.x1, text
        assert box.y1 <= page.y1, text
    for (one, box), (other, beside) in itertools.combinations(boxes, 2):
        assert not box.overlaps(beside), (one, other)


def fields(ax: Axes) -> list[FancyBboxPatch]:
    """From the top."""
    found = [patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    return sorted(found, key=lambda patch: -patch.get_bbox().y0)


def test_every_verdict_has_its_word_and_colour() -> None:
    assert set(COLOURS) == set(WORDS) == set(VERDICTS)
    assert len(set(COLOURS.values())) == len(VERDICTS)


def test_a_row_a_claim_with_its_verdict(ledger: Ledger) -> None:
    figure, ax = drawn(ledger)
    check_readable(figure, ax)
    verdicts = ledger.claims["verdict"].tolist()
    assert {"supported", "refuted", "not_identified", "inconclusive", "not_tested"} == set(verdicts)
    assert [patch.get_facecolor() for patch in fields(ax)] == [to_rgba(COLOURS[verdict]) for verdict in verdicts]
    told = [text.get_text() for text in ax.texts]
    for claim in ledger.claims["claim"]:
        assert claim in told
    for verdict in VERDICTS:
        assert told.count(WORDS[verdict]) == verdicts.count(verdict)
    for sentence in ledger.claims["sentence"]:  # its beginning at least
        assert any(" ".join(text.split()).startswith(sentence[:60]) for text in told), sentence
    assert any(text.startswith(f"{ledger.name}: ") for text in told)
    assert any(f"m = {ledger.n_primary} " in text and str(ledger.dated) in text for text in told)


@pytest.mark.parametrize("kind", ["plain", "normed"])
def test_the_ledger_of_a_whole_run_can_be_read(kind: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(kind)
    check_readable(*drawn(make_ledger(Checkpoint(run))))


def test_a_sentence_that_is_too_long_is_cut(ledger: Ledger) -> None:
    rows = ledger.claims.assign(sentence="What was seen is a long story and has $no$ end, " * 20)
    figure, ax = drawn(Ledger(**{**vars(ledger), "claims": rows}))
    check_readable(figure, ax)
    assert sum(text.get_text().endswith("…") for text in ax.texts) == len(rows)


def test_it_is_saved_as_a_slide_the_same_every_time(ledger: Ledger, tmp_path: Path) -> None:
    one, other = (save_picture(partial(draw_ledger, ledger), SIZE, tmp_path / name) for name in ("a", "b"))
    with Image.open(one.png) as image:
        assert abs(image.width / image.height - 16 / 9) < 0.01
    assert one.png.read_bytes() == other.png.read_bytes()
    assert one.svg.read_bytes() == other.svg.read_bytes()
    assert one.png.name == "a.png"

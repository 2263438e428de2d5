"""Figures as files."""

from pathlib import Path

import pytest
from PIL import Image

from geomprobe.errors import InvalidParameter
from geomprobe.figures.catalogue import figures_of
from geomprobe.figures.saving import save_figures
from geomprobe.run.reading import Run


def test_same_run_same_bytes(normed: Run, tmp_path: Path) -> None:
    names = ["key_lengths", "first_mass", "sink_tokens"]
    one, other = (save_figures(normed, tmp_path / folder, names) for folder in ("one", "other"))
    for name in names:
        assert one[name].svg.read_bytes() == other[name].svg.read_bytes()
        assert one[name].png.read_bytes() == other[name].png.read_bytes()
        text = one[name].svg.read_text(encoding="utf-8")
        assert "<dc:date>" not in text
        assert "<dc:creator>" not in text


def test_all_but_what_the_run_has_not(plain: Run, tmp_path: Path) -> None:
    saved = save_figures(plain, tmp_path)
    assert set(saved) == set(figures_of(plain)) - {"norm_stages", "gains"}
    assert {file.stem for file in tmp_path.iterdir()} == set(saved)
    with Image.open(saved["key_lengths"].png) as image:
        assert image.width == 1350  # 9 inches at 150 dpi


def test_unknown_name(plain: Run, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"Unknown figure 'first_mas'\. Did you mean 'first_mass'"):
        save_figures(plain, tmp_path / "figures", ["first_mas"])
    assert not (tmp_path / "figures").exists()


def test_what_a_helper_could_not_draw_comes_up(plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: object) -> None:
        raise ValueError("no ink")

    monkeypatch.setattr("geomprobe.figures.saving.save_picture", fail)
    with pytest.raises(ValueError, match="no ink"):
        save_figures(plain, tmp_path)

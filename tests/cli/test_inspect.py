"""`geomprobe inspect` in a process of its own."""

import json


def test_a_table(call, served_gemma):
    done = call("inspect", "--model", served_gemma)
    assert done.returncode == 0, done.stderr
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("0–"))
    assert row.split()[-4:] == ["none", "none", "none", "all"]
    assert "half" in row
    assert "parity: attention rebuilt from what is captured agrees with the model's own" in done.stdout
    assert "an analysis of 16,384 tokens will take about" in done.stdout


def test_json(call, served_gemma):
    done = call("inspect", "--model", served_gemma, "--json")
    found = json.loads(done.stdout)
    assert found["trusted"] is True
    layer = found["layers"][0]
    assert layer["verdict"] == {"q": "none", "k": "none", "v": "none"}
    turning = layer["rotary"].pop("channels")
    assert layer["rotary"] == {"kind": "half", "share": 1.0}
    assert turning == list(range(layer["head_dim"]))
    assert set(layer["stages"]["k"]) == {"projected", "content", "scored"}


def test_an_unknown_model_is_one_sentence(call, tmp_path):
    done = call("inspect", "--model", tmp_path / "nowhere")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("geomprobe: ")
    assert done.stdout == ""

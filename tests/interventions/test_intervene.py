"""intervene from end to end on a tiny model: the run folder, the table, the command line, and what is refused."""

import dataclasses
import json
import math
import re
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

import geomprobe
from geomprobe import edit_tables, experiment
from geomprobe.cli import app
from geomprobe.cli.intervene import parse_layers
from geomprobe.errors import InvalidParameter, ParityError, RunError, UnsupportedModel
from geomprobe.labels import FROM_ROW
from geomprobe.stats.gauge import Gauge
from geomprobe.testing import tiny_model
from tests.api.shared import SENTENCES

SHAPE = {"window": 48, "windows": 5, "batch_size": 2, "quiet": True}
TESTED = 3  # of five windows
PREDICTED = SHAPE["window"] - 1 - FROM_ROW
EDITS = ["neutral_norm", "temperature:0.7", "swap_angle:neutral_norm", "scale_class:function:0.5"]


@pytest.fixture(scope="module")
def tokenizer():
    """Byte-level BPE that puts <bos> in front."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<bos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder of two documents of different lengths."""
    folder = tmp_path_factory.mktemp("texts") / "tales"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, n in (("first", 12), ("second", 24)):
        drawn = rng.choice(len(SENTENCES), size=n)
        (folder / f"{name}.txt").write_text("\n\n".join(SENTENCES[i] for i in drawn), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model(tokenizer):
    return tiny_model("gemma3", vocab_size=len(tokenizer))


@pytest.fixture(scope="module")
def saved(model, tokenizer, tmp_path_factory):
    """The same as a folder."""
    folder = tmp_path_factory.mktemp("saved") / "small"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def intervene(model, tokenizer, text, tmp_path):
    def run(edits=EDITS, **options):
        given = {"tokenizer": tokenizer, "text": text, "out": tmp_path / "run", **SHAPE, **options}
        return geomprobe.intervene(given.pop("model", model), edits, **given)

    return run


@pytest.fixture(scope="module")
def done(model, tokenizer, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("done") / "run"
    return geomprobe.intervene(model, EDITS, one_by_one=True, tokenizer=tokenizer, text=text, out=out, **SHAPE)


def test_it_is_public():
    assert "intervene" in geomprobe.__all__
    assert geomprobe.intervene is experiment.intervene


# ------------------------------------------------------------------ the run
def test_the_folder_holds_a_manifest_and_two_tables(done):
    assert set(done.tables) == {"interventions", "parity"}
    manifest = json.loads((done.path / "run.json").read_text(encoding="utf-8"))
    assert manifest["probes"] == {
        "interventions": {
            "edits": [
                "neutral_norm",
                "temperature(0.7)",
                "swap_angle(neutral_norm)",
                "scale_class(function, 0.5)",
            ],
            "one_by_one": True,
        }
    }
    assert manifest["seed"] == 0
    assert manifest["batch_size"] == 2
    assert {"load", "corpus", "parity", "calibration", "trial", "tables"} <= set(manifest["timings"])
    assert all((done.path / file).exists() for file in manifest["files"])
    assert geomprobe.open_run(done.path).manifest == done.manifest


def test_rows_of_the_table(done):
    table = done.tables["interventions"]
    whole = table[table["document"] == -1]
    assert len(whole) == 1 + len(EDITS) * (1 + 2)  # the sham, and each in all layers and in each of two
    assert (whole["n_tokens"] == TESTED * PREDICTED).all()
    assert np.isfinite(whole[["delta_ce", "kl", "displacement"]].to_numpy()).all()
    by = whole.set_index(["setting", "layers"])
    assert abs(by.loc[("sham", "all"), "delta_ce"]) < 1e-4
    # In the second layer of an edit of all, each finds other keys than the other did.
    found = [by.loc[(name, "0"), "displacement"] for name in ("swap_angle(neutral_norm)", "neutral_norm")]
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_it_has_a_page(done, capsys, monkeypatch):
    text = (done.path / "report.html").read_text(encoding="utf-8")
    assert "What edits cost" in text
    assert "edit_layers" in text
    assert (done.path / "figures" / "edit_layers.png").exists()
    assert {file.name for file in done.path.iterdir()} == {"figures", "report.html", "report.md", "run.json", "tables"}
    (done.path / "report.html").unlink()
    monkeypatch.setattr(sys, "argv", ["geomprobe", "report", str(done.path), "--quiet"])
    assert app.run() == 0
    assert capsys.readouterr().out == f"{done.path / 'report.html'}\n"
    assert (done.path / "report.html").read_text(encoding="utf-8") == text


def test_edits_in_the_balanced_gauge(intervene):
    edits = ["permute_norm", "permute_norm@balanced", "swap_angle:permute_norm@balanced"]
    run = intervene(edits)
    table = run.tables["interventions"]
    whole = table[table["document"] == -1].set_index("setting")
    assert list(whole.index) == ["sham", "sham@balanced", edits[0], edits[1], "swap_angle(permute_norm)@balanced"]
    assert (whole["gauge"] == ["raw", "balanced", "raw", "balanced", "balanced"]).all()
    assert abs(whole.loc["sham@balanced", "delta_ce"]) < 1e-4
    assert whole.loc["permute_norm", "displacement"] != whole.loc["permute_norm@balanced", "displacement"]
    assert "permute_norm@balanced" in (run.path / "report.md").read_text(encoding="utf-8")


def test_a_balanced_sham_that_costs_something_is_refused(intervene, monkeypatch, tmp_path):
    """As through what is no gauge: queries that are taken there and come back longer."""
    own = Gauge.undo
    monkeypatch.setattr(Gauge, "undo", lambda gauge, query, key: own(gauge, query * 1.5, key))
    said = r"^Rewriting keys with themselves in 2 layers \(sham@balanced\) changes the loss by .* a token"
    with pytest.raises(ParityError, match=said):
        intervene(["permute_norm@balanced"])
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_left_alone(intervene, tokenizer):
    model = tiny_model("gemma3", vocab_size=len(tokenizer)).train()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    intervene(["neutral_norm"], model=model)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_layers_may_be_chosen_and_one_edit_be_a_word(intervene):
    table = intervene("neutral_norm", layers=[1, 1]).tables["interventions"]
    assert set(table["layers"]) == {"1"}
    assert set(table["setting"]) == {"sham", "neutral_norm"}


def test_the_same_settings_are_found_again(intervene, monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    first = intervene(out=None)
    assert re.fullmatch(r"runs/Gemma3ForCausalLM\.tales\.[0-9a-f]{8}", first.path.as_posix())

    def fail(*_args, **_options):
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "_try", fail)
        assert intervene(out=None, quiet=False).path == first.path
        assert "holds this very run already; --overwrite makes it anew" in capfd.readouterr().err
        with pytest.raises(AssertionError, match="computed again"):
            intervene(out=None, overwrite=True)


@pytest.mark.parametrize(
    "change",
    [
        {"edits": ["neutral_norm"]},
        {"edits": ["temperature:1.0000001", *EDITS[1:]]},
        {"seed": 1},
        {"layers": [0]},
        {"one_by_one": True},
        {"windows": 4},
        {"batch_size": 3},
    ],
    ids=str,
)
def test_other_settings_are_another_run(intervene, monkeypatch, tmp_path, change):
    monkeypatch.chdir(tmp_path)
    nothing = pd.DataFrame({"setting": ["sham"]})

    def skip(analysis, *_args, **_options):
        analysis.prove()
        return nothing

    monkeypatch.setattr(experiment, "_try", skip)
    monkeypatch.setattr(experiment, "write_page", lambda _run: None)  # of such a table there is none
    edits = ["temperature:1.0000002", *EDITS[1:]]
    assert intervene(edits, out=None).path != intervene(**{"edits": edits, "out": None, **change}).path


def test_a_named_folder_that_exists_is_refused(intervene, tmp_path):
    intervene(["sham"])
    with pytest.raises(RunError, match=r"run' holds a finished run; give another --out, or --overwrite to replace it"):
        intervene(["sham"])
    assert intervene(["sham"], overwrite=True).path == tmp_path / "run"


# ------------------------------------------------------------------ two halves
@pytest.fixture
def halves(intervene, monkeypatch):
    """A run in which the words of some windows are others: the table, what was known, and which windows were read."""
    read = experiment.read_corpus

    def run(windows, edits):
        found = {"known": [], "calibrated": [], "tried": []}

        def other(*args, **options):
            corpus = read(*args, **options)
            ids = corpus.ids.copy()
            ids[windows, 1:] = (ids[windows, 1:] - 3 + 17) % 300 + 3
            found["corpus"] = dataclasses.replace(corpus, ids=ids)
            return found["corpus"]

        class Trial(experiment.Trial):
            def __init__(self, *args):
                super().__init__(*args)
                found["known"].append(self.known)

            def _forward(self, now):
                found["tried"] += now.batch.ids.tolist()
                return super()._forward(now)

        own = experiment.call

        def calling(model, inputs):
            found["calibrated"] += inputs["input_ids"].tolist()
            return own(model, inputs)

        with monkeypatch.context() as patch:
            patch.setattr(experiment, "read_corpus", other)
            patch.setattr(experiment, "Trial", Trial)
            patch.setattr(experiment, "call", calling)
            found["table"] = intervene(edits, overwrite=True).tables["interventions"]
        return SimpleNamespace(**found)

    return run


def test_each_half_leaves_no_trace_in_the_other(halves):
    free = ["temperature:0.7", "scale_class:function:0.5", "permute_norm"]  # edits that need no usual length
    plain, first, second = (halves(windows, [*free, "neutral_norm"]) for windows in ([], [0, 1], [2, 3, 4]))
    assert plain.calibrated == plain.corpus.ids[:2].tolist()
    assert {tuple(row) for row in plain.tried} == {tuple(row) for row in plain.corpus.ids[2:].tolist()}

    def rows(found, *, of):
        table = found.table
        return table[table["edit"].isin([parsed.split(":")[0] for parsed in of])].reset_index(drop=True)

    pd.testing.assert_frame_equal(rows(first, of=free), rows(plain, of=free))
    assert not rows(first, of=["neutral_norm"]).equals(rows(plain, of=["neutral_norm"]))
    for name, known in plain.known[0].items():
        assert torch.equal(second.known[0][name].key, known.key)
        assert torch.equal(second.known[0][name].query, known.query)
        assert torch.equal(second.known[0][name].by_class.nan_to_num(-9), known.by_class.nan_to_num(-9))
        assert not torch.equal(first.known[0][name].key, known.key)
    assert not rows(second, of=free).equals(rows(plain, of=free))


def test_nor_does_it_in_the_balanced_gauge(halves):
    """What gauge is balanced, and what lengths are usual in it, is read off the first half, in two passes."""
    edits = ["neutral_norm@balanced", "swap_angle:permute_norm@balanced"]
    plain, first, second = (halves(windows, edits) for windows in ([], [0, 1], [2, 3, 4]))
    assert plain.calibrated == 2 * plain.corpus.ids[:2].tolist()
    for name, known in plain.known[0].items():
        balanced = known.balanced
        for found, same in ((second, True), (first, False)):
            other = found.known[0][name].balanced
            for part in ("key", "query"):
                assert torch.equal(getattr(other, part), getattr(balanced, part)) is same
                assert torch.equal(getattr(other.gauge, part), getattr(balanced.gauge, part)) is same
    assert not first.table.equals(plain.table)


def test_documents_are_those_of_the_second_half(halves):
    found = halves([], ["sham"])
    each = found.table[found.table["document"] >= 0].set_index("document")["n_tokens"]
    names, counts = np.unique(found.corpus.document[2:], return_counts=True)
    assert each.to_dict() == dict(zip(names.tolist(), (counts * PREDICTED).tolist(), strict=True))


# ------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"edits": ["neutral_nrom"]}, r"neutral_nrom.*neutral_norm"),
        ({"edits": ["temperature:hot"]}, r"^The strength of temperature must be a number; got 'hot'\.$"),
        ({"edits": []}, r"^edits must name at least one of sham, neutral_norm, .*scalar_gain\.$"),
        ({"layers": [0, 2]}, r"^layers must be among the attention layers 0 to 1; got 2\.$"),
        ({"layers": [-1]}, r"^layers must be among the attention layers 0 to 1; got -1\.$"),
        ({"layers": []}, r"^layers must name at least one attention layer\.$"),
        ({"windows": 1}, r"^windows must be at least 2: one half tells what lengths are usual; got 1\.$"),
        ({"batch_size": 0}, r"^batch_size must be at least 1; got 0\.$"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_one_sentence_and_leaves_nothing(intervene, tmp_path, options, said):
    with pytest.raises(InvalidParameter, match=said) as caught:
        intervene(**options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_windows_too_short_to_predict_anything_are_refused(intervene, tmp_path):
    """The loss is counted from position 16 on."""
    with pytest.raises(InvalidParameter, match=r"^window must be at least 18"):
        intervene(["sham"], window=FROM_ROW + 1)
    assert list(tmp_path.iterdir()) == []


def test_an_edit_that_the_model_cannot_have_leaves_nothing(intervene, tokenizer, tmp_path):
    llama = tiny_model("llama", vocab_size=len(tokenizer))
    with pytest.raises(InvalidParameter, match=r"^scalar_gain needs a key norm with a gain before the rotation"):
        intervene(["scalar_gain"], model=llama)
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_leaves_nothing(intervene, tokenizer, tmp_path):
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    with pytest.raises(UnsupportedModel, match=r"^Interventions are judged by the loss, and this model predicts no"):
        intervene(model=BertForMaskedLM(config).eval())
    assert list(tmp_path.iterdir()) == []


def test_a_sham_that_costs_something_is_refused(intervene, monkeypatch, tmp_path):
    monkeypatch.setattr(experiment, "SHAM_LIMIT", -1.0)
    with pytest.raises(
        ParityError, match=r"^Rewriting keys with themselves in 2 layers \(sham\) changes the loss by .* a token"
    ):
        intervene(["sham"])
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ the command line
@pytest.fixture
def command(saved, text, tmp_path, monkeypatch, capsys):
    def run(*words):
        shape = ("--window", 48, "--windows", 5, "--batch-size", 2, "--out", tmp_path / "run")
        given = ("geomprobe", "intervene", "-m", saved, "--text", text, *shape, *words)
        monkeypatch.setattr(sys, "argv", [str(word) for word in given])
        capsys.readouterr()
        code = app.run()
        return code, capsys.readouterr()

    return run


def test_the_command_prints_the_folder_and_on_stderr_the_table(command, tmp_path):
    code, shown = command("--edit", "neutral_norm", "--edit", "temperature:0.7", "--layers", "0-1", "--one-by-one")
    assert code == 0
    assert shown.out.splitlines()[-1] == str(tmp_path / "run")
    assert shown.out.count("\n") == 1
    for words in ("what edits cost", "loss, nats a token", "sham", "neutral_norm", "temperature(0.7)"):
        assert words in shown.err
    found = geomprobe.open_run(tmp_path / "run").tables["interventions"]
    assert set(found["layers"]) == {"all", "0", "1"}


def test_quiet_shows_no_table(command, tmp_path):
    code, shown = command("--edit", "neutral_norm", "--quiet")
    assert (code, shown.out, shown.err) == (0, f"{tmp_path / 'run'}\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--edit", "neutral_nrom"), "neutral_norm"),
        (("--edit", "temperature:hot"), "The strength of temperature must be a number; got 'hot'."),
        (("--edit", "sham", "--layers", "a"), "layers must be numbers and ranges, as in 0,3-5; got 'a'."),
        (("--edit", "sham", "--layers", "7"), "layers must be among the attention layers 0 to 1; got 7."),
        ((), "Missing option '--edit'"),
    ],
    ids=str,
)
def test_a_mistake_ends_with_2(command, tmp_path, words, said):
    code, shown = command(*words, "--quiet")
    assert (code, shown.out) == (2, "")
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "due"),
    [("0", [0]), ("0,3-5", [0, 3, 4, 5]), (" 1 , 2", [1, 2]), ("4-4", [4]), ("10-12,0", [10, 11, 12, 0])],
)
def test_layers_are_read(text, due):
    assert parse_layers(text) == due


@pytest.mark.parametrize("text", ["", "a", "1,", "-1", "1-", "1-b", "1-2-3", "1.5", "5-3"])
def test_what_is_no_list_of_layers_is_refused(text):
    said = rf"^layers must be numbers and ranges, as in 0,3-5; got '{re.escape(text)}'\.$"
    with pytest.raises(InvalidParameter, match=said):
        parse_layers(text)


# ------------------------------------------------------------------ intervals
def written(documents, *, setting="neutral_norm", layers="all", seed=0):
    """Rows of the table with random costs; more tokens where the document's number is high."""
    rng = np.random.default_rng(seed)
    each = [
        {"document": at, "n_tokens": 100 * (at + 1), "delta_ce": rng.normal(0.2, 0.1), "kl": 0.1}
        for at in range(documents)
    ]
    total = sum(row["n_tokens"] for row in each)
    mean = sum(row["n_tokens"] * row["delta_ce"] for row in each) / total
    whole = {"document": -1, "n_tokens": total, "delta_ce": mean, "kl": 0.1, "displacement": 0.3}
    return [{"setting": setting, "layers": layers, **row} for row in (whole, *each)]


def costs_of(*rows):
    return edit_tables.edit_costs(
        SimpleNamespace(tables={"interventions": pd.DataFrame([row for own in rows for row in own])})
    )


def test_intervals_are_of_documents_drawn_again():
    found = costs_of(written(8), written(8, layers="3", seed=1))
    assert list(found["layers"]) == ["all", "3"]
    assert found["n_documents"].tolist() == [8, 8]
    for seed, row in enumerate(found.to_dict("records")):
        own = written(8, seed=seed)
        assert row["delta_ce"] == pytest.approx(own[0]["delta_ce"])
        rng, means = np.random.default_rng(99), []
        for _ in range(4000):
            chosen = [own[1 + at] for at in rng.integers(8, size=8)]
            tokens = sum(part["n_tokens"] for part in chosen)
            means.append(sum(part["n_tokens"] * part["delta_ce"] for part in chosen) / tokens)
        low, high = np.quantile(means, (0.025, 0.975))
        wide = high - low
        assert row["low"] == pytest.approx(low, abs=0.1 * wide)
        assert row["high"] == pytest.approx(high, abs=0.1 * wide)
    pd.testing.assert_frame_equal(costs_of(written(8)), found[:1].reset_index(drop=True))


def test_cost_over_how_far_keys_were_moved():
    moved, still = written(5), written(5, setting="sham")
    still[0]["displacement"] = 0.0
    found = costs_of(moved, still).set_index("setting")["per_displacement"]
    assert found["neutral_norm"] == pytest.approx(moved[0]["delta_ce"] / 0.3)
    assert math.isnan(found["sham"])


@pytest.mark.parametrize("documents", [1, 4])
def test_few_documents_have_no_interval(documents):
    row = costs_of(written(documents)).to_dict("records")[0]
    assert math.isnan(row["low"])
    assert math.isnan(row["high"])
    assert row["n_documents"] == documents


def test_five_documents_have_one():
    row = costs_of(written(5)).to_dict("records")[0]
    assert row["low"] < row["delta_ce"] < row["high"]


def test_costs_of_a_run(done):
    found = edit_tables.edit_costs(done)
    assert len(found) == 1 + 3 * len(EDITS)
    assert found["low"].isna().all()  # two documents
    assert (found["document"] == -1).all()
    assert found["setting"].iloc[0] == "sham"

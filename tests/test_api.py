"""analyze on a model that is already loaded: what the run folder holds, and what is left when something goes wrong."""

import importlib
import json
import pkgutil
import re
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import geomprobe
from geomprobe import api, observation
from geomprobe.attention.batch import Visibilities
from geomprobe.errors import CorpusError, InvalidParameter, ParityError, RunError, UnsupportedModel
from geomprobe.labels import CLASS_ROWS, GAUGES, STAGES, TOKEN_CLASSES, VECTORS
from geomprobe.progress import Bar
from geomprobe.run.manifest import read_manifest, sha256_of
from geomprobe.testing import tiny_model

SCHEMA_PAGE = Path(__file__).parents[1] / "docs" / "schema.md"
SENTENCES = (
    "The old house stood at the end of the lane, and the wind went through it as it pleased.",
    "She said that in the winter of that year no ship had come into the harbour for 12 weeks.",
    "When the bell rang they were all in the garden; nobody heard it, and the door stayed shut.",
    "“It is not the letter,” he answered, “but what was written on the back of it.”",
)
SHAPE = {"window": 48, "windows": 5, "batch_size": 2, "quiet": True}


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
def model_of(tokenizer):
    def make(family="llama", **changes):
        return tiny_model(family, vocab_size=len(tokenizer), **changes)

    return make


@pytest.fixture(scope="module")
def whole(model_of, tokenizer, text, tmp_path_factory):
    """A run with its page, of a model with QK norm and sliding windows."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return geomprobe.analyze(model_of("gemma3"), tokenizer=tokenizer, text=text, out=out, csv=True, **SHAPE)


@pytest.fixture
def analyze(model_of, tokenizer, text, tmp_path, monkeypatch):
    """Analyze a tiny Llama without drawing a page; figures take longer than all the rest."""
    monkeypatch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")

    def run(model=None, **options):
        given = {"tokenizer": tokenizer, "text": text, "out": tmp_path / "run", **SHAPE, **options}
        return geomprobe.analyze(model_of() if model is None else model, **given)

    return run


def assert_same_tables(run, expected, **tolerance):
    assert list(run.tables) == list(expected.tables)
    for name, table in expected.tables.items():
        pd.testing.assert_frame_equal(run.tables[name], table, obj=f"table {name}", **tolerance)


# ------------------------------------------------------------------ what a run folder holds
def schema_columns():
    """The tables of docs/schema.md: name → columns."""
    page = SCHEMA_PAGE.read_text(encoding="utf-8")
    section = page[page.index("## Tables") :]
    rows = re.findall(r"^\| (\w+) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    tables = {}
    for name, *cells in rows:
        if name == "table":
            continue
        words = [word.strip() for cell in cells for word in re.sub(r"\([^()]*\)", "", cell).split(",")]
        tables[name] = [column for word in words for column in expand(word, tables)]
    return tables


def expand(word, tables):
    if word.startswith("as "):
        key = word.removeprefix("as ")
        return tables[key][: tables[key].index("n")]  # its key columns
    if word.startswith("lift_<class>"):
        return [f"lift_{name}" for name in CLASS_ROWS]
    return [word]


def test_the_schema_is_read_as_it_is_meant():
    tables = schema_columns()
    assert len(tables) == 11
    assert tables["norm_histograms"][:3] == ["layer", "vector", "head"]
    assert "lift_function" in tables["document_stats"]
    assert all(re.fullmatch(r"\w+", column) for columns in tables.values() for column in columns)


def test_every_table_of_the_schema_is_there(whole):
    expected = schema_columns()
    assert set(whole.tables) == set(expected)
    for name, columns in expected.items():
        table = whole.tables[name]
        assert set(columns) <= set(table.columns), name
        assert len(table) > 0 or name == "sink_tokens", name
        assert not table.duplicated([c for c in columns if c in KEYS]).any(), name
        assert (whole.path / "tables" / f"{name}.csv").exists()


KEYS = ("layer", "vector", "head", "q_head", "stage", "token_class", "gauge", "capped", "epsilon", "token_id")
KEYS += ("document", "type", "edge_low")


def test_only_known_words_stand_in_the_tables(whole):
    known = {"token_class": CLASS_ROWS, "stage": STAGES, "vector": VECTORS, "gauge": GAUGES}
    known |= {"axis": ("head", "full"), "order": ("before_rope", "after_rope", "no_rope", "unknown")}
    known |= {"capped": ("before", "after"), "layer": (-1, 0, 1), "q_head": (0, 1, 2, 3), "document": (0, 1)}
    found = set()
    for name, table in whole.tables.items():
        for column, values in known.items():
            if column in table:
                strange = set(table[column]) - set(values)
                assert not strange, f"{name}.{column} holds {strange}"
                found.add(column)
    assert found == set(known)
    assert set(whole.tables["type_stats"]["token_class"]) <= set(TOKEN_CLASSES) - {"first"}
    assert set(whole.tables["norms"]["head"]) == {0, 1, 2, 3}
    keys = whole.tables["norms"].query("vector == 'k'")
    assert set(keys["head"]) == {0, 1}


def test_counts_are_those_of_the_text(whole):
    corpus = whole.manifest["corpus"]
    assert (corpus["n_windows"], corpus["window"], corpus["n_tokens"]) == (5, 48, 240)
    norms = whole.tables["norms"].set_index(["layer", "vector", "head", "stage", "token_class"])["n"]
    assert norms[0, "k", 0, "scored", "first"] == 5
    assert norms[1, "q", 3, "content", "all"] == 5 * 47
    assert set(whole.tables["sinks"]["n_rows"]) == {240}
    by_document = whole.tables["document_stats"].query("layer == 0")["n_tokens"]
    assert by_document.sum() == 240
    counted = whole.tables["norm_histograms"].groupby(norms.index.names)["count"].sum()
    assert counted.sort_index().equals(norms[norms > 0].sort_index().rename("count"))


def test_the_manifest_says_everything(whole):
    manifest = whole.manifest
    page = SCHEMA_PAGE.read_text(encoding="utf-8")
    for entry in ("model", "corpus", "parity"):
        row = re.search(rf"^\| {entry} \| (.+) \|$", page, re.MULTILINE).group(1)
        outer = re.sub(r"\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\]", "", row)
        outer = outer.split("anatomy:")[0] + ("anatomy" if "anatomy:" in outer else "")
        named = {re.split(r"[: ]", word.strip())[0] for word in outer.split(",")}
        assert named <= set(manifest[entry]), entry
    top = {"schema", "geomprobe", "command", "created", "seed", "versions", "timings", "files", "probes"}
    assert top <= set(manifest)
    layer = {
        "layer",
        "module",
        "q_heads",
        "kv_heads",
        "head_dim",
        "window",
        "scale",
        "softcap",
        "learned_sinks",
        "causal",
    }
    assert all(set(entry) == layer | {"stages", "q_norm", "k_norm"} for entry in manifest["model"]["anatomy"])
    assert [entry["window"] for entry in manifest["model"]["anatomy"]] == [40, None]
    assert manifest["model"]["source"] == "object"
    assert manifest["model"]["dtype"] == "float32"
    assert manifest["corpus"]["name"] == "tales"
    assert manifest["corpus"]["documents"] == ["first", "second"]
    assert manifest["corpus"]["bos"] is True
    assert manifest["parity"]["ok"] is True
    assert manifest["parity"]["max_abs_output"] == 0
    assert list(manifest["probes"]) == ["norms", "gains", "logits", "sinks", "class_attention", "loss"]
    assert {"load", "corpus", "parity", "pass", "tables"} <= set(manifest["timings"])
    assert "NaN" not in (whole.path / "run.json").read_text(encoding="utf-8")


def test_files_are_named_by_their_sha256(whole):
    files = whole.manifest["files"]
    assert set(files) == {f"tables/{name}.parquet" for name in whole.tables}
    assert all(sha256_of(whole.path / name) == sha256 for name, sha256 in files.items())


def test_the_page_is_there_and_the_state_is_gone(whole):
    assert "<html" in (whole.path / "report.html").read_text(encoding="utf-8")
    assert (whole.path / "report.md").stat().st_size > 0
    assert list((whole.path / "figures").glob("*.png"))
    assert not (whole.path / "state").exists()


def test_a_report_can_be_drawn_anew(whole):
    before = (whole.path / "report.html").read_text(encoding="utf-8")
    (whole.path / "report.html").unlink()
    assert geomprobe.report(whole.path, quiet=True) == whole.path / "report.html"
    assert (whole.path / "report.html").read_text(encoding="utf-8") == before


def test_parity_stands_in_its_table(whole):
    table = whole.tables["parity"]
    assert table["layer"].tolist() == [-1, 0, 1]
    assert table["ok"].all()


# ------------------------------------------------------------------ the package's names
def test_public_names_are_no_submodules(whole):
    """A submodule that is imported becomes an attribute of the package and would hide a function of its name."""
    assert whole is not None  # an analyze has run
    with torch.no_grad(), geomprobe.capture(tiny_model("llama")):
        pass
    submodules = {module.name for module in pkgutil.iter_modules(geomprobe.__path__)}
    for name in sorted(submodules - {"__main__"}):
        importlib.import_module(f"geomprobe.{name}")
    for name in geomprobe.__all__:
        assert name not in submodules
        assert not isinstance(getattr(geomprobe, name), types.ModuleType)
        if name != "__version__":
            home = importlib.import_module(geomprobe._HOMES[name])
            assert getattr(geomprobe, name) is getattr(home, name)
            assert callable(getattr(geomprobe, name))


def test_capture_works_after_an_analyze(whole):
    assert whole.manifest["parity"]["ok"]
    model = tiny_model("llama")
    with torch.no_grad(), geomprobe.capture(model) as seen:
        model(torch.arange(3, 20)[None])
    assert [record.layer for record in seen] == [0, 1]


# ------------------------------------------------------------------ one pass, however it is cut
BIN = 2 ** (1 / 32) - 1  # a length that rounding moves over an edge moves a quantile by a bin


def test_batch_size_changes_nothing(analyze, tmp_path):
    one, three = (analyze(out=tmp_path / str(size), batch_size=size) for size in (1, 3))
    assert (one.manifest["batch_size"], three.manifest["batch_size"]) == (1, 3)
    assert list(one.tables) == list(three.tables)
    for name, table in one.tables.items():
        other = three.tables[name]
        if name == "norm_histograms":
            keys = ["layer", "vector", "head", "stage", "token_class"]
            pd.testing.assert_series_equal(table.groupby(keys)["count"].sum(), other.groupby(keys)["count"].sum())
            continue
        binned = [column for column in table if re.fullmatch(r"p\d+", column)]
        pd.testing.assert_frame_equal(table[binned], other[binned], rtol=1.1 * BIN, obj=f"table {name}")
        rest = table.columns.difference(binned)
        pd.testing.assert_frame_equal(table[rest], other[rest], rtol=1e-4, atol=1e-5, obj=f"table {name}")


def test_nothing_is_kept_from_batch_to_batch(analyze, model_of, monkeypatch):
    """Masks belong to one forward pass: what is remembered of them does not grow with the text."""
    sizes = []
    forget = Visibilities.forget

    def counted(self):
        sizes.append(len(self._kept))
        forget(self)

    monkeypatch.setattr(Visibilities, "forget", counted)
    analyze(model_of("gemma3"), batch_size=1)
    assert len(sizes) == SHAPE["windows"]
    assert len(set(sizes[1:])) == 1


def stop_at(at, error):
    """What stands in for the progress bar and raises when the pass has come so far."""

    def update(_bar, done, _tokens):
        if done >= at:
            raise error

    return update


@pytest.fixture
def stop(monkeypatch):
    def at(done, error=KeyboardInterrupt):
        monkeypatch.setattr(Bar, "update", stop_at(done, error))
        monkeypatch.setattr(observation, "SAVE_EVERY", -1.0)  # save after every batch

    def go_on():
        monkeypatch.undo()
        monkeypatch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")

    return types.SimpleNamespace(at=at, go_on=go_on)


def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(analyze, stop, tmp_path, capfd):
    expected = analyze(out=tmp_path / "in one go")
    stop.at(4)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        analyze()
    folder = tmp_path / "run"
    assert not (folder / "run.json").exists()
    assert json.loads((folder / "state" / "progress.json").read_text(encoding="utf-8"))["done"] == 2
    with pytest.raises(RunError, match="is not a finished run"):
        geomprobe.open_run(folder)

    stop.go_on()
    capfd.readouterr()
    run = analyze(quiet=False)
    assert "going on from window 2" in capfd.readouterr().err
    assert_same_tables(run, expected, check_exact=True)
    assert not (folder / "state").exists()
    assert run.manifest["fingerprint"] == expected.manifest["fingerprint"]
    assert run.manifest["files"] == expected.manifest["files"]


def test_a_run_may_be_stopped_again_and_again(analyze, stop, tmp_path):
    expected = analyze(out=tmp_path / "in one go", batch_size=1)
    for at in (2, 3, 5):
        stop.at(at)
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            analyze(batch_size=1)
    assert len(list((tmp_path / "run" / "state").glob("state-*.safetensors"))) == 1
    stop.go_on()
    assert_same_tables(analyze(batch_size=1), expected, check_exact=True)


def test_other_settings_do_not_go_on_from_it(analyze, stop):
    stop.at(4)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        analyze()
    stop.go_on()
    with pytest.raises(RunError, match="holds an unfinished run with other settings"):
        analyze(windows=4)
    assert analyze(windows=4, overwrite=True).manifest["corpus"]["n_windows"] == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_without_a_saved_state_nothing_is_left(analyze, monkeypatch, tmp_path, error):
    monkeypatch.setattr(Bar, "update", stop_at(2, error("tripped")))
    with pytest.raises(error, match="tripped"):
        analyze()
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_comes_last(analyze, monkeypatch, tmp_path):
    seen = []

    def fail(folder, manifest):
        seen.append(sorted(file.name for file in folder.rglob("*") if file.is_file()))
        assert set(manifest["files"]) == {f"tables/{file.name}" for file in (folder / "tables").iterdir()}
        raise OSError("the disk is full")

    monkeypatch.setattr("geomprobe.run.store.write_manifest", fail)
    with pytest.raises(OSError, match="the disk is full"):
        analyze()
    assert "norms.parquet" in seen[0]
    assert "run.json" not in seen[0]
    assert not (tmp_path / "run").exists()


def test_a_page_that_fails_costs_the_page_only(analyze, monkeypatch, tmp_path):
    def fail(_run):
        raise ZeroDivisionError("tripped")

    monkeypatch.setattr("geomprobe.pages.page.write_page", fail)
    with pytest.raises(ZeroDivisionError, match="tripped"):
        analyze()
    assert read_manifest(tmp_path / "run")["parity"]["ok"]
    assert "norms" in geomprobe.open_run(tmp_path / "run").tables


def test_a_capture_that_is_off_stops_the_run(analyze, monkeypatch, tmp_path):
    from geomprobe.attention import seam
    from geomprobe.attention.call import read_call

    def lying(*given):
        call = read_call(*given)
        return type(call)(**{**vars(call), "scale": call.scale * 1.01})

    monkeypatch.setattr(seam, "read_call", lying)
    with pytest.raises(ParityError, match="Parity failed at layer 0"):
        analyze()
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ where the run goes
def test_a_finished_run_with_its_own_name_is_found_again(analyze, monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    first = analyze(out=None)
    assert re.fullmatch(r"runs/LlamaForCausalLM\.tales\.[0-9a-f]{8}", first.path.as_posix())
    assert first.manifest["fingerprint"].startswith(first.path.name[-8:])

    def fail(*_args, **_options):
        raise AssertionError("computed again")

    monkeypatch.setattr(api._Analysis, "run", fail)
    capfd.readouterr()
    again = analyze(out=None, quiet=False)
    assert again.path == first.path
    assert "holds this very run already; --overwrite makes it anew" in capfd.readouterr().err
    with pytest.raises(AssertionError, match="computed again"):
        analyze(out=None, overwrite=True)


@pytest.mark.parametrize("change", [{"seed": 1}, {"windows": 4}, {"window": 47}, {"bos": "never"}, {"batch_size": 3}])
def test_other_settings_are_another_run(analyze, monkeypatch, tmp_path, change):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api._Analysis, "run", lambda _self, folder, _probes, **_: folder.finish({"schema": 1}))
    assert analyze(out=None, probes="norms").path != analyze(out=None, probes="norms", **change).path


def test_other_weights_are_another_run(analyze, model_of, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api._Analysis, "run", lambda _self, folder, _probes, **_: folder.finish({"schema": 1}))
    assert analyze(model_of(), out=None).path != analyze(model_of(seed=1), out=None).path


def test_a_named_folder_that_exists_is_refused(analyze, tmp_path):
    analyze()
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(RunError, match=r"run' holds a finished run; give another --out, or --overwrite to replace it"):
        analyze()
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    assert analyze(overwrite=True).path == tmp_path / "run"


# ------------------------------------------------------------------ the model is left alone
@pytest.mark.parametrize("fails", [False, True])
def test_a_model_in_training_mode_is_put_back(analyze, model_of, monkeypatch, fails):
    model = model_of().train()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if fails:
        monkeypatch.setattr(Bar, "update", stop_at(2, ZeroDivisionError("tripped")))
        with pytest.raises(ZeroDivisionError, match="tripped"):
            analyze(model)
    else:
        analyze(model)
    assert all(module.training for module in model.modules())
    assert model.config._attn_implementation == "sdpa"
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


# Model.train(training) sets every module to the mode of the outermost one.
def test_modules_in_different_modes_are_put_back(analyze, model_of):
    model = model_of().train()
    model.model.layers[0].eval()
    before = {name: module.training for name, module in model.named_modules()}
    analyze(model, windows=1, probes="gains")
    assert {name: module.training for name, module in model.named_modules()} == before


def test_dropout_is_at_rest(analyze, model_of, tmp_path):
    """Training mode does not reach the numbers."""
    runs = [
        analyze(model_of(attention_dropout=0.5).train(training), out=tmp_path / str(training), windows=2)
        for training in (False, True)
    ]
    assert_same_tables(*runs, check_exact=True)


# A tensor without dimensions cannot be viewed as bytes.
def test_a_buffer_without_dimensions(analyze, model_of):
    model = model_of()
    model.register_buffer("temperature", torch.tensor(1.5))
    assert analyze(model, windows=1, probes="gains").manifest["model"]["sha256"]


# Q_norm null in the manifest means "none found". Where queries are not traced
# to a projection (no stage but `scored`: a norm a head apart, a rotation of some channels), a norm may stand unseen, as
# StableLM's does here, and the page denies it.
def test_a_norm_that_was_not_traced_is_not_denied(analyze, tokenizer):
    from transformers import StableLmConfig, StableLmForCausalLM

    from geomprobe.pages.model_findings import tell_norm

    config = StableLmConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        qk_layernorm=True,
    )
    run = analyze(StableLmForCausalLM(config), windows=1)
    if "content" in run.manifest["model"]["anatomy"][0]["stages"]["k"]:
        assert run.manifest["model"]["anatomy"][0]["k_norm"] is not None
    assert "There is no QK norm" not in tell_norm(run).text


# ------------------------------------------------------------------ settings
# Document_stats has no column `loss` without the probe loss, and no `n_rows`
# without sinks, so that every choice of probes but gains alone ends in a KeyError when the page is drawn.
@pytest.mark.parametrize("probes", ["norms", "logits", ("sinks", "class_attention"), "loss"])
def test_a_choice_of_probes_has_a_page(model_of, tokenizer, text, tmp_path, probes):
    given = {"tokenizer": tokenizer, "text": text, "out": tmp_path / "run", **SHAPE, "windows": 2}
    run = geomprobe.analyze(model_of(), probes=probes, **given)
    assert list(run.manifest["probes"]) == ([probes] if isinstance(probes, str) else list(probes))
    assert (run.path / "report.html").exists()


def test_probes_by_name(analyze):
    run = analyze(probes=("sinks", "norms"), windows=1)
    assert list(run.manifest["probes"]) == ["norms", "sinks"]
    expected = {"norms", "norm_histograms", "sinks", "sink_rates", "sink_tokens", "document_stats", "type_stats"}
    assert set(run.tables) == expected | {"parity"}


def test_texts_may_be_one_file_or_many(analyze, text, tmp_path):
    files = sorted(text.iterdir())
    one = analyze(text=files[1], out=tmp_path / "one", probes="gains", windows=2)
    assert one.manifest["corpus"]["documents"] == ["second"]
    many = analyze(text=[str(file) for file in files], out=tmp_path / "many", probes="gains", windows=2)
    assert many.manifest["corpus"]["documents"] == ["first", "second"]


def test_a_budget_of_tokens(analyze):
    run = analyze(windows=None, tokens=100, probes="gains")
    assert run.manifest["corpus"]["n_windows"] == 3


def test_a_short_text(analyze):
    with pytest.raises(
        CorpusError, match=r"gives \d+ of the 900 windows of 48 tokens asked for; take them with --allow-"
    ):
        analyze(windows=900)
    run = analyze(windows=900, allow_short=True, probes="gains")
    assert 5 < run.manifest["corpus"]["n_windows"] < 900


def test_the_window_is_the_models_where_nothing_is_said(analyze, model_of):
    run = analyze(model_of(max_position_embeddings=64), window=None, windows=2, probes="gains")
    assert run.manifest["corpus"]["window"] == 64


def test_a_window_longer_than_the_model_has_positions(analyze, tmp_path):
    said = r"^window must be at most 256, the positions that this model has; got 257\.$"
    with pytest.raises(InvalidParameter, match=said):
        analyze(window=257)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"dataset": "owner/name"}, InvalidParameter, "text and dataset are two sources; give one of them"),
        (
            {"probes": "norm"},
            InvalidParameter,
            r"Unknown probe 'norm'\. Did you mean 'norms'\? Known: class_attention,",
        ),
        ({"probes": " , "}, InvalidParameter, "probes must name at least one of norms, gains, logits"),
        ({"probes": ()}, InvalidParameter, "probes must name at least one of norms, gains, logits"),
        ({"batch_size": 0}, InvalidParameter, "batch_size must be at least 1; got 0"),
        ({"window": 1}, InvalidParameter, "window must be at least 2; got 1"),
        ({"windows": 0}, InvalidParameter, "windows must be at least 1; got 0"),
        ({"tokens": 9}, InvalidParameter, "Give windows or tokens, not both; got 5 and 9"),
        ({"bos": "maybe"}, InvalidParameter, "bos must be one of 'default', 'always', 'never'; got 'maybe'"),
        ({"language": "tlh"}, InvalidParameter, "tlh"),
        ({"text": "no/such.txt"}, CorpusError, r"There is no text 'no/such\.txt'"),
        ({"tokenizer": None}, InvalidParameter, "A loaded model needs its tokenizer"),
        ({"tokenizer": object()}, UnsupportedModel, "object does not say which characters a token covers"),
        ({"model": 3}, InvalidParameter, "model must be a name, a path or a transformers model; got int"),
        ({"model": torch.nn.Linear(2, 2)}, InvalidParameter, "a transformers model; got Linear"),
        ({"model": "smollm2-135m"}, InvalidParameter, "tokenizer goes with a loaded model"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_callers_mistake_is_one_sentence_and_leaves_nothing(analyze, tmp_path, options, error, said):
    with pytest.raises(error, match=said) as caught:
        analyze(**options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# The early check takes a window of 0 for one that was not given (`window or DEFAULT_WINDOW`), so
# that it is told only after the model has been loaded.
def test_a_window_of_0_is_told_before_the_model_is_loaded(analyze):
    with pytest.raises(InvalidParameter, match="window must be at least 2; got 0"):
        analyze(model="no-such-model", tokenizer=None, window=0)


def test_it_says_nothing_where_it_is_told_to_be_quiet(analyze, capfd):
    analyze(windows=1)
    assert capfd.readouterr() == ("", "")


def test_it_says_what_it_does(analyze, capfd):
    analyze(windows=1, quiet=False)
    said = capfd.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert all(line.startswith("geomprobe ") for line in lines)
    assert any("watching 1 windows of 48 tokens" in line for line in lines)

"""Where a run goes, what settings do, and that the model is left alone."""

import re

import pytest
import torch

import geomprobe
from geomprobe import api
from geomprobe.errors import CorpusError, InvalidParameter, RunError, UnsupportedModel
from geomprobe.progress import Bar
from tests.api.shared import SHAPE, assert_same_tables, stop_at


# ------------------------------------------------------------------ where the run goes
def test_a_finished_run_with_its_own_name_is_found_again(analyze, monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    first = analyze(out=None)
    assert re.fullmatch(r"runs/LlamaForCausalLM\.tales\.[0-9a-f]{8}", first.path.as_posix())
    assert first.manifest["fingerprint"].startswith(first.path.name[-8:])

    def fail(*_args, **_options):
        raise AssertionError("computed again")

    monkeypatch.setattr(api.Analysis, "run", fail)
    capfd.readouterr()
    again = analyze(out=None, quiet=False)
    assert again.path == first.path
    assert "holds this very run already; --overwrite makes it anew" in capfd.readouterr().err
    with pytest.raises(AssertionError, match="computed again"):
        analyze(out=None, overwrite=True)


@pytest.mark.parametrize("change", [{"seed": 1}, {"windows": 4}, {"window": 47}, {"bos": "never"}, {"batch_size": 3}])
def test_other_settings_are_another_run(analyze, monkeypatch, tmp_path, change):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api.Analysis, "run", lambda _self, folder, _probes, **_: folder.finish({"schema": 1}))
    assert analyze(out=None, probes="norms").path != analyze(out=None, probes="norms", **change).path


def test_other_weights_are_another_run(analyze, model_of, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api.Analysis, "run", lambda _self, folder, _probes, **_: folder.finish({"schema": 1}))
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
            r"Unknown probe 'norm'\. Did you mean 'norms'\? Known: all, class_attention,",
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

"""analyze on images: places instead of tokens, no classes, and the numbers of the model's own attention."""

import re
import sys

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import geomprobe
from geomprobe.cli import app
from geomprobe.errors import CorpusError, InvalidParameter, UnsupportedModel

SIDE, PATCH, IMAGES = 48, 8, 5


def command(monkeypatch, *words):
    """The command line, and its exit code."""
    monkeypatch.setattr(sys, "argv", ["geomprobe", *map(str, words)])
    return app.run()


def randomise(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Stripes of several widths; sizes that the processor must change."""
    folder = tmp_path_factory.mktemp("images") / "stripes"
    folder.mkdir()
    row, column = np.mgrid[:60, :90]
    for index in range(IMAGES):
        wave = 127 + 127 * np.sin(column / (3 + index) + row / 9)
        pixels = np.stack([wave, wave[::-1], column * 2], -1).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"stripes{index}.png")
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def processor():
    return transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE})


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        image_size=SIDE,
        patch_size=PATCH,
    )
    return randomise(transformers.ViTForImageClassification(config))


@pytest.fixture(scope="module")
def folder(model, processor, tmp_path_factory):
    path = tmp_path_factory.mktemp("vit")
    model.save_pretrained(path)
    processor.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def run(folder, images, tmp_path_factory):
    """By the command line, from a folder, two images a pass."""
    out = tmp_path_factory.mktemp("out") / "run"
    with pytest.MonkeyPatch.context() as patch:
        given = ["--model", folder, "--input", images, "--out", out, "--batch-size", "2", "--quiet"]
        assert command(patch, "analyze", *given) == 0
    return geomprobe.open_run(out)


def test_the_numbers_are_those_of_the_models_attention(run, model, processor, images):
    opened = [Image.open(file).convert("RGB") for file in sorted(images.glob("*.png"))]
    pixels = processor(images=opened, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        model.set_attn_implementation("eager")
        own = model(pixel_values=pixels, output_attentions=True).attentions
    assert len(own) == 2
    for layer, weights in enumerate(own):
        weights = weights.double()
        due = weights[:, :, 1:, 0].mean((0, 2)).numpy()
        table = run.tables["sinks"]
        made = table[table["layer"] == layer].sort_values("q_head")["first_mass"].to_numpy()
        assert np.abs(made - due).max() <= 1e-5
        late = weights[:, :, 16:]
        entropy = -(late * late.log()).sum(-1).mean((0, 2)).numpy()
        logits = run.tables["logits"]
        rows = logits[(logits["layer"] == layer) & (logits["capped"] == "after")].sort_values("q_head")
        assert np.abs(rows["entropy"].to_numpy() - entropy).max() <= 1e-4


def test_an_image_is_a_document_of_one_window(run):
    corpus = run.manifest["corpus"]
    assert corpus["kind"] == "images"
    assert corpus["documents"] == [f"stripes{index}" for index in range(IMAGES)]
    assert (corpus["n_windows"], corpus["window"]) == (IMAGES, 1 + (SIDE // PATCH) ** 2)
    assert set(run.tables["type_stats"]["type"]) >= {"patch 0,0", "patch 5,5"}
    assert run.tables["document_stats"]["loss"].isna().all()
    assert run.tables["sink_rates"]["rate"].isna().all()


def test_the_page_speaks_of_images(run):
    page = (run.path / "report.md").read_text(encoding="utf-8")
    assert "looked at 5 images, at 37 places each" in page
    for absent in ("nats a token", "unction words", "BOS", "class_sink of the median"):
        assert absent not in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)
    assert not (run.path / "figures" / "class_lift.png").exists()
    assert (run.path / "figures" / "key_lengths.png").exists()


def test_batches_do_not_matter(run, folder, images, tmp_path):
    whole = geomprobe.analyze(folder, input=images, out=tmp_path / "run", batch_size=5, quiet=True)
    for name in ("norms", "sinks", "logits"):
        first, second = (r.tables[name].select_dtypes("number").to_numpy() for r in (run, whole))
        assert np.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_a_model_of_text_and_images_shows_the_half_that_looks(images, processor, tmp_path, monkeypatch):
    monkeypatch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")
    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    config = transformers.CLIPConfig(
        text_config=small, vision_config={**small, "image_size": SIDE, "patch_size": PATCH}, projection_dim=16
    )
    model = randomise(transformers.CLIPModel(config))
    found = geomprobe.analyze(model, processor=processor, input=images, windows=3, out=tmp_path / "run", quiet=True)
    assert [layer["module"].split(".")[0] for layer in found.manifest["model"]["anatomy"]] == ["encoder"] * 2
    assert found.manifest["corpus"]["n_windows"] == 3


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"input": "nowhere.png"}, CorpusError, "There is no image 'nowhere.png'"),
        ({"window": 64}, InvalidParameter, "window is about texts"),
        ({"text": "tale.txt"}, InvalidParameter, "text is about texts"),
        ({"processor": None}, InvalidParameter, "A loaded model needs its processor"),
    ],
)
def test_bad_input_is_told_in_a_sentence(model, processor, images, tmp_path, change, error, sentence):
    given = {"processor": processor, "input": images, "out": tmp_path / "run", "quiet": True, **change}
    with pytest.raises(error, match=re.escape(sentence)):
        geomprobe.analyze(model, **given)
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_no_image_and_a_folder_without(model, processor, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not an image")
    (tmp_path / "empty").mkdir()
    given = {"processor": processor, "out": tmp_path / "run", "quiet": True}
    with pytest.raises(CorpusError, match=r"broken\.png' cannot be read"):
        geomprobe.analyze(model, input=broken, **given)
    with pytest.raises(CorpusError, match="has no image"):
        geomprobe.analyze(model, input=tmp_path / "empty", **given)
    assert not (tmp_path / "run").exists()


def test_a_model_of_text_alone_does_not_look(model_of, processor, images, tmp_path):
    with pytest.raises(UnsupportedModel, match="does not look at images"):
        geomprobe.analyze(model_of(), processor=processor, input=images, out=tmp_path / "run", quiet=True)


def test_a_model_of_images_alone_is_told_when_a_text_is_given(folder, capsys, monkeypatch):
    assert command(monkeypatch, "analyze", "--model", folder, "--quiet") == 2
    assert "--input" in capsys.readouterr().err


def test_inspect_needs_no_tokenizer(folder, capsys, monkeypatch):
    assert command(monkeypatch, "inspect", "--model", folder) == 0
    assert "agrees with the model's own" in capsys.readouterr().out

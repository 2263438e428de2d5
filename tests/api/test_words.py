"""Words in context: what an analysis says of their directions, and that it says so before or after nothing else."""

import json
import types

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import geomprobe
from geomprobe import collection as collecting
from geomprobe.attention.anatomy import examine
from geomprobe.collection import Collection
from geomprobe.corpus.categories import read_categories
from geomprobe.corpus.contexts import ContextPlan, find_contexts
from geomprobe.corpus.sources import read_texts
from geomprobe.errors import CorpusError, InvalidParameter, RunError
from geomprobe.progress import Bar
from geomprobe.run.manifest import sha256_of
from geomprobe.stats.angles import type_vectors
from geomprobe.testing import tiny_model
from tests.api.shared import assert_same_tables, stop_at

CATEGORIES = """\
animals: dog cat horse sheep wolf rabbit eagle lion
food: bread milk cheese sugar butter rice soup honey
weather: rain snow wind frost storm thunder fog hail
kinship: father mother son daughter brother sister uncle aunt
tools: hammer knife rope axe spade ladder needle saw
clothing: coat hat shoe shirt glove scarf boot belt
"""
BETWEEN = """\
the a of and in to was is by with near under over from came went took gave found lost made held left old new small
large red dark good long heavy poor
"""
OTHERS = BETWEEN.split()
NOUNS = [word for line in CATEGORIES.splitlines() for word in line.split()[1:]]
CONTEXT = 20
SHAPE = {"window": 40, "windows": 4, "batch_size": 2, "context": CONTEXT, "quiet": True}
BOTH = "norms,clusters,neighbours"
WINDOWS = ["class_attention", "gains", "logits", "loss", "massive", "norms", "order", "sinks", "split", "values"]
HEADS = {"k": 2, "q": 4}
OWN_WORDS = {"types", "contexts", "clusters", "neighbours", "map", "word_neighbours", "hubs"}


def prose(rng, n):
    """n sentences of four nouns, the categories in turn: so none has another noun of its category in its window."""
    groups = [line.split()[1:] for line in CATEGORIES.splitlines()]
    nouns = (str(rng.choice(groups[at % len(groups)])) for at in range(4 * n))
    made = []
    for _ in range(n):
        words = [word for _ in range(4) for word in (*rng.choice(OTHERS, size=4).tolist(), next(nouns))]
        made.append(" ".join([words[0].capitalize(), *words[1:]]) + ".")
    return " ".join(made)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder of three documents, in which each word occurs at least twenty times."""
    folder = tmp_path_factory.mktemp("texts") / "fables"
    folder.mkdir()
    rng = np.random.default_rng(1)
    for name, n in (("first", 90), ("second", 240), ("third", 150)):
        (folder / f"{name}.txt").write_text(prose(rng, n), encoding="utf-8")
    words = " ".join(file.read_text(encoding="utf-8") for file in folder.iterdir()).replace(".", "").split()
    assert min(words.count(word) for word in (*NOUNS, *OTHERS)) >= 20
    return folder


@pytest.fixture(scope="module")
def categories(tmp_path_factory):
    file = tmp_path_factory.mktemp("categories") / "own.txt"
    file.write_text(CATEGORIES, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def tokenizer(text):
    """A token for every word of the text, and <bos> in front."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<pad>", "<bos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([file.read_text(encoding="utf-8") for file in sorted(text.iterdir())], trainer)
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>")


@pytest.fixture(scope="module")
def given(text, tokenizer, categories):
    return {"text": text, "tokenizer": tokenizer, "categories": categories, **SHAPE}


@pytest.fixture(scope="module")
def model(tokenizer):
    return tiny_model("gemma3", vocab_size=len(tokenizer))


def spared(patch):
    """Figures and maps take longer than all the rest."""
    patch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")
    patch.setattr("geomprobe.words.flat_map", lambda vectors: np.asarray(vectors, dtype=float)[:, :2])


@pytest.fixture(scope="module")
def studied(model, given, tmp_path_factory):
    """A run with everything that is said of words."""
    with pytest.MonkeyPatch.context() as patch:
        spared(patch)
        return geomprobe.analyze(model, probes=BOTH, out=tmp_path_factory.mktemp("studied") / "run", **given)


@pytest.fixture
def analyze(model, given, tmp_path, monkeypatch):
    spared(monkeypatch)

    def run(**options):
        return geomprobe.analyze(options.pop("model", model), **{**given, "out": tmp_path / "run", **options})

    return run


# ------------------------------------------------------------------ what a run holds
def test_the_tables_of_words(studied):
    assert set(studied.tables) > OWN_WORDS
    assert set(studied.tables) - OWN_WORDS == {"norms", "norm_histograms", "document_stats", "type_stats", "parity"}


def test_types_and_contexts(studied, text):
    kinds, contexts = studied.tables["types"], studied.tables["contexts"]
    assert list(kinds) == ["word", "category", "zipf", "count", "band", "n_contexts"]
    assert set(kinds["word"]) == {*NOUNS, *OTHERS}
    assert kinds["word"].is_unique
    assert (kinds["category"] != "").sum() == len(NOUNS)
    assert set(kinds["band"]) == set(range(10))
    assert (kinds["n_contexts"] == 16).all()
    assert list(contexts) == ["word", "document", "start"]
    assert (contexts["word"].value_counts() == 16).all()
    assert set(contexts["document"]) == {"first", "second", "third"}
    texts = {file.stem: file.read_text(encoding="utf-8") for file in text.iterdir()}
    for row in contexts.itertuples():
        assert texts[row.document][row.start :].startswith(row.word)


def cells():
    """The keys of all cells: (layer, vector, head, space, gauge)."""
    made = {(-1, "", -1, "embedding", "raw")}
    for layer in range(2):
        made |= {(layer, vector, head, "content", "raw") for vector, heads in HEADS.items() for head in range(heads)}
        made |= {(layer, "k", head, "content", "balanced") for head in range(HEADS["k"])}
        made.add((layer, "", -1, "residual", "raw"))
    return made


KEYS = ["layer", "vector", "head", "space", "gauge", "word"]


def with_contexts_alone():
    return cells() | {(-1, "", -1, "context", "raw")}


def keys_of(table, *more):
    columns = [name for name in KEYS[:5] if name in table] + list(more)  # tables for the eye have no gauge
    found = list(table[columns].itertuples(index=False, name=None))
    assert len(set(found)) == len(found)
    return set(found)


def test_clusters_have_a_row_a_head_and_one_a_layer(studied):
    table = studied.tables["clusters"]
    means = {(layer, vector, -1, "content", "raw") for layer in range(2) for vector in HEADS}
    means |= {(layer, "k", -1, "content", "balanced") for layer in range(2)}
    assert keys_of(table) == with_contexts_alone() | means
    assert (table["n_types"] == len(NOUNS)).all()
    assert (table["n_categories"] == 6).all()
    assert (table["m"] == 8).all()
    assert (table["auc_low"] <= table["auc"]).all()
    assert (table["auc"] <= table["auc_high"]).all()
    assert table["auc"].between(0, 1).all()
    one = table[(table["head"] >= 0) | (table["space"] != "content")]
    assert one.notna().all(axis=None)
    mean = table[(table["layer"] == 1) & (table["vector"] == "q") & (table["head"] == -1)]
    heads = table[(table["layer"] == 1) & (table["vector"] == "q") & (table["head"] >= 0)]
    assert mean["auc"].item() == pytest.approx(heads["auc"].mean())


def test_neighbours_have_a_row_a_head_and_band(studied):
    table = studied.tables["neighbours"]
    bands = range(-1, 10)
    assert keys_of(table, "frequency_band") == {(*cell, band) for cell in cells() for band in bands}
    everything = table[table["frequency_band"] == -1]
    assert (everything["n_types"] == len(NOUNS) + len(OTHERS)).all()
    by_cell = table[table["frequency_band"] >= 0].groupby(KEYS[:5])["n_types"].sum()
    assert (by_cell == len(NOUNS) + len(OTHERS)).all()
    assert (table["m"] == 16).all()
    for column in ("self_retrieval_mrr", "self_retrieval_hit1", "stability", "rare_neighbour_share"):
        assert table[column].between(0, 1).all()
    assert table[["reference_rho", "reference_overlap"]].isna().all(axis=None)
    # Half the contexts of a word find the other half in an embedding: they are the same vector.
    assert (table[table["space"] == "embedding"]["self_retrieval_hit1"] == 1).all()


def test_the_map_is_of_the_key_head_with_the_best_auc(studied):
    table, clusters = studied.tables["map"], studied.tables["clusters"]
    assert list(table) == ["layer", "vector", "head", "word", "category", "zipf", "x", "y"]
    assert sorted(table["word"]) == sorted(NOUNS)
    keys = clusters[(clusters["vector"] == "k") & (clusters["gauge"] == "raw") & (clusters["head"] >= 0)]
    best = keys.loc[keys["auc"].idxmax()]
    assert set(table[["layer", "vector", "head"]].itertuples(index=False, name=None)) == {
        (best["layer"], "k", best["head"])
    }
    place = {line.split(":")[0]: line.split()[1:] for line in CATEGORIES.splitlines()}
    assert all(row.word in place[row.category] for row in table.itertuples())


def test_the_neighbours_of_the_rarest_words(studied):
    table, kinds = studied.tables["word_neighbours"], studied.tables["types"]
    key = studied.tables["map"].iloc[0]
    places = {
        (key["layer"], "k", key["head"], "content"),
        (key["layer"], "", -1, "residual"),
        (-1, "", -1, "embedding"),
    }
    assert set(table[["layer", "vector", "head", "space"]].itertuples(index=False, name=None)) == places
    rarest = set(kinds.sort_values(["zipf", "word"])["word"][:12])
    for _, part in table.groupby("space"):
        assert set(part["word"]) == rarest
        for word, rows in part.groupby("word"):
            assert rows["rank"].tolist() == list(range(1, 11))
            assert rows["neighbour"].is_unique
            assert word not in set(rows["neighbour"])
            assert rows["cosine"].is_monotonic_decreasing
    zipf = kinds.set_index("word")["zipf"]
    assert (table["zipf"].to_numpy() == zipf[table["word"]].to_numpy()).all()
    assert (table["neighbour_zipf"].to_numpy() == zipf[table["neighbour"]].to_numpy()).all()


def test_hubs_count_how_often_a_word_is_a_neighbour(studied):
    table, near = studied.tables["hubs"], studied.tables["word_neighbours"]
    n = len(NOUNS) + len(OTHERS)
    assert keys_of(table, "word") >= keys_of(
        near.assign(word=near["neighbour"]).drop_duplicates([*KEYS[:4], "word"]), "word"
    )
    for key, part in table.groupby(["layer", "vector", "head", "space"]):
        assert len(part) == n
        assert part["count"].sum() == 10 * n  # each word has ten neighbours
        listed = near[(near["layer"] == key[0]) & (near["space"] == key[3])]
        assert (part.set_index("word")["count"].loc[listed["neighbour"].unique()] >= 1).all()
    band = studied.tables["types"].set_index("word")["band"]
    assert (table["frequency_band"].to_numpy() == band[table["word"]].to_numpy()).all()


def test_the_manifest_tells_of_the_words(studied):
    manifest = studied.manifest
    n = len(NOUNS) + len(OTHERS)
    said = dict(manifest["words"])
    assert len(said.pop("sha256")) == 64
    left_out = said.pop("left_out")
    assert set(left_out) == {"too_rare", "beside_mates", "no_single_token", "unknown_word", "capitalised"}
    assert left_out["no_single_token"] == left_out["unknown_word"] == 0
    assert said == {"n_types": n, "n_contexts": 16 * n, "context": CONTEXT, "n_categories": 6, "n_bands": 10}
    assert list(manifest["probes"]) == ["norms", "clusters", "neighbours"]
    assert manifest["probes"]["clusters"]["n_contexts"] == 8
    assert manifest["probes"]["neighbours"] == {"n_contexts": 16, "n_neighbours": 10, "reference": ""}
    assert {"words", "directions"} <= set(manifest["timings"])


# ------------------------------------------------------------------ vectors
def read_vectors(run, name):
    with safe_open(run.path / "vectors" / f"{name}.safetensors", framework="numpy") as file:
        return json.loads(file.metadata()["types"]), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def test_there_is_a_vector_a_type_layer_and_head(studied):
    for name, words in (("clusters", NOUNS), ("neighbours", [*NOUNS, *OTHERS])):
        kinds, vectors = read_vectors(studied, name)
        assert sorted(kinds) == sorted(words)
        shapes = {"embedding.x.-1": (1, 32)}
        for layer in range(2):
            shapes |= {f"content.{vector}.{layer}": (heads, 16) for vector, heads in HEADS.items()}
            shapes |= {f"content_balanced.k.{layer}": (HEADS["k"], 16), f"residual.x.{layer}": (1, 32)}
        assert {key: x.shape[1:] for key, x in vectors.items()} == shapes
        assert {len(x) for x in vectors.values()} == {len(words)}
        assert {x.dtype for x in vectors.values()} == {np.dtype(np.float16)}


def test_the_vectors_are_those_of_the_types(studied, model, given, tmp_path):
    """Made here from the text and the model alone."""
    plan = ContextPlan(categories=read_categories(given["categories"]), context=CONTEXT)
    contexts = find_contexts(read_texts([given["text"]]), given["tokenizer"], plan)
    collection = Collection(examine(model, torch.from_numpy(contexts.ids[:1])), contexts, tmp_path)
    collection.run(model, batch_size=64)
    order = {kind.word: at for at, kind in enumerate(contexts.types)}
    for name, n in (("clusters", 8), ("neighbours", 16)):
        words, vectors = read_vectors(studied, name)
        for cell in collection.cells([order[word] for word in words], n):
            space = cell.space if cell.gauge == "raw" else f"{cell.space}_{cell.gauge}"
            found = vectors[f"{space}.{cell.vector or 'x'}.{cell.layer}"][:, max(cell.head, 0)]
            assert np.abs(found - type_vectors(cell.x)).max() <= 1e-3


def test_the_manifest_has_the_hash_of_every_file(studied):
    files = studied.manifest["files"]
    vectors = {f"vectors/{name}.safetensors" for name in ("clusters", "neighbours")}
    assert set(files) == vectors | {f"tables/{name}.parquet" for name in studied.tables}
    assert all(sha256_of(studied.path / name) == digest for name, digest in files.items())
    assert not (studied.path / "state").exists()


def test_random_weights_know_no_categories(studied):
    table = studied.tables["clusters"]
    embedding = table[table["space"] == "embedding"].iloc[0]
    assert embedding["auc_low"] <= 0.5 <= embedding["auc_high"]
    assert embedding["auc_p"] > 0.01
    assert embedding["auc_shuffled"] == pytest.approx(0.5, abs=0.01)


# ------------------------------------------------------------------ settings
def test_the_same_seed_gives_the_same(analyze, studied):
    again = analyze(probes=BOTH)
    assert_same_tables(again, studied, check_exact=True)
    assert again.manifest["fingerprint"] == studied.manifest["fingerprint"]
    assert again.manifest["files"] == studied.manifest["files"]


def test_another_seed_draws_other_contexts(analyze, studied):
    other = analyze(probes=BOTH, seed=1)
    assert other.manifest["words"]["sha256"] != studied.manifest["words"]["sha256"]
    assert other.manifest["fingerprint"] != studied.manifest["fingerprint"]
    assert set(other.tables["types"]["word"]) == set(studied.tables["types"]["word"])
    places = [set(run.tables["contexts"].itertuples(index=False, name=None)) for run in (other, studied)]
    assert len(places[0] & places[1]) < len(places[0])
    # What is said of the windows does not depend on the seed.
    assert other.tables["norms"].equals(studied.tables["norms"])


@pytest.mark.parametrize("change", [{"context": 21}, {"max_types": 60}])
def test_other_words_are_another_run(analyze, studied, change):
    other = analyze(probes=BOTH, **change)
    assert other.manifest["fingerprint"] != studied.manifest["fingerprint"]
    assert other.manifest["words"]["sha256"] != studied.manifest["words"]["sha256"]


def test_without_a_word_about_probes_there_are_only_those_of_the_windows(analyze):
    run = analyze(probes=None, categories=None)
    assert sorted(run.manifest["probes"]) == WINDOWS
    assert "words" not in run.manifest
    assert not OWN_WORDS & set(run.tables)
    assert not (run.path / "vectors").exists()


def test_all_probes(analyze, studied):
    run = analyze(probes="all")
    assert sorted(run.manifest["probes"]) == sorted([*WINDOWS, "clusters", "neighbours"])
    assert set(run.tables) > OWN_WORDS
    assert run.tables["clusters"].equals(studied.tables["clusters"])


@pytest.mark.parametrize(
    ("probes", "due"),
    [
        ("clusters", {"types", "contexts", "clusters", "map"}),
        (("neighbours",), {"types", "contexts", "neighbours", "word_neighbours", "hubs"}),
    ],
)
def test_one_probe_of_words_alone(analyze, studied, probes, due):
    run = analyze(probes=probes)
    assert set(run.tables) & OWN_WORDS == due
    name = "clusters" if probes == "clusters" else "neighbours"
    assert list(run.manifest["probes"]) == [name]
    assert [file.name for file in (run.path / "vectors").iterdir()] == [f"{name}.safetensors"]
    # One draw of places, whoever asks; the order of the words, on which their draws stand, may be another.
    drawn = ["auc_low", "auc_high", "auc_p", "auc_shuffled", "silhouette_p", "silhouette_z"]
    found, expected = (each.tables[name].drop(columns=drawn, errors="ignore") for each in (run, studied))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-5, atol=1e-6)


def test_a_reference_of_meaning(analyze, tmp_path):
    """Vectors of one's own, in which the words of a category are alike."""
    file = tmp_path / "vectors.txt"
    rng = np.random.default_rng(0)
    lines = []
    for line in CATEGORIES.splitlines():
        centre = rng.normal(size=8)
        for word in line.split()[1:]:
            lines.append(" ".join([word, *(f"{x:.4f}" for x in centre + 0.1 * rng.normal(size=8))]))
    file.write_text("\n".join(lines), encoding="utf-8")
    run = analyze(probes="neighbours", reference=str(file))
    assert run.manifest["probes"]["neighbours"]["reference"] == str(file)
    table = run.tables["neighbours"]
    everything = table[table["frequency_band"] == -1]
    assert everything["reference_rho"].between(-1, 1).all()
    assert everything["reference_overlap"].between(0, 1).all()


def test_a_map_is_drawn_by_umap(model, given, tmp_path, monkeypatch):
    monkeypatch.setattr("geomprobe.pages.page.write_page", lambda run: run.path / "report.html")
    threads = torch.get_num_threads()
    run = geomprobe.analyze(model, probes="clusters", out=tmp_path / "run", **given)
    assert torch.get_num_threads() == threads  # umap sets those of its own, and with more of them sums are rounded anew
    place = run.tables["map"][["x", "y"]].to_numpy()
    assert place.shape == (len(NOUNS), 2)
    assert np.isfinite(place).all()
    assert (place.std(axis=0) > 0.1).all()
    words, vectors = read_vectors(run, "clusters")
    assert list(run.tables["map"]["word"]) == words
    key = run.tables["map"].iloc[0]
    from geomprobe.stats.maps import flat_map

    again = flat_map(vectors[f"content.k.{key['layer']}"][:, key["head"]].astype(np.float32))
    assert np.array_equal(again, place)


# ------------------------------------------------------------------ a caller's mistakes
@pytest.fixture
def untouched(tokenizer):
    """A model that must not run."""

    def fail(*_args):
        raise AssertionError("the model ran")

    model = tiny_model("llama", vocab_size=len(tokenizer))
    model.register_forward_pre_hook(fail)
    return model


def own_list(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("mistaken") / "list.txt"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("a: dog cat\nb: rain dog\n", r"A word must stand once, in one category; 'dog' on line 2 of the file '.*"),
        ("a: dog dog\nb: rain\n", r"A word must stand once, in one category; 'dog' on line 1 of the file '.*"),
        (
            "a: dog cat\nb:\n",
            r"A category must have at least one word; 'b' has none on line 2 of the file '.*list\.txt'",
        ),
        ("a: dog cat\n", r"There must be at least 2 categories; got 1 on lines 1 to 1 of the file '.*"),
    ],
)
def test_a_list_of_categories_with_a_mistake(analyze, untouched, tmp_path, tmp_path_factory, lines, said):
    file = own_list(tmp_path_factory, lines)
    with pytest.raises(InvalidParameter, match=said) as caught:
        analyze(model=untouched, probes="clusters", categories=file)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"language": "xx"}, InvalidParameter, r"^Unknown language 'xx'\."),
        ({"language": "xx", "categories": None}, InvalidParameter, r"^Unknown language 'xx'\..*with --categories\.$"),
        (
            {"language": "fr", "categories": None},
            InvalidParameter,
            r"^Unknown language 'fr'\. Known: en\. Give a file of categories with --categories\.$",
        ),
        ({"categories": "nowhere.txt"}, CorpusError, r"^The text 'nowhere\.txt' cannot be read: No such file or dir"),
        (
            {"reference": "nowhere.txt"},
            InvalidParameter,
            r"^reference must be 'glove', 'wordnet' or a file of word vectors .*; got 'nowhere\.txt'\.$",
        ),
        ({"context": 16}, InvalidParameter, r"^context must be at least 17; got 16\.$"),
        ({"max_types": 9}, InvalidParameter, r"^max_types must be at least 10; got 9\.$"),
        ({"probes": "cluster"}, InvalidParameter, r"^Unknown probe 'cluster'\. Did you mean 'clusters'\? Known: "),
        ({"bos": "maybe"}, InvalidParameter, "bos must be one of 'default', 'always', 'never'; got 'maybe'"),
        (
            {"max_types": 40, "probes": "neighbours"},
            CorpusError,
            r"^neighbours needs 50 words that occur 16 times in the text and are one token each; there are 40\. Give ",
        ),
    ],
    ids=str,
)
def test_a_mistake_is_told_before_the_pass(analyze, untouched, tmp_path, options, error, said):
    with pytest.raises(error, match=said) as caught:
        analyze(model=untouched, **{"probes": BOTH, **options})
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("probes", "said"),
    [
        (
            "clusters",
            r"^The text 'short' has no word that occurs 8 times with 20 tokens before it; give more text with",
        ),
        (
            "neighbours",
            r"^The text 'short' has no word that occurs 8 times with 20 tokens before it; give more text with",
        ),
    ],
)
def test_a_short_text(analyze, untouched, tmp_path, tmp_path_factory, probes, said):
    file = tmp_path_factory.mktemp("texts") / "short.txt"
    file.write_text(prose(np.random.default_rng(0), 16), encoding="utf-8")
    with pytest.raises(CorpusError, match=said):
        analyze(model=untouched, text=file, probes=probes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lines", [2, 3])
def test_too_few_categories(analyze, untouched, tmp_path, tmp_path_factory, lines):
    """A category of three words is none."""
    few = "".join(line + "\n" for line in CATEGORIES.splitlines()[:2]) + "odd: coat hat shoe\n" * (lines - 2)
    said = (
        r"^clusters needs 3 categories of 4 words that occur 8 times in the text and are one token each; there are 2\. "
        r"Give more text with --text, other words with --categories, or leave clusters out with --probes\.$"
    )
    with pytest.raises(CorpusError, match=said):
        analyze(model=untouched, probes="clusters", categories=own_list(tmp_path_factory, few))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("probes", ["clusters", "norms,neighbours", "all"])
def test_images_have_no_words(tmp_path, tmp_path_factory, probes):
    folder = tmp_path_factory.mktemp("images")
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(folder / "black.png")
    with pytest.raises(InvalidParameter, match=r"look at words; leave them out where input names images\.$"):
        geomprobe.analyze("no-such-model", input=folder, probes=probes, out=tmp_path / "run", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_context_longer_than_the_model_has_positions(analyze, untouched, tmp_path):
    with pytest.raises(
        InvalidParameter, match=r"^context must be at most 256, the positions that this model has; got 2"
    ):
        analyze(model=untouched, probes="clusters", context=257)
    assert list(tmp_path.iterdir()) == []


def test_a_reference_that_knows_no_word_is_told_before_the_pass(analyze, untouched, tmp_path, tmp_path_factory):
    file = tmp_path_factory.mktemp("reference") / "vectors.txt"
    file.write_text("chien 1 0 0 1\nchat 0 1 1 0\n", encoding="utf-8")
    with pytest.raises(InvalidParameter, match=r"^The reference '.*vectors\.txt' knows none of the words"):
        analyze(model=untouched, probes="neighbours", reference=str(file))
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ stopped and taken up again
@pytest.fixture
def stop(monkeypatch):
    def at(done):
        monkeypatch.setattr(Bar, "update", stop_at(done, KeyboardInterrupt))
        monkeypatch.setattr(collecting, "SAVE_EVERY", -1.0)  # save after every batch

    def go_on():
        monkeypatch.undo()
        spared(monkeypatch)

    return types.SimpleNamespace(at=at, go_on=go_on)


@pytest.mark.parametrize("at", [400, 16 * (len(NOUNS) + len(OTHERS))])
def test_a_pass_over_words_that_was_stopped_goes_on_to_the_same_numbers(analyze, studied, stop, tmp_path, capfd, at):
    stop.at(at)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        analyze(probes=BOTH)
    state = tmp_path / "run" / "state"
    kept = json.loads((state / collecting.NOTE).read_text(encoding="utf-8"))["done"]
    assert 0 < kept < at
    assert not (tmp_path / "run" / "run.json").exists()

    stop.go_on()
    capfd.readouterr()
    run = analyze(probes=BOTH, quiet=False)
    assert f"going on from context {kept}" in capfd.readouterr().err
    assert_same_tables(run, studied, check_exact=True)
    assert run.manifest["files"] == studied.manifest["files"]
    assert not state.exists()


def test_the_windows_before_a_stopped_pass_over_words_are_not_watched_anew(analyze, studied, stop, capfd, monkeypatch):
    """Whether or not there was time to save any words."""
    stop.at(100)
    monkeypatch.setattr(collecting, "SAVE_EVERY", 1e9)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        analyze(probes=BOTH)
    stop.go_on()
    capfd.readouterr()
    run = analyze(probes=BOTH, quiet=False)
    assert f"going on from window {SHAPE['windows']}" in capfd.readouterr().err
    assert_same_tables(run, studied, check_exact=True)


def test_a_run_that_was_stopped_behind_its_passes_keeps_them(analyze, studied, stop, capfd, monkeypatch):
    def update(_bar, done):
        if done >= 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Bar, "update_plain", update)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        analyze(probes=BOTH)
    stop.go_on()
    capfd.readouterr()
    run = analyze(probes=BOTH, quiet=False)
    assert f"going on from context {studied.manifest['words']['n_contexts']}" in capfd.readouterr().err
    assert_same_tables(run, studied, check_exact=True)


def test_other_words_do_not_go_on_from_it(analyze, stop):
    stop.at(400)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        analyze(probes=BOTH)
    stop.go_on()
    with pytest.raises(RunError, match="holds an unfinished run with other settings"):
        analyze(probes=BOTH, context=21)

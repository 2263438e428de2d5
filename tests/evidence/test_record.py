"""What a run's tables come to as numbers: against slow loops, against the tables themselves, and where it is known."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from geomprobe.evidence.record import (
    clusters,
    curves,
    losses,
    of_analysis,
    of_edits,
    of_renamed,
    of_training,
    purity,
)
from tests.synthetic_edits import write_synthetic_edits
from tests.synthetic_run import rewrite, write_synthetic_run

NEAREST = 10


# ---------------------------------------------------------------------- purity
def slow_purity(vectors, category, *, counting_itself=False):
    """In loops; with `counting_itself` the defect that each case here must catch."""
    found = []
    for i, x in enumerate(vectors):
        far = []
        for j, y in enumerate(vectors):
            if j != i or counting_itself:
                length = math.sqrt(math.fsum(a * a for a in x)) * math.sqrt(math.fsum(b * b for b in y))
                far.append((-math.fsum(a * b for a, b in zip(x, y, strict=True)) / length, j))
        same = sum(category[j] == category[i] for _, j in sorted(far)[:NEAREST])
        others = sum(category[j] == category[i] for j in range(len(category)) if j != i)
        found.append(same / min(others, NEAREST) if others else math.nan)
    return np.array(found)


def check_purity(vectors, category):
    category = np.array(category, dtype=object)
    found = purity(np.asarray(vectors, dtype=float), category)
    assert found == pytest.approx(slow_purity(vectors, category), abs=1e-12, nan_ok=True)
    wrong = slow_purity(vectors, category, counting_itself=True)
    assert not np.allclose(found, wrong, equal_nan=True)  # the case tells the two apart
    return found


def on_a_circle(*angles):
    return np.array([[math.cos(angle), math.sin(angle)] for angle in angles])


@pytest.mark.parametrize("seed", range(4))
def test_purity_is_that_of_loops(seed):
    rng = np.random.default_rng(seed)
    category = rng.permutation([f"c{at}" for at, n in enumerate((1, 2, 5, 9, 10, 11, 14)) for _ in range(n)])
    centres = {name: rng.normal(size=6) for name in sorted(set(category))}
    vectors = np.array([centres[name] for name in category]) + rng.normal(size=(len(category), 6))
    found = check_purity(vectors, category)
    alone = category == "c0"
    assert np.isnan(found[alone]).all()
    assert not np.isnan(found[~alone]).any()


def test_of_equally_near_ones_the_first_are_taken():
    axes = [0, 0, 0, 1, 1, 2, 0, 1, 2, 2, 0, 1, 2, 0, 1, 2, 0, 0, 2, 1]
    lengths = [1, 2, 4, 0.5] * 5  # powers of two: cosines are exact
    vectors = np.eye(3)[axes] * np.array(lengths)[:, None]
    check_purity(vectors, list("aabbcabcabcabcabcabc"))


def test_purity_of_perfect_clusters():
    sizes = (3, 4, 5)
    category = [name for name, n in zip("abc", sizes, strict=True) for _ in range(n)]
    angles = [at + 0.01 * i for at, n in zip((0, 1, 2), sizes, strict=True) for i in range(n)]
    assert check_purity(on_a_circle(*angles), category).tolist() == [1.0] * 12


def test_purity_around_one_impurity():
    """Eleven of each category, one a stands among the b."""
    angles = [0.005 * i for i in range(10)] + [1 + 0.01 * i for i in range(11)] + [1.055]
    found = check_purity(on_a_circle(*angles), ["a"] * 10 + ["b"] * 11 + ["a"])
    assert found.tolist() == [0.9] * 21 + [0.0]


@pytest.mark.parametrize("n", [3, 5, 8, 10, 11])
def test_purity_of_no_more_words_than_are_looked_at(n):
    """All others are near: what there is of one's own category is found."""
    category = ["a"] * (n // 2) + ["b"] * (n - n // 2)
    found = check_purity(on_a_circle(*np.linspace(0, 3, n)), category)
    alone = np.array([category.count(name) == 1 for name in category])
    assert np.isnan(found[alone]).all()
    assert (found[~alone] == 1).all()


# ---------------------------------------------------------------------- training
N_STEPS = 40
STEPS = (0, 10, 20, 30, 40)
LATE = [10, 20, 30, 40]
SLOPES = {"log_length_q": 0.5, "log_length_k": -0.25, "log_projected_q": 1.5, "log_projected_k": 2.0}
MANIFEST = {
    "held_out_loss": {"1": 4.5, "2": 4.75, "4": None},
    "n_spikes": 3,
    "diverged_at": None,
    "step": N_STEPS,
}


def grown():
    """Lengths that leap before the first quarter and are lines from there on; no update behind the last step."""
    rows = []
    for step in STEPS:
        for layer in (0, 1):
            row = {"step": step, "layer": layer, "max_logit": 2.0 + layer + step / 10, "entropy": 3.0 - layer}
            for name, slope in SLOPES.items():
                begin = 0.7 + 0.2 * layer if step else -5.0
                row[name] = begin + slope * (1 + (0.4 if layer else -0.4)) * step / N_STEPS
            for vector, turn in (("q", 0.1), ("k", 0.2)):
                last = step == N_STEPS
                row[f"turn_{vector}"] = math.nan if step == 0 else 9.0 if last else turn * (1 + layer)
                row[f"radial_share_{vector}"] = math.nan if last else step * turn * (1 + layer)
                row[f"radial_null_{vector}"] = math.nan if last else 0.5 + layer
                row[f"cosine_{vector}"] = math.nan if last else turn * step / 10 - layer
            rows.append(row)
    return pd.DataFrame(rows)


def held_out(*rows):
    return pd.DataFrame([{"step": step, "factor": factor, "loss": loss} for step, factor, loss in rows])


HELD_OUT = ((0, 1, 6.0), (20, 1, 5.0), (40, 1, 4.6), (40, 1, 4.5), (40, 2, 4.75), (40, 4, 4.8))


def left(folder, *, growth=None, spike=(True, False, True, True), rows=HELD_OUT):
    """A folder with the tables of a training."""
    (grown() if growth is None else growth).to_parquet(folder / "growth.parquet", index=False)
    pd.DataFrame({"step": range(len(spike)), "spike": spike} if spike else {}).to_parquet(folder / "metrics.parquet")
    held_out(*rows).to_parquet(folder / "held_out.parquet", index=False)
    return folder


def test_numbers_of_a_training(tmp_path):
    found = of_training(left(tmp_path), MANIFEST)
    assert {name: found[name] for name in ("loss_1x", "loss_2x")} == {"loss_1x": 4.5, "loss_2x": 4.75}
    assert math.isnan(found["loss_4x"])
    assert (found["n_spikes"], found["diverged"], found["spike_rate"]) == (3.0, 0.0, 0.75)
    assert found["max_logit_trained"] == 7.0
    assert all(isinstance(value, float) for value in found.values())


@pytest.mark.parametrize("vector", ["q", "k"])
def test_slopes_are_those_of_the_lines_behind_the_first_quarter(tmp_path, vector):
    found = of_training(left(tmp_path), MANIFEST)
    for column, name in ((f"log_length_{vector}", "scored"), (f"log_projected_{vector}", "projected")):
        # The layers' slopes are 1.4 and 0.6 times this; the leap of 5.8 before counts for the gain alone.
        assert found[f"growth_{name}_{vector}"] == pytest.approx(SLOPES[column], abs=1e-12)
        assert found[f"gain_{name}_{vector}"] == pytest.approx(5.8 + SLOPES[column], abs=1e-12)


def test_how_updates_point_behind_the_first_quarter(tmp_path):
    found = of_training(left(tmp_path), MANIFEST)
    for vector, turn in (("q", 0.1), ("k", 0.2)):
        # Steps 10, 20 and 30: the last measurement has no update, and no even distance to the one before.
        assert found[f"turn_{vector}"] == pytest.approx(1.5 * turn)
        assert found[f"radial_over_random_{vector}"] == pytest.approx(20 * turn * (1 / 0.5 + 2 / 1.5) / 2)
        assert found[f"radial_cosine_{vector}"] == pytest.approx(2 * turn - 0.5)


def test_slopes_of_two_steps_are_none(tmp_path):
    growth = grown().query("step in (0, 30, 40)")
    found = of_training(left(tmp_path, growth=growth), MANIFEST)
    assert math.isnan(found["growth_scored_k"])
    assert found["gain_scored_k"] == pytest.approx(5.8 + SLOPES["log_length_k"])


def test_a_training_that_diverged_has_no_loss(tmp_path):
    """Its lengths may be no numbers at the end, and there may be no update at all."""
    growth = grown()
    columns = [*SLOPES, "max_logit", "turn_q", "turn_k", "radial_share_k", "cosine_k"]
    growth.loc[growth["step"] == 30, columns] = math.nan
    growth = growth[growth["step"] <= 30]
    found = of_training(left(tmp_path, growth=growth), MANIFEST | {"held_out_loss": {}, "diverged_at": 30, "step": 30})
    assert found["diverged"] == 1
    assert all(math.isnan(found[f"loss_{factor}x"]) for factor in (1, 2, 4))
    assert all(math.isnan(found[f"growth_{name}_k"]) for name in ("scored", "projected"))
    assert found["max_logit_trained"] == 5.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_lengths_that_are_no_numbers_have_no_slope(tmp_path, value):
    growth = grown()
    growth.loc[growth["step"] == 40, "log_length_k"] = value
    found = of_training(left(tmp_path, growth=growth), MANIFEST | {"held_out_loss": {}, "diverged_at": 40})
    assert math.isnan(found["growth_scored_k"])
    assert found["growth_scored_q"] == pytest.approx(SLOPES["log_length_q"])


def test_a_training_that_diverged_at_once(tmp_path):
    """No update was made: the table of steps has no column."""
    growth = grown().query("step == 0")
    path = left(tmp_path, growth=growth, spike=(), rows=((0, 1, 6.0),))
    found = of_training(path, MANIFEST | {"held_out_loss": {}, "n_spikes": 0, "diverged_at": 0, "step": 0})
    assert (found["diverged"], found["n_spikes"]) == (1, 0)
    assert math.isnan(found["spike_rate"])
    assert math.isnan(found["growth_scored_k"])
    assert math.isnan(found["loss_1x"])


def test_curves_are_means_over_layers(tmp_path):
    found = curves(left(tmp_path))
    growth = grown()
    assert [row["step"] for row in found] == list(STEPS)
    for row in found:
        own = growth[growth["step"] == row["step"]]
        assert set(row) == set(growth) - {"layer"}
        for name in set(row) - {"step", "max_logit"}:
            values = own[name].tolist()
            assert row[name] == pytest.approx(sum(values) / len(values), nan_ok=True), name
        assert row["max_logit"] == own["max_logit"].max()


def test_losses_of_the_saved_steps(tmp_path):
    """On the short text: the last step has another, of eight times as many tokens, and those of longer texts."""
    found = losses(left(tmp_path))
    assert found == [{"step": 0, "loss": 6.0}, {"step": 20, "loss": 5.0}, {"step": 40, "loss": 4.6}]


def test_a_loss_that_is_no_number_is_no_step(tmp_path):
    rows = ((0, 1, 6.0), (20, 1, 5.0), (30, 1, math.nan))
    found = losses(left(tmp_path, rows=rows))
    assert found == [{"step": 0, "loss": 6.0}, {"step": 20, "loss": 5.0}]


# ---------------------------------------------------------------------- edits
def test_what_edits_cost(tmp_path):
    edits = [("neutral_norm", 1.0, "", ""), ("swap_angle", np.nan, "", "permute_norm"), ("temperature", 2.0, "", "")]
    run = write_synthetic_edits(tmp_path, n_layers=1, edits=edits, gauges=("raw",))
    table = run.tables["interventions"].query("document == -1").set_index("setting")["delta_ce"]
    assert set(table.index) == {"sham", "neutral_norm", "swap_angle(permute_norm)", "temperature(2)"}
    found = of_edits(run)
    assert found == {f"delta_ce_{name}": table[name] for name in table.index if name != "sham"}
    assert found["delta_ce_neutral_norm"] == pytest.approx(0.2, rel=0.5)  # as planted: of all documents, not of one


def test_shams_of_both_gauges_are_left_out(tmp_path):
    run = write_synthetic_edits(tmp_path, n_layers=1, edits=[("permute_norm", 1.0, "", "")])
    assert set(of_edits(run)) == {"delta_ce_permute_norm", "delta_ce_permute_norm@balanced"}


# ---------------------------------------------------------------------- renamed words
def ranked(places):
    """A row a word, space and layer, from (rare, space, vector, layer, place), and the gauge if it is not raw."""
    columns = ["rare", "space", "vector", "layer", "place", "gauge"]
    rows = [row if len(row) == len(columns) else (*row, "raw") for row in places]
    return pd.DataFrame(rows, columns=columns).assign(hit=lambda table: table["place"] == 0)


PLACES = [
    *[(True, "embedding", "", -1, place) for place in (0.0, 0.5)],
    *[(False, "embedding", "", -1, place) for place in (0.25, 0.75)],
    *[(True, "content", "k", 0, 0.9), (True, "content", "q", 0, 0.9), (True, "residual", "", 0, 0.9)],
    *[(False, "content", "k", 0, 0.9), (False, "content", "q", 0, 0.9), (False, "residual", "", 0, 0.9)],
    *[(True, "content", "k", 1, place) for place in (0.0, 0.125)],
    *[(True, "content", "k", 2, place) for place in (0.25, 0.125)],
    *[(True, "content", "q", 1, 0.7), (False, "content", "q", 2, 0.7)],
    *[(False, "content", "k", 2, 0.0), (False, "content", "k", 1, 0.0)],
    *[(True, "content", "k", 0, 0.9, "balanced"), (True, "content", "k", 1, 0.625, "balanced")],
    *[(False, "content", "k", 2, 0.5, "balanced"), (False, "content", "k", 2, 0.0, "balanced")],
    *[(True, "residual", "", 1, 0.375), (False, "residual", "", 1, 0.0), (False, "residual", "", 2, 1.0)],
]


def test_parents_by_group_and_space():
    """Layer 0 is left out, but for the embedding, which is before it; so are queries."""
    assert of_renamed(ranked(PLACES)) == {
        **{"parent_place_keys_rare": 0.125, "parent_hit_keys_rare": 0.25},
        **{"parent_place_keys_balanced_rare": 0.625, "parent_hit_keys_balanced_rare": 0.0},
        **{"parent_place_keys_balanced_half": 0.25, "parent_hit_keys_balanced_half": 0.5},
        **{"parent_place_residual_rare": 0.375, "parent_hit_residual_rare": 0.0},
        **{"parent_place_embedding_rare": 0.25, "parent_hit_embedding_rare": 0.5},
        **{"parent_place_keys_half": 0.0, "parent_hit_keys_half": 1.0},
        **{"parent_place_residual_half": 0.5, "parent_hit_residual_half": 0.5},
        **{"parent_place_embedding_half": 0.5, "parent_hit_embedding_half": 0.0},
    }


def test_parents_of_a_group_that_has_none():
    found = of_renamed(ranked([row for row in PLACES if not row[0]]))
    assert all(math.isnan(value) == name.endswith("_rare") for name, value in found.items())
    assert len(found) == 16


# ---------------------------------------------------------------------- an analysis
ENDS = ("rare", "frequent")
HEADS, LAYERS, WIDTH = {"k": 2, "q": 4}, 6, 8


def with_words(run, *, seed=0):
    """The run with all columns of clusters, with counts that differ, and the vectors of its nouns."""
    rng = np.random.default_rng(seed)
    table, types = run.tables["clusters"].copy(), run.tables["types"].copy()
    for name in ("kappa", "participation_ratio"):
        table[name] = rng.uniform(1, 50, len(table))
    types["count"] = rng.permutation(len(types)) + 8
    context = table[table["space"] == "embedding"].assign(space="context", auc=0.55)
    save_vectors(run.path, types, rng)
    return rewrite(run, clusters=pd.concat([table, context], ignore_index=True), types=types)


def save_vectors(path, types, rng, words=None):
    """As an analysis writes them: a block a space and layer, and in what order the words stand."""
    words = types.loc[types["category"] != "", "word"].tolist() if words is None else words
    blocks = {f"content.{v}.{at}": (len(words), HEADS[v], WIDTH) for v in HEADS for at in range(LAYERS)}
    blocks |= {f"content_balanced.k.{at}": (len(words), HEADS["k"], WIDTH) for at in range(LAYERS)}
    blocks |= {f"residual.x.{at}": (len(words), 1, WIDTH) for at in range(LAYERS)}
    blocks |= {"embedding.x.-1": (len(words), 1, WIDTH)}
    (path / "vectors").mkdir(exist_ok=True)
    save_file(
        {name: rng.normal(size=shape).astype(np.float16) for name, shape in blocks.items()},
        path / "vectors" / "clusters.safetensors",
        metadata={"types": json.dumps(words)},
    )


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    return with_words(write_synthetic_run(tmp_path_factory.mktemp("analysed"), qk_norm=False))


@pytest.fixture(scope="module")
def numbers(analysed):
    return of_analysis(analysed)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def test_lengths_of_an_analysis(analysed, numbers):
    table = analysed.tables["norms"]
    rows = table[(table.vector == "k") & (table.stage == "scored") & (table.gauge == "raw")]
    keys, first = rows[rows.token_class == "all"], rows[rows.token_class == "first"]
    assert len(keys) == len(first) == LAYERS * HEADS["k"]
    assert numbers["k_log_sd"] == np.median(keys.log_sd)
    assert numbers["k_geo_mean"] == pytest.approx(mean(keys.geo_mean))
    assert numbers["first_key_ratio"] == pytest.approx(np.median(first.geo_mean.values / keys.geo_mean.values))


def test_length_against_angle_of_an_analysis(analysed, numbers):
    table = analysed.tables["split"]
    for gauge, end in (("raw", ""), ("balanced", "_balanced")):
        rows = table[(table.gauge == gauge) & (table["first"] == "out") & (table.document == -1)]
        assert len(rows) == LAYERS * HEADS["q"]
        norm, angle = sum(rows.phi_norm), sum(rows.phi_angle)
        assert numbers[f"norm_share{end}"] == pytest.approx(norm / (norm + angle))
        for name in ("tv", "r2", "norm_attention_rho"):
            assert numbers[f"{name}{end}"] == pytest.approx(np.median(rows[name]))
    assert numbers["k_log_sd_balanced"] == pytest.approx(np.median(rows.k_log_sd))


def test_attention_of_an_analysis(analysed, numbers):
    logits, sinks, rates = (analysed.tables[name] for name in ("logits", "sinks", "sink_rates"))
    assert numbers["max_logit"] == max(logits["max"])
    for name, column in (("logit_row_sd", "row_sd"), ("entropy", "entropy")):
        assert numbers[name] == pytest.approx(mean(logits[column]))
    assert numbers["one_hot_rate_weighted"] == pytest.approx(mean(logits.one_hot_rate_weighted))
    assert numbers["first_mass"] == pytest.approx(mean(sinks.first_mass))
    assert numbers["first_mass_max_head"] == max(sinks.first_mass)
    for layer in range(LAYERS):
        assert numbers[f"first_mass_layer{layer}"] == pytest.approx(mean(sinks[sinks.layer == layer].first_mass))
    whole = rates[(rates.layer == -1) & (rates.epsilon == 0.3)]
    assert [numbers["sink_rate"]] == whole.rate.tolist()


def test_classes_of_an_analysis(analysed, numbers):
    attention, lift = analysed.tables["class_attention"], analysed.tables["norm_lift"]
    function = attention[attention.token_class == "function"]
    window = analysed.manifest["corpus"]["window"]
    rows = [1 / (row + 1) for row in range(1, window)]  # the rows of first_mass: all but the first
    assert numbers["first_mass_uniform"] == pytest.approx(sum(rows) / len(rows))
    assert numbers["class_sink_function"] == pytest.approx(mean(function.class_sink))
    own = lift[(lift.token_class == "function") & (lift.gauge == "raw")]
    assert len(own) == LAYERS * HEADS["k"]
    assert numbers["norm_lift_function"] == pytest.approx(mean(own.norm_lift))


def test_what_the_first_position_has_more(analysed, numbers):
    table = analysed.tables["class_split"]
    for gauge, end in (("raw", ""), ("balanced", "_balanced")):
        rows = table[(table.token_class == "first") & (table.gauge == gauge)]
        assert len(rows) == LAYERS * HEADS["q"]
        for name, column in (("", "class_sink"), ("_by_length", "norm_part"), ("_by_angle", "angle_part")):
            assert numbers[f"first_lead{name}{end}"] == pytest.approx(mean(rows[column])), (name, gauge)


COLUMNS = ("auc", "auc_shuffled", "kappa", "silhouette", "knn_purity", "anisotropy", "participation_ratio")
SPACES = {
    "keys": ("content", "k", LAYERS - 1, "raw"),
    "keys_balanced": ("content", "k", LAYERS - 1, "balanced"),
    "queries": ("content", "q", LAYERS - 1, "raw"),
    "residual": ("residual", "", LAYERS - 1, "raw"),
    "embedding": ("embedding", "", 1, "raw"),
    "contexts": ("context", "", 1, "raw"),
}


@pytest.mark.parametrize("name", SPACES)
def test_clusters_past_the_first_layer(analysed, numbers, name):
    table = analysed.tables["clusters"]
    space, vector, n, gauge = SPACES[name]
    own = table[(table.space == space) & (table.vector == vector) & (table.gauge == gauge)]
    rows = own[(own["head"] == -1) & (own.layer != 0)]
    assert len(rows) == n
    for column in COLUMNS:
        assert numbers[f"{column}_{name}"] == pytest.approx(mean(rows[column])), column
    assert {f"{column}_{name}" for column in COLUMNS} <= set(dict(clusters(analysed)))


def test_clusters_of_one_layer(tmp_path):
    """It is the first and the last: there is nothing past it."""
    run = with_words(write_synthetic_run(tmp_path, qk_norm=False, n_layers=1))
    table = run.tables["clusters"]
    rows = table[(table.vector == "k") & (table.gauge == "raw") & (table["head"] == -1)]
    assert [dict(clusters(run))["auc_keys"]] == rows.auc.tolist()


def test_neighbours_of_rare_and_frequent_words(analysed, numbers):
    table = analysed.tables["neighbours"]
    past = table[(table.space == "content") & (table.vector == "k") & (table.gauge == "raw") & (table.layer > 0)]
    for column in ("self_retrieval_mrr", "stability", "rare_neighbour_share"):
        for band, end in ((0, "rare"), (9, "frequent")):
            rows = past[past.frequency_band == band]
            assert len(rows) == (LAYERS - 1) * HEADS["k"]
            assert numbers[f"{column}_{end}"] == pytest.approx(mean(rows[column]))
    assert numbers["hub_skew"] == pytest.approx(mean(past[past.frequency_band == -1].hub_skew))


def thirds_by_hand(run, words, blocks):
    """Mean purity of the rarer and of the more frequent third of the words, over some blocks (word, head, d)."""
    of = run.tables["types"].set_index("word").loc[words]
    each = [slow_purity(x[:, head].astype(float), list(of.category)) for x in blocks for head in range(x.shape[1])]
    ordered = sorted(range(len(words)), key=lambda at: of["count"].iloc[at])
    third = len(words) // 3
    return [mean(mean(found[at] for found in each) for at in part) for part in (ordered[:third], ordered[-third:])]


def vectors_of(run):
    return load_file(run.path / "vectors" / "clusters.safetensors")


def test_purity_of_rare_and_frequent_words(analysed, numbers):
    words = [word for word, name in analysed.tables["types"][["word", "category"]].to_numpy() if name]
    vectors = vectors_of(analysed)
    for name, stem in (("keys", "content.k"), ("keys_balanced", "content_balanced.k"), ("residual", "residual.x")):
        rare, frequent = thirds_by_hand(analysed, words, [vectors[f"{stem}.{at}"] for at in range(1, LAYERS)])
        assert numbers[f"purity_{name}_rare"] == pytest.approx(rare)
        assert numbers[f"purity_{name}_frequent"] == pytest.approx(frequent)
        assert rare != pytest.approx(frequent, abs=1e-3)


def test_words_of_categories_that_clusters_leave_out(tmp_path):
    """A category of fewer than four words has rows among the types and no vectors."""
    run = with_words(write_synthetic_run(tmp_path, qk_norm=False))
    types = run.tables["types"]
    small = pd.DataFrame(
        [{"word": f"odd{i}", "category": "oddities", "zipf": 4.0, "count": 9, "band": -1} for i in range(3)]
    )
    words = [word for word, name in types[["word", "category"]].to_numpy() if name]
    expected = of_analysis(run)
    found = of_analysis(rewrite(run, types=pd.concat([types[:10], small, types[10:]], ignore_index=True)))
    assert found == expected
    rare, _ = thirds_by_hand(run, words, [vectors_of(run)[f"content.k.{at}"] for at in range(1, LAYERS)])
    assert found["purity_keys_rare"] == pytest.approx(rare)


def test_an_analysis_without_words(tmp_path, numbers):
    run = write_synthetic_run(tmp_path, qk_norm=False)
    found = of_analysis(rewrite(run, clusters=None, neighbours=None, types=None))
    of_words = (
        "auc",
        "kappa",
        "silhouette",
        "knn_purity",
        "anisotropy",
        "participation",
        "purity",
        "self",
        "stability",
    )
    of_words += ("rare_neighbour", "hub_skew")
    assert found == {name: value for name, value in numbers.items() if not name.startswith(of_words)}


def test_an_analysis_without_neighbours(tmp_path, numbers):
    run = with_words(write_synthetic_run(tmp_path, qk_norm=False))
    found = of_analysis(rewrite(run, neighbours=None))
    assert set(numbers) - set(found) == {
        *(f"{name}_{end}" for name in ("self_retrieval_mrr", "stability", "rare_neighbour_share") for end in ENDS),
        "hub_skew",
    }


def test_an_analysis_of_one_gauge(tmp_path, numbers):
    run = write_synthetic_run(tmp_path, qk_norm=False)
    raw = {name: table[table.gauge == "raw"] for name, table in run.tables.items() if name in ("split", "class_split")}
    found = of_analysis(rewrite(run, **raw, clusters=None, neighbours=None))
    assert not [name for name in found if name.endswith("_balanced")]
    assert found["norm_share"] == numbers["norm_share"]


def test_bands_that_are_empty_are_passed_over(tmp_path, numbers):
    """The rarest are those of the lowest band that has any; of one band alone nothing is said."""
    run = write_synthetic_run(tmp_path, qk_norm=False)
    table = run.tables["neighbours"].copy()
    table.loc[table.frequency_band == 0, "stability"] = math.nan
    table.loc[table.frequency_band < 9, "self_retrieval_mrr"] = math.nan
    found = of_analysis(rewrite(run, neighbours=table, clusters=None))
    past = table[(table.space == "content") & (table.vector == "k") & (table.gauge == "raw") & (table.layer > 0)]
    assert found["stability_rare"] == pytest.approx(mean(past[past.frequency_band == 1].stability))
    assert found["stability_frequent"] == numbers["stability_frequent"]
    assert not {"self_retrieval_mrr_rare", "self_retrieval_mrr_frequent"} & set(found)

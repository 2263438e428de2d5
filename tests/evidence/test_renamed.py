"""Where parents of renamed words stand: places against loops, windows against the stream, ranks that are planted."""

import math

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from geomprobe.attention.anatomy import examine
from geomprobe.attention.seam import attending
from geomprobe.attention.stages import Notebook
from geomprobe.corpus.contexts import CONTEXT
from geomprobe.evidence.record import of_renamed
from geomprobe.evidence.renamed import N_CONTEXTS, gauge_windows, parent_ranks, places_of_own, renamed_contexts
from geomprobe.lab.renaming import Renamed
from geomprobe.lab.text import TextData
from tests.lab.decoders import SMALL, fresh


# ---------------------------------------------------------------------- places
def slow_places(similar):
    found = []
    for i, row in enumerate(similar):
        others = [value for j, value in enumerate(row) if j != i]
        points = [1.0 if value > row[i] else 0.5 if value == row[i] else 0.0 for value in others]
        found.append(sum(points) / len(others))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_places_are_those_of_loops(seed):
    """Of whole numbers, so that many are equal."""
    similar = np.random.default_rng(seed).integers(0, 6, size=(11, 11)).astype(float)
    assert places_of_own(similar).tolist() == pytest.approx(slow_places(similar), abs=1e-15)


def test_places_of_three_words():
    similar = np.array([[0.9, 0.1, 0.2], [0.6, 0.5, 0.4], [0.3, 0.2, 0.1]])
    assert places_of_own(similar).tolist() == [0.0, 0.5, 1.0]


def test_equal_ones_count_half():
    assert places_of_own(np.ones((5, 5))).tolist() == [0.5] * 5
    assert places_of_own(np.array([[0.5, 0.5, 0.1], [0.7, 0.7, 0.7], [0.2, 0.9, 0.2]])).tolist() == [0.25, 0.5, 0.75]


def test_the_nearest_and_the_farthest():
    n = 7
    assert places_of_own(2 * np.eye(n) - 1).tolist() == [0.0] * n
    assert places_of_own(1 - 2 * np.eye(n)).tolist() == [1.0] * n


def test_a_word_alone_or_without_direction_has_no_place():
    assert np.isnan(places_of_own(np.ones((1, 1)))).all()
    similar = np.eye(3)
    similar[1] = np.nan
    assert np.isnan(places_of_own(similar)).tolist() == [False, True, False]


def near_half(places, n_draws):
    """Whether the mean is within three standard errors of one half."""
    error = np.std(places, ddof=1) / math.sqrt(n_draws)
    return abs(np.mean(places) - 0.5) < 3 * error


def test_random_vectors_stand_anywhere():
    rng = np.random.default_rng(0)
    means = []
    for _ in range(300):
        own, parent = rng.normal(size=(2, 9, 5))
        means.append(places_of_own(own @ parent.T).mean())
    assert near_half(means, len(means))


# ---------------------------------------------------------------------- windows
FIRST_WORD = 10  # ids of the fill are below
GOES_ON = FIRST_WORD - 1  # a piece that makes a longer word of the one before it
N_WORDS = 6
PLACES = 12  # of each token


def word(number, *, rare=False):
    return Renamed(f"w{number}", FIRST_WORD + number, FIRST_WORD + N_WORDS + number, f" w{number}~", 0.5, rare)


def save_tokenizer(folder, n_words):
    """Whole words, and one piece that goes on."""
    vocabulary = {f"Ġf{index}": index for index in range(GOES_ON)} | {"on": GOES_ON}
    vocabulary |= {f"Ġw{number}": FIRST_WORD + number for number in range(n_words)}
    (folder / "tokenizer").mkdir(exist_ok=True)
    Tokenizer(WordLevel(vocabulary, unk_token="on")).save(str(folder / "tokenizer" / "tokenizer.json"))


def test_windows_may_begin_with_a_bos(tmp_path):
    data = streamed(tmp_path / "data")
    (_, own), (_, begun) = renamed_contexts(data), renamed_contexts(data, 7)
    assert (begun.ids[:, 0] == 7).all()
    assert np.array_equal(begun.ids[:, 1:], own.ids[:, 1:])
    plain, marked = gauge_windows(data), gauge_windows(data, 7)
    assert len(plain) > 0
    assert (marked[:, 0] == 7).all()
    assert np.array_equal(marked[:, 1:], plain[:, 1:])
    assert not (plain[:, 0] == 7).all()


def streamed(folder, *, counts=None, seed=0, n_words=N_WORDS):
    """Held-out tokens with each word's two tokens at so many places: `counts` by id, or `PLACES`."""
    rng = np.random.default_rng(seed)
    ids = range(FIRST_WORD, FIRST_WORD + 2 * N_WORDS)
    stream = rng.integers(0, GOES_ON, size=4000).astype(np.uint16)
    free = iter(rng.permutation(np.arange(CONTEXT - 1, len(stream))))
    for token in ids:
        for _ in range((counts or {}).get(token, PLACES)):
            stream[next(free)] = token
    folder.mkdir(exist_ok=True)
    np.save(folder / "held_out.npy", stream)
    save_tokenizer(folder, N_WORDS)
    renamed = [vars(word(number, rare=number % 2 == 1)) for number in range(n_words)]
    return TextData(folder, {"renamed": renamed})


@pytest.fixture
def data(tmp_path):
    return streamed(tmp_path / "data")


def test_windows_end_in_the_token_that_they_are_of(data):
    words, contexts = renamed_contexts(data)
    assert words == data.renamed
    last = [word.new_id for word in words] + [word.parent_id for word in words]
    assert [kind.word for kind in contexts.types] == [f" w{i}~" for i in range(6)] + [f"w{i}" for i in range(6)]
    assert contexts.ids.shape == (2 * N_WORDS * N_CONTEXTS, CONTEXT)
    assert contexts.ids.dtype == np.int64
    assert contexts.ids[:, -1].tolist() == [token for token in last for _ in range(N_CONTEXTS)]
    assert contexts.type_index.tolist() == [at for at in range(2 * N_WORDS) for _ in range(N_CONTEXTS)]
    assert contexts.rows(range(2 * N_WORDS), N_CONTEXTS).ravel().tolist() == list(range(len(contexts.ids)))
    assert contexts.left_out == {"too_rare": 0}
    assert contexts.n_contexts == len(contexts.document) == len(contexts.start)


def ends_of(windows, stream):
    """Where in the stream windows end, by all their tokens but the last."""
    found = []
    for window in windows:
        own = [at for at in range(CONTEXT - 1, len(stream)) if stream[at - CONTEXT + 1 : at] == list(window)[:-1]]
        assert len(own) == 1
        found += own
    return found


def test_windows_end_at_sixteen_different_places_of_the_word(data):
    """Whichever of its two tokens stands there."""
    _, contexts = renamed_contexts(data)
    stream = data.held_out.tolist()
    windows = contexts.ids.reshape(2, N_WORDS, N_CONTEXTS, CONTEXT).tolist()
    mixed = 0
    for number, found in enumerate(data.renamed):
        ends = [ends_of(windows[side][number], stream) for side in (0, 1)]
        assert len({*ends[0], *ends[1]}) == 2 * N_CONTEXTS
        standing = [{stream[at] for at in own} for own in ends]
        assert standing[0] | standing[1] <= {found.new_id, found.parent_id}
        mixed += len(standing[0]) + len(standing[1])
    assert mixed > 2 * N_WORDS  # drawn from both together


def test_beginnings_of_longer_words_are_no_places(tmp_path):
    data = streamed(tmp_path / "data")
    stream = data.held_out.copy()
    at = np.flatnonzero(stream == word(0).parent_id)
    stream[at + 1] = GOES_ON
    np.save(data.folder / "held_out.npy", stream)
    words, contexts = renamed_contexts(TextData(data.folder, data.about))
    assert "w0" not in [found.parent for found in words]  # 12 places are left of 24
    assert contexts.left_out["too_rare"] >= 1


def test_places_are_drawn_from_all_of_the_stream(tmp_path):
    """Not the first ones."""
    data = streamed(tmp_path / "data", counts={FIRST_WORD: 200})
    _, contexts = renamed_contexts(data)
    ends = ends_of(contexts.ids[contexts.type_index == N_WORDS].tolist(), data.held_out.tolist())
    assert max(ends) > len(data.held_out) / 2


def test_a_token_that_is_hardly_there_has_as_many_contexts(tmp_path):
    """A word of the rarest decile goes by its new token once in some hundred places, or not at all here."""
    data = streamed(tmp_path / "data", counts={word(1).new_id: 0, word(1).parent_id: 30})
    words, contexts = renamed_contexts(data)
    assert words == data.renamed
    assert (contexts.ids[contexts.type_index == 1, -1] == word(1).new_id).all()


def test_words_that_are_too_rare_are_left_out_and_counted(tmp_path):
    """Both tokens of a word together must stand there sixteen times."""
    few = {word(1).new_id: 3, word(2).parent_id: 2, word(5).new_id: 4}
    data = streamed(tmp_path / "data", counts=few)
    words, contexts = renamed_contexts(data)
    assert [found.parent for found in words] == ["w0", "w3", "w4", "w5"]
    assert contexts.left_out == {"too_rare": 2}
    assert len(contexts.types) == 8
    assert contexts.ids[::N_CONTEXTS, -1].tolist() == [found.new_id for found in words] + [w.parent_id for w in words]


def test_places_without_enough_before_them_do_not_count(tmp_path):
    data = streamed(tmp_path / "data", counts={word(0).new_id: 0, word(0).parent_id: 0})
    stream = data.held_out.copy()
    stream[stream == GOES_ON] = 0
    stream[: CONTEXT - 1] = word(0).new_id
    stream[CONTEXT - 1 : CONTEXT + 14] = word(0).new_id  # fifteen that have
    np.save(data.folder / "held_out.npy", stream)
    assert word(0) not in renamed_contexts(TextData(data.folder, data.about))[0]
    stream[CONTEXT + 14] = word(0).new_id
    np.save(data.folder / "held_out.npy", stream)
    words, contexts = renamed_contexts(TextData(data.folder, data.about))
    assert words[0] == word(0)
    assert (contexts.ids[:N_CONTEXTS, -1] == word(0).new_id).all()


def test_the_same_windows_each_time(data):
    (one, first), (two, second) = renamed_contexts(data), renamed_contexts(TextData(data.folder, data.about))
    assert one == two
    assert np.array_equal(first.ids, second.ids)
    assert first.types == second.types


# ---------------------------------------------------------------------- ranks
MANY = 40  # words
VOCABULARY = FIRST_WORD + 2 * MANY
LIKE_ITS_PARENT = (3, 4, 11)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """Held-out tokens with forty renamed words, at random places."""
    folder = tmp_path_factory.mktemp("crowded")
    stream = np.random.default_rng(1).integers(0, VOCABULARY, size=6000).astype(np.uint16)
    np.save(folder / "held_out.npy", stream)
    save_tokenizer(folder, MANY)
    renamed = [
        vars(Renamed(f"w{i}", FIRST_WORD + i, FIRST_WORD + MANY + i, f" w{i}~", 0.5, i % 2 == 1)) for i in range(MANY)
    ]
    return TextData(folder, {"renamed": renamed})


def ranks_of(model, data, folder):
    notebook = Notebook(attending(model))
    ids = torch.from_numpy(data.held_out[:20].astype("int64"))[None]
    return parent_ranks(model, examine(model, ids, notebook=notebook), notebook, data, folder)


@pytest.fixture(scope="module")
def model():
    return fresh("A0", vocab_size=VOCABULARY)


@pytest.fixture(scope="module")
def untouched(model, crowded, tmp_path_factory):
    return ranks_of(model, crowded, tmp_path_factory.mktemp("ranks") / "pass")


@pytest.fixture(scope="module")
def planted(crowded, tmp_path_factory):
    """The second tokens of some words have their parent's embedding; that of another has the opposite."""
    model = fresh("A0", vocab_size=VOCABULARY)
    rows = model.get_input_embeddings().weight
    with torch.no_grad():
        for at in LIKE_ITS_PARENT:
            rows[FIRST_WORD + MANY + at] = rows[FIRST_WORD + at]
        rows[FIRST_WORD + MANY + 20] = -rows[FIRST_WORD + 20]
    return ranks_of(model, crowded, tmp_path_factory.mktemp("planted") / "pass")


def test_a_row_a_word_and_cell(untouched, crowded):
    n_layers, heads = SMALL["num_hidden_layers"], {"k": 2, "q": 4}
    cells = {("embedding", "", -1, -1, "raw")} | {("residual", "", layer, -1, "raw") for layer in range(n_layers)}
    cells |= {
        ("content", v, layer, head, gauge)
        for v, gauge in (("q", "raw"), ("k", "raw"), ("k", "balanced"))
        for layer in range(n_layers)
        for head in range(heads[v])
    }
    keys = ["space", "vector", "layer", "head", "gauge"]
    assert set(untouched[keys].itertuples(index=False, name=None)) == cells
    assert len(untouched) == MANY * len(cells)
    for _, rows in untouched.groupby(keys):
        assert rows["word"].tolist() == [found.parent for found in crowded.renamed]
        assert rows["rare"].tolist() == [found.rare for found in crowded.renamed]
    assert (untouched["hit"] == (untouched["place"] == 0)).all()


def slow_ranks(contexts, x):
    """Places by loops, from one vector a context (context, d)."""
    x = x.double().numpy()
    types = [x[contexts.type_index == at] for at in range(len(contexts.types))]
    centre = sum(own.mean(0) for own in types) / len(types)
    seen = [np.mean([(v - centre) / math.sqrt(sum((v - centre) ** 2)) for v in own], axis=0) for own in types]

    def cosine(a, b):
        return sum(a * b) / math.sqrt(sum(a * a) * sum(b * b))

    n = len(seen) // 2
    return slow_places([[cosine(own, parent) for parent in seen[n:]] for own in seen[:n]])


def test_ranks_are_those_of_the_vectors_at_the_last_token(model, untouched, crowded):
    """Each space, against what the model is asked for directly."""
    _, contexts = renamed_contexts(crowded)
    ids = torch.from_numpy(contexts.ids)
    with torch.no_grad():
        hidden = model.model(ids, output_hidden_states=True).hidden_states
        made = {("embedding", "", -1, -1): model.get_input_embeddings()(ids[:, -1])}
        for at, layer in enumerate(model.model.layers):
            made["residual", "", at, -1] = hidden[at][:, -1]
            normed = layer.input_layernorm(hidden[at][:, -1])
            for vector, projection in (("q", layer.self_attn.q_proj), ("k", layer.self_attn.k_proj)):
                for head, part in enumerate(projection(normed).split(SMALL["head_dim"], dim=-1)):
                    made["content", vector, at, head] = part
    raw = untouched[untouched["gauge"] == "raw"]
    found = dict(iter(raw.groupby(["space", "vector", "layer", "head"])["place"]))
    assert found.keys() == made.keys()
    for key, x in made.items():
        # Rounding may swap two parents that stand equally near.
        assert found[key].tolist() == pytest.approx(slow_ranks(contexts, x), abs=1.5 / (MANY - 1)), key
        assert found[key].mean() == pytest.approx(np.mean(slow_ranks(contexts, x)), abs=1e-3), key


def test_words_with_their_parents_embedding_lie_at_it(planted):
    rows = planted[planted["space"] == "embedding"].set_index("word")
    chosen = [f"w{at}" for at in LIKE_ITS_PARENT]
    assert rows.loc[chosen, "place"].tolist() == [0.0] * len(chosen)
    assert rows.loc[chosen, "hit"].all()
    assert rows.loc["w20", "place"] > 0.9
    assert not rows.loc["w20", "hit"]
    others = rows.drop(index=[*chosen, "w20"])
    assert others["hit"].mean() < 0.2
    assert near_half(others["place"], len(others))
    # The stream enters layer 0 as the embedding.
    first = planted[(planted["space"] == "residual") & (planted["layer"] == 0)].set_index("word")
    assert first.loc[chosen, "hit"].all()


def test_of_a_model_that_learned_nothing_they_lie_anywhere(untouched):
    rows = untouched[untouched["space"] == "embedding"]
    assert near_half(rows["place"], len(rows))
    assert rows["place"].std() > 0.2


def test_no_word_that_stands_often_enough(model, tmp_path):
    few = dict.fromkeys(range(FIRST_WORD, FIRST_WORD + 2 * N_WORDS), 3)
    data = streamed(tmp_path / "data", counts=few)
    words, contexts = renamed_contexts(data)
    assert (words, contexts.ids.shape) == ((), (0, CONTEXT))
    assert contexts.left_out == {"too_rare": N_WORDS}
    ranks = ranks_of(model, data, tmp_path / "pass")
    assert len(ranks) == 0
    assert all(math.isnan(value) for value in of_renamed(ranks).values())


def test_the_file_of_the_pass_is_where_it_was_asked_for(model, tmp_path):
    data = streamed(tmp_path / "data", n_words=3)
    ranks_of(model, data, tmp_path / "pass")
    assert {path.name for path in tmp_path.iterdir()} == {"data", "pass"}

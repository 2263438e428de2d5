"""Words in context: which are found, where, and what a model reads of them."""

from collections import Counter

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from geomprobe.corpus.contexts import (
    CLUSTER_CONTEXTS,
    CONTRAST_CONTEXTS,
    NO_BAND,
    ContextPlan,
    Contexts,
    find_contexts,
    index_words,
)
from geomprobe.corpus.rarity import zipf
from geomprobe.corpus.sources import Document, Source
from geomprobe.errors import CorpusError, InvalidParameter

CONTEXT = 24
CATEGORIES = {
    "animals": ("dog", "cat", "cow", "fox", "wolf", "goat"),
    "food": ("corn", "milk", "tea", "egg", "rice", "salt"),
    "weather": ("rain", "snow", "wind", "fog"),
}
PLAIN = (
    *(
        [
            "the",
            "a",
            "of",
            "and",
            "in",
            "to",
            "was",
            "his",
            "her",
            "that",
            "with",
            "they",
            "said",
            "came",
            "went",
            "saw",
            "over",
            "under",
            "near",
            "old",
            "new",
            "red",
            "big",
        ]
    ),
    *(
        [
            "small",
            "had",
            "not",
            "one",
            "two",
            "then",
            "when",
            "road",
            "town",
            "man",
            "day",
            "night",
            "hill",
            "lake",
            "long",
            "good",
            "bad",
            "cold",
            "warm",
        ]
    ),
)
ODD = ("London", "Mary", "zorbli", "quavink")  # two names, two words that no list knows
RARE = ("hawk", "frost")  # not sixteen times
WORDS = (*(word for words in CATEGORIES.values() for word in words), *PLAIN, *ODD)


def source_of(*texts, name="test"):
    return Source(name, tuple(Document(f"d{index}", text) for index, text in enumerate(texts)))


def prose(rng, n):
    """Sentences of n words in all, some of them often and some seldom, with a paragraph now and then."""
    weight = 1 / (12 + np.arange(len(WORDS)))
    order = rng.permutation(len(WORDS))
    drawn = iter(rng.choice(order, size=n, p=weight / weight.sum()).tolist())
    parts, left = [], n
    while left:
        length = min(left, int(rng.integers(5, 12)))
        words = [WORDS[next(drawn)] for _ in range(length)]
        parts.append(" ".join([words[0].capitalize(), *words[1:]]) + rng.choice([".", "!", ", as it was."]))
        left -= length
    ends = rng.choice([" ", "\n\n"], p=[0.8, 0.2], size=len(parts))
    return "".join(part + end for part, end in zip(parts, ends, strict=True))


@pytest.fixture(scope="module")
def source():
    """Three documents of different lengths, with two words that are too rare."""
    rng = np.random.default_rng(5)
    texts = [prose(rng, n) for n in (4500, 12000, 7500)]
    return source_of(*texts[:2], texts[2] + " He saw a hawk and the frost." * (CLUSTER_CONTEXTS - 1))


def wrap(backend, **special):
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=8, **special)


def trained(source, kind, *, without=()):
    """A tokenizer that has a token for each word of the source, but for some."""
    backend = Tokenizer(models.BPE() if kind == "byte level" else models.BPE(unk_token="<unk>"))
    if kind == "byte level":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        backend.decoder = decoders.Metaspace(prepend_scheme="first")
        alphabet = sorted({char for document in source.documents for char in document.text})
    trainer = trainers.BpeTrainer(
        vocab_size=4000, special_tokens=["<unk>", "<bos>"], initial_alphabet=alphabet, show_progress=False
    )
    texts = [document.text for document in source.documents]
    for word in without:
        texts = [text.replace(f" {word}", " ") for text in texts]
    backend.train_from_iterator(texts, trainer)
    if kind == "byte level":
        return wrap(backend)
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return wrap(backend, bos_token="<bos>", unk_token="<unk>")


KINDS = ("byte level", "metaspace")


@pytest.fixture(scope="module")
def tokenizers_of(source):
    return {kind: trained(source, kind) for kind in KINDS}


@pytest.fixture(params=KINDS)
def tokenizer(request, tokenizers_of):
    return tokenizers_of[request.param]


def plan(**changes):
    return ContextPlan(**{"categories": CATEGORIES, "context": CONTEXT, **changes})


def places(contexts):
    """By word, where its windows end."""
    found = {kind.word: [] for kind in contexts.types}
    for index, document, start in zip(contexts.type_index, contexts.document, contexts.start, strict=True):
        found[contexts.types[index].word].append((int(document), int(start)))
    return found


def same(a: Contexts, b: Contexts):
    return a.types == b.types and np.array_equal(a.ids, b.ids) and places(a) == places(b) and a.left_out == b.left_out


# ------------------------------------------------------------------ the index
TEXT = (
    "Before the rest there is a lead. the dog, the dog! (the dog) the dogs; the dog's the dog’s dog-like the-dog "
    "dog1 1dog dog_a 3 dogs don't  two  blanks\nhead of line\n\nDog and\tdog Über café x “word” word… "
    "word—dash word/or é 12 I a.b B2B the end"
)


def scanned(text, lead):
    """Character by character: a blank, with something before it, then letters alone."""
    found = []
    for start in range(max(lead, 2), len(text)):
        if text[start - 1] != " " or text[start - 2].isspace() or not text[start].isalpha():
            continue
        end = start
        while end < len(text) and text[end].isalpha():
            end += 1
        behind = text[end : end + 1]
        if not (behind.isalnum() or behind in ("'", "’", "-", "_")):
            found.append((text[start:end], start))
    return found


def lead(context):
    """The characters that must stand before a word."""
    return int(index_words(source_of("a " * 50 * context), context).start.min())


@pytest.mark.parametrize("context", [2, 5, 17])
def test_the_index_is_that_of_a_slow_scan(context):
    assert lead(context) >= 6 * context  # an English word with its blank
    texts = (TEXT, "", "short", "x" * lead(context) + " dog the dog", TEXT + "\n" + TEXT)
    expected = {}
    for document, text in enumerate(texts):
        for word, start in scanned(text, lead(context)):
            expected.setdefault(word, []).append((document, start))
    index = index_words(source_of(*texts), context)
    found = {}
    for form, word in enumerate(index.forms):
        at = index.places(form)
        found[word] = list(zip(index.document[at].tolist(), index.start[at].tolist(), strict=True))
        assert index.counts[form] == len(found[word])
    assert found == expected
    assert {"dog", "the"} <= set(found)


def test_what_is_a_word_in_a_text():
    text = "It is so and was ever so: "
    counted = {}
    for rest in (
        *("a dog", "a dog.", "a dog, a", "a dogs", "a dog's", "a dog’s", "a dog-like", "a dog1", "a dog_a"),
        *("a  dog", "a\ndog", "a\tdog", "a (dog", "a Dog", "a\n dog"),
    ):
        index = index_words(source_of(text + rest), 1)
        counted[rest] = "dog" in index.forms
    assert [rest for rest, found in counted.items() if found] == ["a dog", "a dog.", "a dog, a"]


def test_a_text_without_words_has_an_empty_index():
    index = index_words(source_of("12 34", ""))
    assert index.forms == ()
    assert index.first.tolist() == [0]
    assert len(index.document) == len(index.start) == len(index.counts) == 0


def test_marks_belong_to_their_word():
    """No piece of a word is taken for one: accents may be characters of their own, vowels in Hindi always are."""
    index = index_words(source_of("so it was a cafe\u0301 and a nai\u0308ve thing हम हिन्दी में हैं"), 2)
    assert not {"cafe", "nai", "ह", "म"} & set(index.forms)


# ------------------------------------------------------------------ windows
def test_as_many_windows_of_each_type(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan())
    assert contexts.ids.shape == (contexts.n_contexts, CONTEXT)
    assert contexts.ids.dtype == np.int64
    assert (np.diff(contexts.type_index) >= 0).all()
    n = Counter(contexts.type_index.tolist())
    for index, kind in enumerate(contexts.types):
        assert n[index] == kind.n_contexts == (CLUSTER_CONTEXTS if kind.band == NO_BAND else CONTRAST_CONTEXTS)
    assert (CLUSTER_CONTEXTS, CONTRAST_CONTEXTS) == (8, 16)
    assert all(len(set(found)) == len(found) for found in places(contexts).values())


def test_without_contrasts_only_the_categories(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan(contrasts=False))
    assert {kind.word: kind.category for kind in contexts.types} == {
        word: name for name, words in CATEGORIES.items() for word in words
    }
    assert {kind.band for kind in contexts.types} == {NO_BAND}
    assert contexts.n_contexts == 8 * len(contexts.types)
    assert contexts.contrasted == []
    assert contexts.labelled == list(range(len(contexts.types)))


def test_without_categories_only_the_contrasts(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan(categories={}))
    assert {kind.category for kind in contexts.types} == {""}
    assert contexts.n_contexts == 16 * len(contexts.types)
    assert contexts.labelled == []


def test_a_word_of_both_keeps_its_category_and_its_band(source, tokenizer):
    both = find_contexts(source, tokenizer, plan())
    alone = find_contexts(source, tokenizer, plan(contrasts=False))
    kinds = {kind.word: kind for kind in both.types}
    assert kinds["dog"].category == "animals"
    assert kinds["dog"].band != NO_BAND
    # Its first windows are those that clusters alone would have: one draw of places a word.
    for word, found in places(alone).items():
        assert places(both)[word][:CLUSTER_CONTEXTS] == found


def test_rows_are_the_first_windows_of_types(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan())
    rows = contexts.rows(contexts.labelled, 8)
    assert rows.shape == (len(contexts.labelled), 8)
    for index, row in zip(contexts.labelled, rows, strict=True):
        assert row.tolist() == np.flatnonzero(contexts.type_index == index)[:8].tolist()


def test_contexts_alone_are_means_of_a_random_vector_a_token(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan())
    chosen = contexts.labelled[:3]
    bags = contexts.bags(chosen, 8)
    assert bags.shape == (3, 8, 256)
    rows = contexts.rows(chosen, 8)
    used = sorted({int(token) for row in rows.ravel() for token in contexts.ids[row][:-1]})
    count = np.array([[int((contexts.ids[row][:-1] == token).sum()) for token in used] for row in rows.ravel()])
    # The random vectors of the tokens are what makes all bags from the counts, and they are round.
    drawn, *_ = np.linalg.lstsq(count / (contexts.ids.shape[1] - 1), bags.reshape(-1, 256), rcond=None)
    assert np.abs(count / (contexts.ids.shape[1] - 1) @ drawn - bags.reshape(-1, 256)).max() < 1e-5
    assert np.array_equal(contexts.bags(chosen, 8), bags)
    squares = (bags.astype(float) ** 2).sum(-1).ravel()
    expected = 256 * (count**2).sum(1) / (contexts.ids.shape[1] - 1) ** 2
    assert np.abs(squares / expected - 1).max() < 0.5


def test_a_window_ends_with_its_word(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan())
    for index, document, start, ids in zip(
        contexts.type_index, contexts.document, contexts.start, contexts.ids, strict=True
    ):
        word = contexts.types[index].word
        text = source.documents[document].text
        assert text[start : start + len(word)] == word
        assert text[start - 1] == " "
        assert tokenizer.decode([ids[-1]]).strip() == word


@pytest.mark.parametrize("bos", ["default", "never"])
def test_a_window_holds_the_tokens_of_the_text_before_its_word(source, tokenizer, bos):
    """Tokenized here from the head of the document, and not from somewhere before the word."""
    contexts = find_contexts(source, tokenizer, plan(bos=bos))
    with_bos = bos == "default" and tokenizer.bos_token_id is not None
    assert with_bos == (contexts.ids[:, 0] == 1).all()
    assert with_bos == (contexts.ids == 1).any()
    for row in range(0, contexts.n_contexts, 7):
        kind = contexts.types[contexts.type_index[row]]
        end = contexts.start[row] + len(kind.word)
        text = source.documents[contexts.document[row]].text[:end]
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        expected = [1, *ids[-CONTEXT + 1 :]] if with_bos else ids[-CONTEXT:]
        assert contexts.ids[row].tolist() == expected


def test_where_there_is_a_bos_token_it_may_be_asked_for(source, tokenizers_of):
    tokenizer = tokenizers_of["byte level"]
    with pytest.raises(CorpusError, match="This tokenizer has no BOS token to put in front of each window"):
        find_contexts(source, tokenizer, plan(bos="always"))
    always = find_contexts(source, tokenizers_of["metaspace"], plan(bos="always"))
    assert same(always, find_contexts(source, tokenizers_of["metaspace"], plan()))


def test_document_names(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan())
    assert contexts.document_names == ("d0", "d1", "d2")
    assert set(contexts.document.tolist()) == {0, 1, 2}


# ------------------------------------------------------------------ the same places whatever the tokenizer
def test_two_tokenizers_are_asked_about_the_same_places(source, tokenizers_of):
    a, b = (find_contexts(source, tokenizers_of[kind], plan()) for kind in KINDS)
    assert a.types == b.types
    assert places(a) == places(b)
    assert a.left_out == b.left_out
    assert not np.array_equal(a.ids, b.ids)


def test_a_word_that_one_of_them_cuts_does_not_move_the_others(source, tokenizers_of):
    cut = trained(source, "byte level", without=("wolf", "town"))
    assert [len(cut(f" {word}")["input_ids"]) > 1 for word in ("wolf", "town", "dog")] == [True, True, False]
    whole, found = (find_contexts(source, tokenizer, plan()) for tokenizer in (tokenizers_of["metaspace"], cut))
    assert {kind.word for kind in whole.types} - {kind.word for kind in found.types} == {"wolf", "town"}
    assert whole.left_out["no_single_token"] == 0
    assert found.left_out["no_single_token"] == 2  # each word once, though wolf was asked for twice
    there = places(whole)
    assert all(there[word] == at for word, at in places(found).items())
    assert {kind.word: kind for kind in found.types}.items() <= {kind.word: kind for kind in whole.types}.items()


def test_places_near_the_head_are_the_same_too():
    """Of long words a window has more text: what is too near the head for one tokenizer is so for all."""
    rng = np.random.default_rng(0)
    long = ("country", "general", "nations", "against", "another", "subject")
    texts = [" ".join(["Gladly", *rng.choice(long, size=130)]) + "." for _ in range(12)]
    source = source_of(*texts)
    words = trained(source, "metaspace")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=4000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator([" country"] * 9, trainer)  # one word as a token, all the rest in letters
    letters = wrap(backend)
    a, b = (
        places(find_contexts(source, tokenizer, ContextPlan(categories={"one": ("country",)}, contrasts=False)))
        for tokenizer in (words, letters)
    )
    assert a == b


# ------------------------------------------------------------------ the draw
def test_the_same_seed_draws_the_same(source, tokenizer):
    assert same(*(find_contexts(source, tokenizer, plan(seed=3)) for _ in range(2)))


def test_another_seed_draws_other_places(source, tokenizer):
    a, b = (places(find_contexts(source, tokenizer, plan(seed=seed))) for seed in (0, 1))
    assert a.keys() == b.keys()  # there are no more words to draw from
    assert sum(a[word] == b[word] for word in a) < len(a) / 4


def test_another_seed_draws_other_words(source, tokenizer):
    a, b = (find_contexts(source, tokenizer, plan(categories={}, max_types=20, seed=seed)) for seed in (0, 1))
    assert len(a.types) == len(b.types) == 20
    assert {kind.word for kind in a.types} != {kind.word for kind in b.types}


# ------------------------------------------------------------------ which words
def eligible(source):
    """Counts of the words that may be contrasted, in the order in which the text has them."""
    n = Counter()
    for document in source.documents:
        n.update(word for word, _ in scanned(document.text, lead(CONTEXT)))
    often = [word for word, count in n.items() if count >= CONTRAST_CONTEXTS and word == word.lower()]
    return {word: n[word] for word, known in zip(often, zipf(often), strict=True) if not np.isnan(known)}


def test_names_and_unknown_words_are_not_contrasted(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan(categories={}))
    words = {kind.word for kind in contexts.types}
    assert not words & {*ODD, *RARE}
    assert words == set(eligible(source))
    n = Counter(word for document in source.documents for word, _ in scanned(document.text, lead(CONTEXT)))
    often = [word for word, count in n.items() if count >= CONTRAST_CONTEXTS]
    assert {"London", "zorbli"} <= set(often)
    assert contexts.left_out == {
        "too_rare": 0,
        "beside_mates": 0,
        "no_single_token": 0,
        "unknown_word": 2,
        "capitalised": sum(word != word.lower() for word in often),
    }


def test_in_german_a_capital_is_a_noun():
    text = " Dann kam der Hund mit dem Kind aus der Stadt in das Haus und war da." * 40
    german = source_of(text)
    found = {}
    for language in ("de", "en"):
        asked = ContextPlan(categories={}, language=language, context=17)
        contexts = find_contexts(german, trained(german, "byte level"), asked)
        found[language] = {kind.word for kind in contexts.types}
        assert contexts.left_out["capitalised"] == (0 if language == "de" else 5)
    assert {"Dann", "Hund", "Kind", "Stadt", "Haus", "kam"} <= found["de"]
    assert not {"Hund", "Kind"} & found["en"]


def test_rare_words_are_left_out_and_counted(source, tokenizer):
    """Seven times is too rare for a category; fifteen times would be enough for it, but not for a contrast."""
    asked = {"rare": (*RARE, "absent"), "animals": ("dog", "cat")}
    contexts = find_contexts(source, tokenizer, plan(categories=asked, contrasts=False))
    assert [kind.word for kind in contexts.types] == ["cat", "dog"]
    assert contexts.left_out["too_rare"] == 3


def test_a_capital_may_stand_in_a_category(source, tokenizer):
    """A person's list is taken as it is written, names and words that no list knows included."""
    contexts = find_contexts(source, tokenizer, plan(categories={"names": ("London", "Mary"), "odd": ("zorbli",)}))
    kinds = {kind.word: kind for kind in contexts.types if kind.category}
    assert set(kinds) == {"London", "Mary", "zorbli"}
    assert {kind.band for kind in kinds.values()} == {NO_BAND}
    assert np.isnan(kinds["zorbli"].zipf)


def test_types_say_how_frequent_they_are(source, tokenizer):
    counts = Counter(word for document in source.documents for word, _ in scanned(document.text, lead(CONTEXT)))
    for kind in find_contexts(source, tokenizer, plan()).types:
        assert kind.count == counts[kind.word]
        assert kind.zipf == zipf([kind.word])[0]


def test_bands_are_deciles_of_the_count(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan())
    counts = sorted(eligible(source).items(), key=lambda item: item[1])  # ties stay in the order of the text
    expected = {}
    for band, part in enumerate(np.array_split(np.arange(len(counts)), 10)):
        expected |= {counts[at][0]: band for at in part}
    assert {kind.word: kind.band for kind in contexts.types if kind.band != NO_BAND} == expected
    assert set(expected.values()) == set(range(10))


@pytest.mark.parametrize("most", [10, 20, 37])
def test_max_types_bounds_categories_and_contrasts(source, tokenizer, most):
    contexts = find_contexts(source, tokenizer, plan(max_types=most))
    bands = Counter(kind.band for kind in contexts.types if kind.band != NO_BAND)
    assert bands == dict.fromkeys(range(10), most // 10)
    assert len(contexts.contrasted) == most // 10 * 10
    assert len(contexts.labelled) == min(most, 16)
    by_category = Counter(contexts.types[index].category for index in contexts.labelled)
    assert max(by_category.values()) <= 8


def spread(words, n, between):
    """Every word n times, each behind as many words of no category."""
    return " ".join([*["was"] * 300, *(word for _ in range(n) for one in words for word in [*["was"] * between, one])])


def test_a_large_category_does_not_crowd_out_the_others(tokenizer):
    asked = {"many": PLAIN[:6] + PLAIN[7:], "animals": CATEGORIES["animals"], "food": CATEGORIES["food"]}
    text = spread([word for words in asked.values() for word in words], CLUSTER_CONTEXTS, CONTEXT)
    contexts = find_contexts(source_of(text), tokenizer, plan(categories=asked, contrasts=False, max_types=20))
    found = Counter(kind.category for kind in contexts.types)
    assert found == {"many": 8, "animals": 6, "food": 6}
    many = {kind.word for kind in contexts.types if kind.category == "many"}
    assert many == set(asked["many"][:8])  # the first of the line


# ------------------------------------------------------------------ words of one category side by side
def words_before(source, document, start):
    """What stands before a place, word by word, lower-cased."""
    spaced = "".join(char if char.isalpha() else " " for char in source.documents[document].text[:start])
    return spaced.lower().split()


def test_no_window_holds_another_word_of_its_category(source, tokenizer):
    contexts = find_contexts(source, tokenizer, plan())
    mates = {word: set(words) - {word} for words in CATEGORIES.values() for word in words}
    near = dict.fromkeys(mates, 0)
    for word, found in places(contexts).items():
        if word in mates:
            for document, start in found:
                before = words_before(source, document, start)
                assert not mates[word] & set(before[-(CONTEXT - 1) :])
                near[word] += bool(mates[word] & set(before[-2 * CONTEXT :]))
    assert sum(near.values()) > 50  # a little farther off they may stand, and do


@pytest.mark.parametrize(("between", "taken"), [(CONTEXT - 2, False), (CONTEXT - 1, True)])
def test_a_word_that_always_stands_beside_its_like_is_left_out(tokenizer, between, taken):
    """Cat follows Dog at one distance; the dog itself follows nothing of its kind for a hundred words."""
    once = [*["was"] * 100, "Dog", *["was"] * between, "cat"]
    text = " ".join(["was"] * 300 + once * CLUSTER_CONTEXTS)
    asked = plan(categories={"animals": ("cat", "Dog")}, contrasts=False)
    contexts = find_contexts(source_of(text), tokenizer, asked)
    assert [kind.word for kind in contexts.types] == (["Dog", "cat"] if taken else ["Dog"])
    assert contexts.left_out["beside_mates"] == (0 if taken else 1)
    assert contexts.left_out["too_rare"] == 0


# ------------------------------------------------------------------ what cannot be
@pytest.mark.parametrize("text", ["", "Too short a text.", "1 2 3 " * 400])
def test_a_text_without_enough_words(tokenizer, text):
    said = (
        r"^The text 'small' has no word that occurs 8 times with 24 tokens before it; give more text with --text, or "
        r"leave clusters and neighbours out with --probes\.$"
    )
    with pytest.raises(CorpusError, match=said):
        find_contexts(source_of(text, name="small"), tokenizer, plan())


def test_bounds_of_a_plan():
    with pytest.raises(InvalidParameter, match=r"^context must be at least 17; got 16\.$"):
        ContextPlan(categories={}, context=16)
    with pytest.raises(InvalidParameter, match=r"^max_types must be at least 10; got 9\.$"):
        ContextPlan(categories={}, max_types=9)
    assert ContextPlan(categories={}, context=17, max_types=10).bos == "default"


def test_a_language_that_wordfreq_does_not_have(source, tokenizer):
    with pytest.raises(InvalidParameter, match=r"^Unknown language 'xx'\."):
        find_contexts(source, tokenizer, plan(language="xx"))

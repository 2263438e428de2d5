"""Plans: which runs a file asks for, in which order, and every way in which it may be wrong."""

import pytest

from geomprobe.errors import InvalidParameter
from geomprobe.evidence.plan import rate_in_words, read_plan
from geomprobe.lab.arms import ARMS
from geomprobe.lab.recipe import BACKCOPY, PRESETS

WHOLE = """
name: qk-norm
text: [$NOVELS, more/tale.txt]
categories: words.txt
measure: true
groups:
  - name: nano
    preset: nano
    renamed: 64
    arms: [A0, a3]
    seeds: 2
  - name: stability
    preset: micro
    tokens: 1_000
    length: 1e2
    clip: 0
    warmup: 1e-1
    dtype: bfloat16
    layers: 2
    hidden: 32
    arms: [A0, A2]
    seeds: [5, 3]
    rates: [3e-4, 1.0e-2]
  - name: backcopy
    task: backcopy
    arms: [A1]
    seeds: [0]
"""


@pytest.fixture
def read(tmp_path):
    """The plan of a text."""

    def make(text):
        file = tmp_path / "plan.yaml"
        file.write_text(text, encoding="utf-8")
        return read_plan(file)

    return make


def one(**changes):
    """A plan of one group that is right but for the changes; None drops a key."""
    group = {"name": "g", "preset": "nano", "arms": "[A0]", "seeds": "1", **changes}
    lines = [f"    {key}: {value}" for key, value in group.items() if value is not None]
    return "name: p\ntext: t.txt\ngroups:\n  -\n" + "\n".join(lines) + "\n"


# ---------------------------------------------------------------------- what is asked for
def test_every_run_of_a_plan(read, tmp_path, monkeypatch):
    monkeypatch.setenv("NOVELS", "/books")
    plan = read(WHOLE)
    assert (plan.name, plan.measure, plan.dataset) == ("qk-norm", True, None)
    assert [str(path) for path in plan.text] == ["/books", str(tmp_path / "more" / "tale.txt")]
    assert plan.categories == tmp_path / "words.txt"
    assert [group.name for group in plan.groups] == ["nano", "stability", "backcopy"]
    assert [job.name for job in plan.jobs] == [
        "nano-A0-s0", "nano-A3-s0", "nano-A0-s1", "nano-A3-s1",
        "stability-A0-r3e-4-s5", "stability-A2-r3e-4-s5", "stability-A0-r1e-2-s5", "stability-A2-r1e-2-s5",
        "stability-A0-r3e-4-s3", "stability-A2-r3e-4-s3", "stability-A0-r1e-2-s3", "stability-A2-r1e-2-s3",
        "backcopy-A1-s0",
    ]  # fmt: skip
    assert [job.group for job in plan.jobs] == ["nano"] * 4 + ["stability"] * 8 + ["backcopy"]


def test_recipes_are_presets_with_changes(read, monkeypatch):
    monkeypatch.setenv("NOVELS", "/books")
    recipes = {job.name: job.recipe for job in read(WHOLE).jobs}
    nano = recipes["nano-A3-s1"]
    assert (nano.arm, nano.seed, nano.renamed) == (ARMS["A3"], 1, 64)
    assert (nano.size, nano.rate) == (PRESETS["nano"].size, PRESETS["nano"].rate)
    micro = recipes["stability-A2-r3e-4-s5"]
    assert (micro.tokens, micro.length, micro.clip, micro.warmup) == (1000, 100, 0.0, 0.1)
    assert [type(x) for x in (micro.tokens, micro.length, micro.clip, micro.rate)] == [int, int, float, float]
    assert (micro.rate, micro.dtype, micro.seed) == (3e-4, "bfloat16", 5)
    assert (micro.size.layers, micro.size.hidden, micro.size.heads) == (2, 32, PRESETS["micro"].size.heads)
    backcopy = recipes["backcopy-A1-s0"]
    assert (backcopy.task, backcopy.size, backcopy.length) == ("backcopy", BACKCOPY.size, BACKCOPY.length)


def test_runs_with_and_without_rates_differ_in_nothing_else(read):
    (plain,) = read(one(rate="3e-4")).jobs
    (listed,) = read(one(rates="[3e-4]")).jobs
    assert (plain.name, listed.name) == ("g-A0-s0", "g-A0-r3e-4-s0")
    assert plain.recipe == listed.recipe


@pytest.mark.parametrize(
    ("rate", "words"),
    [(3e-4, "3e-4"), (1e-2, "1e-2"), (0.0015, "1.5e-3"), (1.0, "1e0"), (0.1 + 0.2, "3e-1"), (2.5, "2.5e0")],
)
def test_rates_in_words(rate, words):
    assert rate_in_words(rate) == words


def test_a_plan_of_backcopy_alone_needs_no_text(read):
    plan = read("name: p\ngroups: [{name: b, preset: backcopy, arms: [A0], seeds: 1}]")
    assert (plan.text, plan.dataset, plan.categories, plan.measure) == ((), None, None, False)


def test_a_data_set(read):
    plan = read(one().replace("text: t.txt", "dataset: owner/name:train"))
    assert (plan.text, plan.dataset) == ((), "owner/name:train")


# ---------------------------------------------------------------------- what is wrong
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: p\ngroups: [\n  - {", r"must be YAML; line \d is not: "),
        ("", r"^plan\.yaml must be a mapping with the keys name, text, .*; got None\.$"),
        ("- a", "plan.yaml must be a mapping"),
        ("name: p", r"groups must be a list of one group at least; got None\."),
        ("name: p\ngroups: []", r"groups must be a list of one group at least; got \[\]\."),
        ("name: p\ngroups: [nano]", r"plan\.yaml, group 1 must be a mapping .*; got 'nano'\."),
        (f"names: q\n{one()}", r"plan\.yaml: Unknown key 'names'\. Did you mean 'name'\?"),
        (one().replace("name: p", "name: a b"), r"plan\.yaml: name must be a word of letters, .*; got 'a b'\."),
        (one().replace("name: p", "name: ../p"), r"name must be a word"),
        (one().replace("text: t.txt", ""), r"group 'g' trains on texts; give text or dataset\."),
        (f"dataset: a/b\n{one()}", r"text and dataset are two sources; give one of them\."),
        (one().replace("t.txt", "[]"), r"text must be a path or a list of paths; got \[\]\."),
        (one().replace("t.txt", "[3]"), r"text must be a path; got 3\."),
        (one().replace("t.txt", "$NO_SUCH/x"), r"the environment variable NO_SUCH of text must be set; it is not\."),
        (one().replace("t.txt", "${NO_SUCH}/x"), r"the environment variable NO_SUCH of text must be set"),
        (f"measure: maybe\n{one()}", r"measure must be true or false; got 'maybe'\."),
        (f"categories: 3\n{one()}", r"categories must be a path; got 3\."),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong(read, monkeypatch, text, said):
    monkeypatch.delenv("NO_SUCH", raising=False)
    with pytest.raises(InvalidParameter, match=said):
        read(text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sedes": "3"}, r"group 1: Unknown key 'sedes'\. Did you mean 'seeds'\?"),
        ({"seed": "3"}, r"group 1: Unknown key 'seed'\. Did you mean 'seeds'\?"),
        ({"arm": "A1"}, r"group 1: Unknown key 'arm'\. Did you mean 'arms'\?"),
        ({"name": None}, r"group 1: name must be a word of .*; got None\."),
        ({"name": "a/b"}, r"group 1: name must be a word of .*; got 'a/b'\."),
        ({"arms": None}, r"group 'g': arms must be a list of arms; got None\."),
        ({"arms": "A0"}, r"group 'g': arms must be a list of arms; got 'A0'\."),
        ({"arms": "[B1]"}, r"^plan\.yaml, group 'g': Unknown arm 'B1'\. .*Known: A0, "),
        ({"arms": "[1]"}, r"group 'g': an arm must be a name such as A1; got 1\."),
        ({"preset": "nanno"}, r"^plan\.yaml, group 'g': Unknown preset 'nanno'\. Did you mean 'nano'\?"),
        ({"seeds": None}, r"group 'g': seeds must be a whole number; got None\."),
        ({"seeds": "0"}, r"group 'g': seeds must be a count from 1 on, or a list of seeds; got 0\."),
        ({"seeds": "-2"}, r"seeds must be a count from 1 on"),
        ({"seeds": "1.5"}, r"seeds must be a whole number; got 1\.5\."),
        ({"seeds": "[]"}, r"seeds must be a list of whole numbers; got \[\]\."),
        ({"seeds": "[0, -1]"}, r"a seed must be a whole number from 0 on; got -1\."),
        ({"seeds": "[99999999999]"}, r"^plan\.yaml, group 'g': seed must be between 0 and 2147483647"),
        ({"rates": "3e-4"}, r"rates must be a list of numbers; got '3e-4'\."),
        ({"rates": "[fast]"}, r"a rate must be a number; got 'fast'\."),
        ({"rates": "[-1]"}, r"^plan\.yaml, group 'g': rate must be between 0 and 10; got -1\.0\."),
        ({"rate": "1", "rates": "[1]"}, r"rate and rates say the same; give one of them\."),
        ({"tokens": "many"}, r"tokens must be a whole number; got 'many'\."),
        ({"tokens": "true"}, r"tokens must be a whole number; got True\."),
        ({"length": "4"}, r"^plan\.yaml, group 'g': length must be at least 8; got 4\."),
        ({"dtype": "16"}, r"dtype must be a word; got 16\."),
        ({"dtype": "float16"}, r"group 'g': dtype must be one of 'float32', 'bfloat16'; got 'float16'\."),
        ({"heads": "3"}, r"group 'g': heads must be a multiple of kv_heads, 2; got 3\."),
        ({"seeds": "[1, 1]"}, r"the names of runs must differ; got 'g-A0-s1' 2 times\."),
        ({"arms": "[A0, a0]"}, r"the names of runs must differ; got 'g-A0-s0' 2 times\."),
        ({"rates": "[1e-2, 0.01]"}, r"the names of runs must differ; got 'g-A0-r1e-2-s0' 2 times\."),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_group_that_is_wrong(read, changes, said):
    with pytest.raises(InvalidParameter, match=said):
        read(one(**changes))


def test_parts_of_a_group(read):
    parts = ["{name: b, preset: backcopy, arms: [A0], seeds: 1}", "{name: b, preset: backcopy, arms: [A1], seeds: 2}"]
    plan = read(f"name: p\ngroups: [{', '.join(parts)}]")
    assert [job.name for job in plan.jobs] == ["b-A0-s0", "b-A1-s0", "b-A1-s1"]
    with pytest.raises(InvalidParameter, match=r"the names of runs must differ; got 'b-A0-s0' 2 times\."):
        read(f"name: p\ngroups: [{parts[0]}, {parts[0]}]")
    other = "{name: b, preset: backcopy, tokens: 5000, arms: [A2], seeds: 1}"
    with pytest.raises(InvalidParameter, match="the parts of group 'b' must have the same recipe"):
        read(f"name: p\ngroups: [{parts[0]}, {other}]")
    with pytest.raises(InvalidParameter, match="the name of a group must be without '-'; got 'b-c'"):
        read("name: p\ngroups: [{name: b-c, preset: backcopy, arms: [A0], seeds: 1}]")
    compiled = "{name: b, preset: backcopy, arms: [A2], seeds: 1, compile: true}"
    with pytest.raises(InvalidParameter, match="the parts of group 'b' must have the same recipe"):
        read(f"name: p\ngroups: [{parts[0]}, {compiled}]")  # other roundings


def test_whether_a_group_is_compiled(read):
    groups = [f"{{name: {name}, preset: backcopy, arms: [A0], seeds: 1{more}}}" for name, more in COMPILED.items()]
    plan = read(f"name: p\ngroups: [{', '.join(groups)}]")
    assert [job.compiled for job in plan.jobs] == [None, True, False]
    with pytest.raises(InvalidParameter, match="compile must be true or false; got 'yes please'"):
        read(f"name: p\ngroups: [{groups[0][:-1]}, compile: yes please}}]")


def test_whether_sequences_begin_with_a_bos(read):
    groups = [
        "{name: b, preset: nano, arms: [A0], seeds: 1, bos: true}",
        "{name: c, preset: nano, arms: [A0], seeds: 1}",
    ]
    plan = read(f"name: p\ntext: .\ngroups: [{', '.join(groups)}]")
    assert [job.recipe.bos for job in plan.jobs] == [True, False]
    with pytest.raises(InvalidParameter, match="group 'b': bos must be true or false; got 1"):
        read(f"name: p\ntext: .\ngroups: [{groups[0].replace('true', '1')}]")


COMPILED = {"b": "", "c": ", compile: true", "d": ", compile: false"}


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InvalidParameter, match=r"There is no plan '.*nowhere\.yaml'; give a YAML file\."):
        read_plan(tmp_path / "nowhere.yaml")
    with pytest.raises(InvalidParameter, match=r"The plan '.*' cannot be read: Is a directory\."):
        read_plan(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    with pytest.raises(InvalidParameter, match=r"must be UTF-8; the byte at 6 is not\."):
        read_plan(tmp_path / "latin.yaml")

import subprocess
import sys

import pytest

from geomprobe.models.aliases import ALIASES, find_alias, near_name

ASKED_FOR = [
    "gemma-2b",
    "gemma-7b",
    "gemma-2-2b",
    "gemma-3-270m",
    "gemma-3-1b",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen2.5-0.5b",
    "qwen2.5-1.5b",
    "llama-3.2-1b",
    "llama-3.2-3b",
    "llama-3.1-8b",
    "mistral-7b",
    "olmo-1b",
    "olmo-2-1b",
    "pythia-70m",
    "pythia-160m",
    "pythia-410m",
    "pythia-1b",
    "gpt2",
    "gpt2-medium",
    "phi-3-mini",
    "smollm2-360m",
    "gpt-oss-20b",
    "opt-125m",
    "smollm2-135m",
    "gemma3-270m",
    "qwen2.5-coder-0.5b",
]


def test_the_known_names_are_there():
    assert set(ASKED_FOR) <= set(ALIASES)


def test_every_alias_is_lower_case_and_comes_from_one_place():
    for name, alias in ALIASES.items():
        assert name == name.lower() == alias.name
        assert (alias.hub_id is not None) + (alias.index is not None) + alias.packaged == 1
        assert alias.hub_id is None or alias.hub_id.count("/") == 1
        assert alias.source == ("package" if alias.packaged else "hub" if alias.index is None else "index")


def test_hub_ids_are_not_listed_twice():
    hub_ids = [alias.hub_id for alias in ALIASES.values() if alias.hub_id]
    assert len(hub_ids) == len(set(hub_ids))


def test_index_files_say_what_is_needed_to_check_them():
    served = [alias.index for alias in ALIASES.values() if alias.index]
    assert len(served) == 3
    for index in served:
        assert len(index.sha256) == 64
        assert int(index.sha256, 16)
        assert all("==" in part.requirement for part in index.parts)
        assert any(part.member for part in index.parts)
        assert index.licence


def test_gemma_parts_are_joined_in_order():
    parts = ALIASES["gemma3-270m"].index.parts
    assert [part.member[-6:] for part in parts if part.member] == ["part00", "part01", "part02", "part03"]


def test_families_are_model_types_that_transformers_knows():
    from transformers import CONFIG_MAPPING

    assert {alias.family for alias in ALIASES.values()} <= set(CONFIG_MAPPING)


def test_case_does_not_matter():
    assert find_alias("Gemma-2B") is ALIASES["gemma-2b"]
    assert find_alias("gemma-2c") is None


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("gema-2b", "gemma-2b"), ("GPT2-medum", "gpt2-medium"), ("google/gema-2b", "google/gemma-2b")],
)
def test_a_typo_finds_its_neighbour(typo, meant):
    assert near_name(typo) == f" Did you mean {meant!r}?"


def test_nothing_near_is_no_hint():
    assert near_name("zzzzzzzzzzzz") == ""


def test_the_table_needs_neither_torch_nor_transformers():
    code = "import sys, geomprobe.models.resolve; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

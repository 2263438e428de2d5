"""What enters the block of an attention module is the hidden state that transformers gives out for it."""

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from geomprobe.attention.anatomy import examine
from geomprobe.attention.seam import watching
from geomprobe.attention.stream import blocks_of, streaming
from geomprobe.testing import tiny_model

# By family: its sizes, and the numbers of the hidden states that enter its attention layers.
FAMILIES = {
    "llama": ({}, [0, 1]),
    "gpt2": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}, [0, 1]),
    "bloom": ({"hidden_size": 32, "n_layer": 2, "n_head": 4}, [0, 1]),  # its attention is seen the second way
    # Its layers with attention are numbered among themselves: what a model gives out cannot be had by their numbers.
    "zamba2": (
        {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 4,
            "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "attention_head_dim": 16,
            "num_mem_blocks": 1,
            "mamba_d_state": 8,
            "n_mamba_heads": 4,
            "mamba_ngroups": 1,
            "chunk_size": 16,
            "use_mem_eff_path": False,
        },
        [1, 3],
    ),
}
IDS = torch.randint(3, 160, (2, 24), generator=torch.Generator().manual_seed(0))


def built(family):
    if family == "llama":
        return tiny_model(family)
    sizes = {"vocab_size": 160, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **FAMILIES[family][0]}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes)).eval()


def names_of(model):
    return [layer.module for layer in examine(model, IDS[:1]).layers]


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_hidden_state_of_the_block(family):
    model, seen = built(family), []
    names = names_of(model)
    with torch.no_grad():
        hidden = model(input_ids=IDS, output_hidden_states=True).hidden_states
        with watching(model, lambda _seen: None), streaming(model, names, lambda *given: seen.append(given)):
            model(input_ids=IDS, use_cache=False)
    found = [(index, [at for at, x in enumerate(hidden) if torch.equal(x, entering)]) for index, entering in seen]
    assert found == [(index, [at]) for index, at in enumerate(FAMILIES[family][1])]


class Lists(nn.Module):
    """Modules in lists, in lists of lists, twice in a block, and in none."""

    def __init__(self):
        super().__init__()
        block = lambda *names: nn.ModuleDict({name: nn.Linear(2, 2) for name in names})  # noqa: E731
        self.layers = nn.ModuleList([block("mix"), block("attention", "cross"), block("attention")])
        self.groups = nn.ModuleList([nn.ModuleList([block("attention"), block("attention")])])
        self.attention = nn.Linear(2, 2)


def test_a_block_is_the_item_of_the_outermost_list():
    names = ["layers.1.attention", "layers.1.cross", "layers.2.attention", "groups.0.1.attention", "attention"]
    assert blocks_of(Lists(), names) == {"layers.1": 0, "layers.2": 2, "groups.0.1": 3}


def test_hooks_go_also_when_a_pass_fails():
    model = built("llama")

    def fail(_index, _hidden):
        raise ZeroDivisionError("tripped")

    with pytest.raises(ZeroDivisionError, match="tripped"), streaming(model, names_of(model), fail):
        model(input_ids=IDS)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(("args", "kwargs"), [((), {"other": torch.ones(2)}), ((None,), {})])
def test_a_block_that_is_called_otherwise_shows_nothing(args, kwargs):
    class Odd(nn.Module):
        def forward(self, hidden=None, other=None):
            return hidden, other

    model = nn.Module()
    model.layers = nn.ModuleList([Odd()])
    model.layers[0].attention = nn.Identity()
    with streaming(model, ["layers.0.attention"], lambda *_given: pytest.fail("it was shown")):
        model.layers[0](*args, **kwargs)

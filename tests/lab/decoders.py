"""Tiny decoders of every arm, with weights that hide nothing."""

import hashlib

import torch

from geomprobe.lab.arms import ARMS
from geomprobe.lab.model import LabConfig, LabForCausalLM, initialise

SMALL = {
    "vocab_size": 48,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 96,
    "rope_theta": 500.0,  # not the default, so that a lost one shows
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def fresh(arm, *, seed=0, **changes):
    """A decoder as training begins with it."""
    model = LabForCausalLM(LabConfig(**{**SMALL, **ARMS[arm].fields, **changes})).eval()
    initialise(model, seed)
    return model


def shaken(arm, *, dtype=torch.float32, seed=0, **changes):
    """The same with steep attention, and with gains and temperatures away from where they begin."""
    model = fresh(arm, **changes).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            random = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if name.endswith("log_temperature"):
                parameter.add_(0.3 * random)
            elif parameter.dim() == 1:
                parameter.copy_(0.8 + 0.3 * random)
            else:
                parameter.copy_(1.5 * random * parameter.shape[-1] ** -0.5)
    return model


def some_ids(n=2, length=20, seed=0):
    return torch.randint(3, SMALL["vocab_size"], (n, length), generator=torch.Generator().manual_seed(seed))


def logits_of(model, ids, **given):
    with torch.no_grad():
        return model(input_ids=ids, **given).logits.double()


def left_padded(ids, n):
    """The ids behind n places of padding, with their mask and the positions that they had before."""
    row, length = ids.shape
    mask = torch.cat([torch.zeros(row, n, dtype=torch.int64), torch.ones_like(ids)], dim=1)
    positions = torch.cat([torch.zeros(n, dtype=torch.int64), torch.arange(length)]).expand(row, -1)
    padded = torch.cat([torch.zeros(row, n, dtype=torch.int64), ids], dim=1)
    return padded, {"attention_mask": mask, "position_ids": positions}


def give(model, other):
    """Give a model the weights that another arm has too, in the same shape."""
    there = model.state_dict()
    shared = {name: x for name, x in other.state_dict().items() if name in there and x.shape == there[name].shape}
    model.load_state_dict(shared, strict=False)


def hashes(model):
    return {
        name: hashlib.sha256(parameter.detach().numpy().tobytes()).hexdigest()
        for name, parameter in model.named_parameters()
    }

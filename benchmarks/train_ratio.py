"""How fast `geomprobe train` is: beside plain transformers models of the same size, and beside the machine's products.

    python benchmarks/train_ratio.py [--preset nano micro] [--repeats 5] [--threads 2]

All in one run, in turn, as machines are noisy. A step is forward, backward and AdamW. The share of the matrix rate
counts 6 operations a weight and token (2 forward, 4 backward) and 12 · layers · heads · head_dim · length/2 for causal
attention, against products of two matrices of 2048 × 2048 in float32.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen3Config

from geomprobe.lab.arms import ARMS
from geomprobe.lab.objective import head_loss
from geomprobe.lab.recipe import Recipe, preset
from geomprobe.lab.train import make_model, optimiser_of

SIDE = 2048


def matrix_rate() -> float:
    """Operations a second of a large product."""
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    a @ b
    begun = time.perf_counter()
    for _ in range(3):
        a @ b
    return 3 * 2 * SIDE**3 / (time.perf_counter() - begun)


def operations(recipe: Recipe, n_weights: int) -> float:
    """Of a token in training."""
    size = recipe.size
    attention = 12 * size.layers * size.heads * size.head_dim * recipe.length / 2
    return 6 * n_weights + attention


def plain(recipe: Recipe) -> PreTrainedModel:
    """What transformers ships, of the same size: Llama without a norm, Qwen3 with."""
    size = recipe.size
    common = {
        "vocab_size": size.vocab_size,
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "tie_word_embeddings": True,
        "use_cache": False,
    }
    made = LlamaConfig(**common) if recipe.arm.qk_norm == "none" else Qwen3Config(**common)
    return AutoModelForCausalLM.from_config(made)


def step_of_lab(recipe: Recipe, ids: torch.Tensor) -> tuple[Callable[[], None], int]:
    """One update as `geomprobe train` makes it, and the number of weights."""
    model = make_model(recipe).train()
    optimiser = optimiser_of(model, recipe)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        hidden = model.model(ids[:, :-1]).last_hidden_state
        head_loss(hidden.flatten(0, 1), model.lm_head.weight, ids[:, 1:].flatten()).backward()
        optimiser.step()

    return step, sum(parameter.numel() for parameter in model.parameters())


def step_of_plain(recipe: Recipe, ids: torch.Tensor) -> Callable[[], None]:
    """The same of a model that transformers ships, with its own loss."""
    model = plain(recipe).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    inputs = ids[:, :-1].contiguous()

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        model(inputs, labels=inputs).loss.backward()
        optimiser.step()

    return step


def seconds(step: Callable[[], None]) -> float:
    """Of one update."""
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def compare(name: str, arm: str, repeats: int) -> str:
    """One line: a preset and an arm."""
    recipe = preset(name, arm=ARMS[arm])
    ids = torch.randint(0, recipe.size.vocab_size, (recipe.batch, recipe.length + 1))
    ours, n_weights = step_of_lab(recipe, ids)
    theirs = step_of_plain(recipe, ids)
    ours(), theirs()
    pairs = [(seconds(ours), seconds(theirs), matrix_rate()) for _ in range(repeats)]
    tokens = recipe.batch * recipe.length
    ratio = statistics.median(other / own for own, other, _ in pairs)
    share = statistics.median(tokens * operations(recipe, n_weights) / own / rate for own, _, rate in pairs)
    speed = tokens / statistics.median(own for own, _, _ in pairs)
    family = "Llama" if arm == "A0" else "Qwen3"
    return (
        f"{name} {arm}: {speed:,.0f} tokens/s, {ratio:.2f} times plain {family}, {share:.0%} of the machine's products "
        f"({repeats} pairs, {torch.get_num_threads()} threads)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", nargs="+", default=["nano", "micro"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    for name in given.preset:
        for arm in ("A0", "A1"):
            print(compare(name, arm, given.repeats), flush=True)


if __name__ == "__main__":
    main()

"""What clusters cost: the pass over words in context against the bare forward passes, and the statistics behind it.

    python benchmarks/words_ratio.py [--model smollm2-135m] [--types 400] [--contexts 8] [--sample 512] [--repeats 3]

The pass is compared with bare forward passes of the whole model on the same windows, in turn in one process, over a
sample of the windows; the statistics are timed on as many types as asked for, with random vectors of the model's shape,
as their time does not depend on the values. Both a probe of 20 categories and its file are those of an analysis.
"""

import argparse
import resource
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from geomprobe.attention.anatomy import examine
from geomprobe.attention.seam import attending
from geomprobe.attention.stages import Notebook
from geomprobe.collection import Collection
from geomprobe.corpus.contexts import NO_BAND, Contexts, WordType
from geomprobe.models.load import load
from geomprobe.models.resolve import resolve
from geomprobe.probes.clusters import Clusters
from geomprobe.probes.typed import Cell
from geomprobe.words import TOKENS_A_PASS

CATEGORIES = 20
TOKENS = 64


def made_up(types: int, contexts: int, vocabulary: int) -> Contexts:
    """Windows of random tokens, as many as there would be."""
    rng = np.random.default_rng(0)
    kinds = tuple(WordType(f"w{i}", f"c{i % CATEGORIES}", 4.0, contexts, NO_BAND) for i in range(types))
    ids = rng.integers(10, vocabulary, (types * contexts, TOKENS))
    nothing = np.zeros(types * contexts, dtype=np.int64)
    return Contexts(kinds, np.repeat(np.arange(types), contexts), nothing, nothing, ids, ("made up",), {})


def bare(model, contexts: Contexts, batch: int) -> float:
    """Seconds of the forward passes alone."""
    begun = time.perf_counter()
    with torch.no_grad():
        for start in range(0, contexts.n_contexts, batch):
            _ = model(input_ids=torch.from_numpy(contexts.ids[start : start + batch]), use_cache=False).logits
    return time.perf_counter() - begun


def collected(model, spec, notebook, contexts: Contexts, batch: int) -> float:
    """Seconds of the same passes with their vectors kept."""
    with tempfile.TemporaryDirectory() as folder:
        collection = Collection(spec, contexts, Path(folder))
        begun = time.perf_counter()
        collection.run(model, batch_size=batch, notebook=notebook)
        return time.perf_counter() - begun


def made_up_cells(model, spec, notebook, sample: Contexts, shape: tuple[int, int]) -> list[Cell]:
    """Random vectors in every head and layer in which the model has some."""
    with tempfile.TemporaryDirectory() as folder:
        collection = Collection(spec, sample, Path(folder))
        collection.run(model, batch_size=TOKENS_A_PASS // TOKENS, notebook=notebook)
        rng = np.random.default_rng(0)
        return [
            replace(cell, x=rng.normal(size=(*shape, cell.x.shape[-1])).astype(np.float32))
            for cell in collection.cells([0], 1)
        ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--types", type=int, default=400)
    parser.add_argument("--contexts", type=int, default=8)
    parser.add_argument("--sample", type=int, default=512, help="windows over which the pass is compared")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    model = load(resolve(options.model), dtype="float32", device="cpu").model
    batch = TOKENS_A_PASS // TOKENS
    vocabulary = model.config.get_text_config().vocab_size
    sample = made_up(options.sample // options.contexts, options.contexts, vocabulary)
    notebook = Notebook(attending(model))
    spec = examine(model, torch.from_numpy(sample.ids[:1]), notebook=notebook)
    bare(model, sample, batch)
    pairs = [
        (bare(model, sample, batch), collected(model, spec, notebook, sample, batch)) for _ in range(options.repeats)
    ]
    plain, kept = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(b / a for a, b in pairs)
    print(
        f"{options.model}, {sample.n_contexts} windows of {TOKENS}, {batch} a pass, {torch.get_num_threads()} threads"
    )
    print(f"bare {plain:.2f} s, collected {kept:.2f} s, ratio {kept / plain:.3f}", end=" ")
    print(f"(of pairs: {ratios[0]:.3f} to {ratios[-1]:.3f}, n = {len(pairs)})")

    whole = made_up(options.types, options.contexts, vocabulary)
    cells = made_up_cells(model, spec, notebook, sample, (options.types, options.contexts))
    probe = Clusters()
    begun = time.perf_counter()
    probe.measure(cells, whole, probe.choose(whole))
    took = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"statistics of {options.types} types in {len(cells)} heads and layers: {took:.1f} s", end="; ")
    print(f"largest resident size {peak:.2f} GiB")


if __name__ == "__main__":
    main()

"""How long the pass takes against the bare forward passes, and whether its memory grows with the text.

    python benchmarks/pass_ratio.py [--model smollm2-135m] [--window 512] [--windows 8] [--batch 4] [--repeats 5]

Both are run in turn in one process on the same windows in the same batches, by default those of an analysis, so that
what the machine does besides falls on both; the ratio is of medians, its spread that of the pairs. Loading, self-check,
tables and figures are not in it. Length against angle (split, values) is timed apart, as what it adds. Memory is the
process's largest resident size after passes over more and more windows.
"""

import argparse
import resource
import statistics
import time

import torch

from geomprobe.attention.anatomy import examine
from geomprobe.attention.seam import attending
from geomprobe.attention.spec import Spec
from geomprobe.attention.stages import Notebook
from geomprobe.corpus.sources import sotu
from geomprobe.corpus.types import index_types
from geomprobe.corpus.windows import WindowPlan, cut_windows
from geomprobe.models.load import load
from geomprobe.models.resolve import resolve
from geomprobe.observation import Observation, choose_probes, corpus_spec, default_batch_size

WITHOUT = "norms,gains,logits,sinks,class_attention,loss"
WITH = f"{WITHOUT},split,values"


def prepare(loaded, window: int, windows: int):
    """A corpus and an observation of it, not yet begun."""
    corpus = cut_windows(sotu(), loaded.tokenizer, plan=WindowPlan(window=window, windows=windows))
    index = index_types(corpus)
    notebook = Notebook(attending(loaded.model))  # as analyze has it: vectors are traced before the pass
    anatomy = examine(loaded.model, torch.from_numpy(corpus.ids[:1, :64]), notebook=notebook)
    spec = Spec(anatomy, corpus_spec(corpus, index))

    def observe(probes: str) -> tuple[Observation, Notebook]:
        return Observation(spec, choose_probes(probes)[0], corpus, index=index), notebook

    return corpus, observe


def bare(model, corpus, batch: int) -> float:
    """Seconds of the forward passes alone."""
    begun = time.perf_counter()
    with torch.no_grad():
        for start in range(0, len(corpus.ids), batch):
            ids = torch.from_numpy(corpus.ids[start : start + batch])
            _ = model(input_ids=ids, use_cache=False).logits
    return time.perf_counter() - begun


def observed(model, make, batch: int, probes: str) -> float:
    """Seconds of the same passes with some probes."""
    observation, notebook = make(probes)
    begun = time.perf_counter()
    observation.run(model, batch_size=batch, notebook=notebook)
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--batch", type=int, help="windows a forward pass [default: as an analysis has it]")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", type=int, nargs="*", default=[8, 32], help="windows after which memory is read")
    options = parser.parse_args()
    loaded = load(resolve(options.model), dtype="float32", device="cpu")
    batch = options.batch or default_batch_size(loaded.model, options.window)
    corpus, make = prepare(loaded, options.window, options.windows)
    bare(loaded.model, corpus, batch)
    for probes in (WITHOUT, WITH):
        observed(loaded.model, make, batch, probes)
    rounds = [
        (bare(loaded.model, corpus, batch), *(observed(loaded.model, make, batch, p) for p in (WITHOUT, WITH)))
        for _ in range(options.repeats)
    ]
    plain, watched, split = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratios = sorted(b / a for a, b, _ in rounds)
    more = sorted((c - b) / a for a, b, c in rounds)
    shape = f"{options.windows} windows of {options.window}, {batch} a pass, {torch.get_num_threads()} threads"
    print(f"{options.model}, {shape}")
    print(f"bare {plain:.2f} s, watched {watched:.2f} s, ratio {watched / plain:.3f}", end=" ")
    print(f"(of pairs: {ratios[0]:.3f} to {ratios[-1]:.3f}, n = {len(rounds)})")
    print(f"with split and values {split:.2f} s: {(split - watched) / plain:.3f} x bare more", end=" ")
    print(f"(of rounds: {more[0]:.3f} to {more[-1]:.3f})")
    for windows in options.memory:
        _, make = prepare(loaded, options.window, windows)
        observed(loaded.model, make, batch, WITH)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"after {windows} windows: largest resident size {peak:.2f} GiB")


if __name__ == "__main__":
    main()

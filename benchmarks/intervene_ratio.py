"""How long a pass with an edit takes against a bare forward pass over the same windows.

    python benchmarks/intervene_ratio.py [--model smollm2-135m] [--window 512] [--windows 4] [--batch 2] [--repeats 5]

A pass is what `geomprobe intervene` does for one edit: the vectors replaced in every layer, Λ read off what the kernel
gets, and the predictions compared with those of the untouched model. Bare and edited passes take turns on the same
windows in one process, so that what the machine does besides falls on both; a ratio is that of such a pair, by the
clock and by the processor time of this process, which another's jobs disturb less. What a run does once (loading,
self-check, calibration) is not in it; the pass without an edit, which all edits of a batch share, is timed as `plain`.
"""

import argparse
import statistics
import time

import torch

from geomprobe.attention.anatomy import examine
from geomprobe.attention.seam import attending, watching
from geomprobe.attention.stages import Notebook
from geomprobe.corpus.sources import sotu
from geomprobe.corpus.windows import WindowPlan, cut_windows
from geomprobe.experiment import token_batches
from geomprobe.interventions.calibration import Calibration
from geomprobe.interventions.edits import parse_edit
from geomprobe.interventions.trial import Batch, Sums, Trial, Variant
from geomprobe.models.calling import run as call
from geomprobe.models.load import load
from geomprobe.models.resolve import resolve

PLAIN = "plain"
EDITS = ("sham", "neutral_norm", "permute_norm", "swap_angle", "swap_angle:neutral_norm", "scale_class:function:0.5")
BALANCED = ("sham@balanced", "neutral_norm@balanced")


def prepare(model, tokenizer, options, settings):
    """A trial, and the batches of the second half of the windows."""
    corpus = cut_windows(sotu(), tokenizer, plan=WindowPlan(window=options.window, windows=2 * options.windows))
    notebook = Notebook(attending(model))
    spec = examine(model, torch.from_numpy(corpus.ids[:1, :64]), notebook=notebook)
    calibration = Calibration(spec, settings)
    halves = [(0, options.windows), (options.windows, 2 * options.windows)]
    first, second = (list(token_batches(model, corpus, half, options.batch)) for half in halves)
    for _ in range(calibration.passes):
        for ids, tokens in first:
            with watching(model, lambda seen, of=tokens.token_class: calibration.add(seen, of), stages=False):
                call(model, {"input_ids": ids})
        calibration.settle()
    trial = Trial(model, spec, notebook, calibration.known(), seed=0)
    return trial, [Batch(ids, tokens, number) for number, (ids, tokens) in enumerate(second)], corpus


def timed(work) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--windows", type=int, default=4, help="as many are read for calibration")
    parser.add_argument("--batch", type=int, default=2, help="windows a forward pass")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--edit", nargs="*", default=[*EDITS, *BALANCED])
    options = parser.parse_args()
    loaded = load(resolve(options.model), dtype="float32", device="cpu")
    model, settings = loaded.model.eval(), {text: parse_edit(text) for text in options.edit}
    trial, batches, corpus = prepare(model, loaded.tokenizer, options, list(settings.values()))
    every = tuple(layer.layer for layer in trial.spec.layers)
    with trial.opened():
        outcomes = [trial.plain(batch) for batch in batches]

    def bare() -> None:
        for batch in batches:
            call(model, {"input_ids": batch.ids})

    def edited(text: str) -> None:
        into = Sums.of(len(corpus.document_names))
        for batch, outcome in zip(batches, outcomes, strict=True):
            if text == PLAIN:
                trial.plain(batch)
            else:
                trial.edited(batch, Variant(settings[text], every), outcome, into)

    def pair(text: str) -> tuple[tuple[float, float], tuple[float, float]]:
        without = timed(bare)
        with trial.opened():  # once a run, so not timed
            return without, timed(lambda: edited(text))

    shape = f"{options.windows} windows of {options.window}, {options.batch} a pass, {torch.get_num_threads()} threads"
    print(f"{options.model}, {shape}, float32; pass with an edit / bare pass, of {options.repeats} pairs")
    print(f"{'':28}{'clock: min  median  max':>26}{'processor: min  median  max':>32}")
    timed(bare)
    for text in (PLAIN, *options.edit):
        pairs = [pair(text) for _ in range(options.repeats)]
        shown = ""
        for kind, width in ((0, 26), (1, 32)):
            ratios = sorted(with_edit[kind] / without[kind] for without, with_edit in pairs)
            shown += f"{ratios[0]:.2f}  {statistics.median(ratios):.2f}  {ratios[-1]:.2f}".rjust(width)
        print(f"{text:28}{shown}", flush=True)


if __name__ == "__main__":
    main()

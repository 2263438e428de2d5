"""Tiny trainings, in this process or in one that is killed at a moment that is chosen."""

import json
import multiprocessing
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import torch

from geomprobe.lab import train
from geomprobe.lab.arms import ARMS
from geomprobe.lab.folder import BEGUN, WHOLE, TrainingFolder
from geomprobe.lab.model import LabForCausalLM
from geomprobe.lab.recipe import Recipe, Size
from geomprobe.lab.supply import TextSupply
from geomprobe.lab.text import open_text
from geomprobe.lab.train import Training
from tests.lab.made_text import VOCABULARY

SIZE = Size(vocab_size=VOCABULARY, hidden=32, intermediate=48, layers=2, heads=2, kv_heads=1, head_dim=16)
N_STEPS = 24
RECIPE = Recipe(arm=ARMS["A1"], size=SIZE, length=32, batch=2, tokens=N_STEPS * 64)
ALWAYS, NEVER = -1.0, 1e9  # seconds between states: one after each update, or at saved steps alone
# What a training does to files: a moment is before each time, and after.
_DOINGS = (
    (LabForCausalLM, "save_pretrained"),
    (torch, "save"),
    (os, "fsync"),
    (Path, "write_text"),
    (Path, "replace"),
    (Path, "rename"),
    (Path, "unlink"),
    (shutil, "rmtree"),
)
# Children are forked from a process that has torch and has not computed: they begin at once.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["geomprobe.lab.train", "geomprobe.lab.text", "pytest"])


def take_up(data, folder, recipe=RECIPE):
    """The training in a folder, opened; None where it is finished."""
    supply, place = TextSupply(data, recipe), TrainingFolder(Path(folder))
    if place.open(recipe.fingerprint(supply.sha256), {}, overwrite=False):
        return None
    return Training(recipe, supply, place, data.tokenizer, {"name": data.about["name"]})


def trained(data, folder, recipe=RECIPE, report=lambda _step: None, **changes):
    """Train to the end from wherever it was; the manifest."""
    training = take_up(data, folder, replace(recipe, **changes))
    return training.run(report) if training else TrainingFolder(Path(folder)).finished


def manifest_of(folder):
    """What a manifest says: plain JSON, without NaN."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads((Path(folder) / WHOLE).read_text(encoding="utf-8"), parse_constant=refuse)


def killed(data, folder, moment, *, state_every=ALWAYS, recipe=RECIPE):
    """Train in another process that is killed at a moment; whether it was, and did not end before.

    Parameters
    ----------
    moment : (str, int) or float
        What is reached, and the how-manieth time: "update", or "before" or "after" one of `_DOINGS`, or "any". A float
        is a time in seconds from its beginning.
    state_every : float
        As `train.STATE_EVERY`.
    """
    process = _CONTEXT.Process(target=_child, args=(str(data.folder), str(folder), moment, state_every, recipe))
    process.start()
    if isinstance(moment, float):
        while process.is_alive() and not (Path(folder) / BEGUN).exists():
            time.sleep(0.01)
        time.sleep(moment)
        process.kill()
    process.join()
    code = process.exitcode
    process.close()
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def _child(data_folder, folder, moment, state_every, recipe):
    train.STATE_EVERY = state_every
    seen = {}

    def reach(name):
        for counted in (name, "any"):
            if moment == (counted, seen.setdefault(counted, 0)):
                os.kill(os.getpid(), signal.SIGKILL)
            seen[counted] += 1

    def watched(whole, name):
        def do(*args, **kwargs):
            reach(f"before {name}")
            found = whole(*args, **kwargs)
            reach(f"after {name}")
            return found

        return do

    for owner, attribute in _DOINGS:
        setattr(owner, attribute, watched(getattr(owner, attribute), attribute))
    trained(open_text(Path(data_folder)), folder, recipe, report=lambda _step: reach("update"))

"""Records of trained twins with planted differences, as `geomprobe sweep` would leave them."""

import hashlib
import json
import math
from functools import cache
from statistics import NormalDist

from geomprobe.evidence.records import Records, make_records
from geomprobe.lab.arms import ARMS

STEPS = 733
SIZE = {
    "vocab_size": 4096,
    "hidden": 128,
    "intermediate": 384,
    "layers": 4,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 32,
}  # fmt: skip
# About what a real run of A0 measured: its mean over seeds, the sd that seeds have in common, and an arm's own.
TEXT = {
    "loss_1x": (4.70, 0.01, 0.002),
    "loss_2x": (4.75, 0.01, 0.002),
    "loss_4x": (4.83, 0.01, 0.004),
    "n_spikes": (1.0, 0.0, 0.0),
    "diverged": (0.0, 0.0, 0.0),
    "growth_scored_k": (0.25, 0.01, 0.01),
    "growth_scored_q": (0.16, 0.01, 0.01),
    "growth_projected_k": (0.25, 0.01, 0.01),
    "growth_projected_q": (0.16, 0.01, 0.01),
    "turn_k": (0.17, 0.003, 0.003),
    "turn_q": (0.16, 0.003, 0.003),
    "radial_over_random_k": (40.0, 1.0, 1.0),
    "radial_over_random_q": (46.0, 1.0, 1.0),
    "radial_cosine_k": (0.068, 0.002, 0.002),
    "radial_cosine_q": (0.061, 0.002, 0.002),
    "k_log_sd": (0.30, 0.003, 0.003),
    "tv": (0.23, 0.003, 0.003),
    "tv_balanced": (0.228, 0.003, 0.003),
    "r2": (0.91, 0.003, 0.003),
    "norm_share": (0.07, 0.003, 0.003),
    "delta_ce_neutral_norm": (0.14, 0.003, 0.003),
    "max_logit": (25.0, 0.5, 0.5),
    "first_mass": (0.008, 0.0003, 0.0003),
    "first_mass_uniform": (0.0133, 0.0, 0.0),
    "first_mass_64": (0.04, 0.001, 0.001),
    "first_mass_64_uniform": (0.0594, 0.0, 0.0),
    "first_key_ratio": (1.0, 0.005, 0.005),
    "sink_rate": (0.004, 0.001, 0.001),
    "first_lead": (0.5, 0.05, 0.05),
    "first_lead_by_length": (0.1, 0.02, 0.02),
    "first_lead_by_angle": (0.4, 0.04, 0.04),
    "first_lead_by_length_balanced": (0.12, 0.02, 0.02),
    "first_lead_by_angle_balanced": (0.38, 0.04, 0.04),
    "best_beta_1x": (1.02, 0.01, 0.01),
    "best_beta_2x": (1.05, 0.01, 0.01),
    "best_beta_4x": (1.1, 0.02, 0.02),
    "beta_gain_1x": (0.0001, 0.0, 0.0001),
    "beta_gain_2x": (0.001, 0.0, 0.0002),
    "beta_gain_4x": (0.004, 0.0, 0.0005),
    "auc_keys": (0.85, 0.008, 0.003),
    "auc_keys_balanced": (0.85, 0.008, 0.003),
    "auc_queries": (0.857, 0.008, 0.003),
    "auc_residual": (0.91, 0.006, 0.002),
    "auc_embedding": (0.893, 0.006, 0.002),
    "auc_contexts": (0.549, 0.0, 0.0),
    "silhouette_keys": (-0.003, 0.005, 0.003),
    "silhouette_residual": (0.1, 0.005, 0.003),
    "kappa_keys": (52.0, 1.0, 1.0),
    "kappa_residual": (204.0, 2.0, 2.0),
    "purity_keys_rare": (0.35, 0.01, 0.003),
    "purity_keys_frequent": (0.46, 0.01, 0.003),
    "purity_keys_balanced_rare": (0.34, 0.01, 0.003),
    "purity_keys_balanced_frequent": (0.45, 0.01, 0.003),
    "parent_place_keys_rare": (0.051, 0.004, 0.002),
    "parent_place_keys_balanced_rare": (0.052, 0.004, 0.002),
    "parent_place_keys_half": (0.0006, 0.0, 0.0001),
    "parent_place_residual_rare": (0.016, 0.002, 0.001),
    "parent_place_residual_half": (0.0, 0.0, 0.0),
    "parent_place_embedding_rare": (0.106, 0.005, 0.003),
    "parent_place_embedding_half": (0.0, 0.0, 0.0),
}
IDLE = {
    "loss_1x": (1.75, 0.003, 0.001),
    "loss_2x": (1.77, 0.003, 0.001),
    "loss_4x": (1.80, 0.003, 0.001),
    "n_spikes": (0.0, 0.0, 0.0),
    "diverged": (0.0, 0.0, 0.0),
    "idle_first_layer0": (0.75, 0.02, 0.02),
    "idle_uniform_layer0": (0.028, 0.0, 0.0),
    "trigger_first_layer0": (0.02, 0.002, 0.002),
    "trigger_before_layer0": (0.96, 0.004, 0.004),
    "key_first_layer0": (3.0, 0.1, 0.1),
    "key_others_layer0": (6.0, 0.1, 0.1),
    "value_first_layer0": (0.2, 0.01, 0.01),
    "value_others_layer0": (1.5, 0.05, 0.05),
    "cos_first_layer0": (0.7, 0.02, 0.02),
    "cos_others_layer0": (-0.1, 0.02, 0.02),
    "gap_by_length_layer0": (-0.8, 0.05, 0.05),
    "gap_by_angle_layer0": (6.0, 0.2, 0.2),
}


def drawn(*parts):
    """A standard normal number that is decided by what it is of."""
    digest = hashlib.blake2b("|".join(map(str, parts)).encode(), digest_size=6).digest()
    return NormalDist().inv_cdf((int.from_bytes(digest) + 0.5) / 2**48)


def made_record(group, arm, seed, *, rate=2e-3, tokens=3_002_368, means=None, noise=1.0, length=512):
    """One measured run.

    Parameters
    ----------
    means : dict, optional
        Means of this arm over seeds where they are not those of A0, or (mean, sd that seeds have in common, own sd);
        None: it has no such number.
    noise : float
        How much of the arm's own sd there is; 0: twins differ in what is planted alone.
    """
    base = IDLE if group == "backcopy" else TEXT
    planted = {**{name: each[0] for name, each in base.items()}, **(means or {})}
    numbers = {}
    for name, middle in planted.items():
        if middle is None:
            continue
        _, common, own = base.get(name, (0, 0.0, 0.0005))
        if isinstance(middle, tuple):
            middle, common, own = middle
        value = middle + common * drawn(group, seed, name) + noise * own * drawn(group, arm, seed, rate, name)
        numbers[name] = max(value, 0.0) if name.startswith(("parent", "n_", "sink", "k_log", "tv")) else value
    size = {**SIZE, "layers": 1} if group == "backcopy" else SIZE
    recipe = {
        **{"arm": ARMS[arm].fields, "seed": seed, "task": "backcopy" if group == "backcopy" else "text"},
        **{"size": size, "tokens": tokens, "length": length, "batch": 8, "rate": rate, "renamed": 64},
    }
    text = group != "backcopy" and "auc_keys" in numbers
    return {
        **{"version": 1, "arm": arm, "recipe": recipe, "fingerprint": f"{group}{arm}{seed}{rate}"},
        **{"pair": f"{group}{seed}{rate}", "step": STEPS, "tokens": tokens, "seconds": 600.0, "threads": 1},
        "numbers": numbers,
        "on_the_way": [earlier(numbers, *at) for at in ((362, 0.3), (512, 0.11))] if text else [],
        "losses": losses(numbers.get("loss_1x", 5.0)),
        "curves": curves(numbers) if text else [],
    }


def earlier(numbers, step, above):
    """Clusters at an earlier step: less clean by a tenth of what the loss was higher."""
    kept = {name: value for name, value in numbers.items() if name.startswith(("auc", "kappa"))}
    lower = {name: value - 0.1 * above * (name != "auc_contexts") for name, value in kept.items()}
    return {"step": step, "loss": numbers["loss_1x"] + 0.01 + above, "numbers": lower}


def losses(last):
    """Held-out losses of saved steps, down to the last one on the short text."""
    steps = [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 733]
    end = last + 0.01
    made = [8.32 - (8.32 - end) * math.log1p(step) / math.log1p(STEPS) for step in steps]
    return [{"step": step, "loss": loss} for step, loss in zip(steps, made, strict=True)]


def curves(numbers):
    """Lengths, attention and updates at 33 steps."""
    made = []
    for step in sorted({round(STEPS * index / 32) for index in range(33)}):
        along = step / STEPS
        row = {"step": float(step), "first_mass": 0.0069 + (numbers["first_mass"] - 0.0069) * along}
        for v in "qk":
            grown = 0.23 + 1.2 * along**0.4
            row |= {f"log_projected_{v}": grown, f"log_length_{v}": grown if numbers["k_log_sd"] > 0.1 else 1.73}
            share = 0.000244 * (1 + numbers[f"radial_over_random_{v}"] * along)
            row |= {f"radial_share_{v}": share, f"radial_null_{v}": 0.000244} if step < STEPS else {}
            row |= {f"radial_share_{v}": None, f"radial_null_{v}": None} if step == STEPS else {}
        made.append(row)
    return made


def made_group(group, arms, seeds, *, rates=(), planted=None, **others):
    """The runs of a group by name; `planted`: means by arm."""
    made = {}
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        for rate in rates or (None,):
            for arm in arms:
                middle = "" if rate is None else f"r{rate:g}-"
                given = {} if rate is None else {"rate": rate}
                means = (planted or {}).get(arm, {})
                means = means(rate) if callable(means) else means
                record = made_record(group, arm, seed, means=means, **given, **others)
                made[f"{group}-{arm}-{middle}s{seed}"] = record
    return made


NORM = {
    **{"growth_scored_k": 0.02, "growth_scored_q": 0.01, "radial_over_random_k": 1.0, "radial_over_random_q": 1.0},
    **{"k_log_sd": 0.06, "tv": 0.12, "tv_balanced": 0.12, "delta_ce_neutral_norm": 0.02, "max_logit": 14.0},
    **{"delta_ce_scalar_gain": 0.01, "loss_1x": 4.66, "loss_2x": 4.71, "loss_4x": 4.8, "auc_keys": 0.86},
}
GAINLESS = {**NORM, "k_log_sd": 0.0, "tv": 0.0, "tv_balanced": 0.0, "delta_ce_scalar_gain": None}
# Arms as one might expect them.
LIKELY = {
    "A1": NORM,
    "A2": {**GAINLESS, "loss_1x": 4.665},
    "A3": {**NORM, "loss_1x": 4.672, "loss_2x": 4.725, "loss_4x": 4.86, "delta_ce_scalar_gain": None},
    "A4": {**GAINLESS, "loss_1x": 4.665},
    "A5": {**NORM, "k_log_sd": 0.22, "tv": 0.2, "delta_ce_scalar_gain": None},
    "A6": {**GAINLESS, "loss_1x": 4.662},
    "A7": {**NORM, "loss_1x": 4.659},
    "A8": {**GAINLESS, "loss_1x": 5.4, "loss_2x": 5.5, "loss_4x": 5.6},
    "A9": {"loss_1x": 4.74, "loss_2x": 4.79, "loss_4x": 4.88},
}


def stable(at):
    """Without a norm high rates cost."""
    return lambda rate: {"loss_1x": 4.7 + at * math.log10(rate / 3e-4), "max_logit": 25 * (1 + 60 * rate)}


def made_whole(seeds=6, **others):
    """All groups, as one might expect them."""
    long = {
        "A0": {"first_mass": 0.2, "first_mass_64": 0.3},
        "A1": {**NORM, "first_mass": 0.05, "first_mass_64": 0.15},
    }
    rates = (3e-4, 1e-3, 3e-3, 1e-2)
    return {
        **made_group("nano", list(ARMS), seeds, planted=LIKELY, **others),
        **made_group("long", ["A0", "A1"], seeds, planted=long, tokens=12_000_000, **others),
        **made_group(
            "stability", ["A0", "A1"], 4, rates=rates, planted={"A0": stable(0.3), "A1": stable(0.02)}, **others
        ),
        **made_group("backcopy", ["A0", "A1", "A2", "A3", "A4"], 3, length=64, **others),
        **made_group("micro", ["A0", "A1"], 3, planted={"A1": NORM}, **others),
    }


class Remembered(Records):
    """Records that look up an arm's runs once: tests ask for them by the thousand."""

    @cache  # noqa: B019 (as many as there are tests)
    def rows(self, group, arm, rate=None):
        return super().rows(group, arm, rate)


def made(whole):
    """Records of runs by name."""
    return remembered(make_records(whole))


def remembered(found):
    """The same records, quicker."""
    return Remembered(found.table, found.whole)


def written(whole, folder):
    """The same as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in whole.items():
        (folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    return folder

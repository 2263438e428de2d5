"""A tiny model watched on a padded batch: the tables that the package makes, and the oracle's own sequences."""

from functools import cache

import numpy as np
import torch

from geomprobe import capture
from geomprobe.attention.anatomy import examine
from geomprobe.attention.batch import Tokens, Visibilities, make_batch
from geomprobe.attention.seam import watching
from geomprobe.attention.spec import CorpusSpec, Spec
from geomprobe.labels import CLASS_INDEX
from geomprobe.observation import choose_probes
from geomprobe.probes.assembly import summarise
from geomprobe.probes.base import observe
from geomprobe.testing import tiny_model

TYPES = tuple((f"{name}{i}", name) for name in ("article", "preposition", "punctuation", "content") for i in range(4))
LENGTH = 96
PADDING = ((0, 0), (5, 0), (0, 9), (3, 4))  # left and right, a sequence


def make_tokens(seed=0):
    """Classes and types at random for each sequence; the first valid token is `first`."""
    rng = np.random.default_rng(seed)
    kind = torch.from_numpy(rng.integers(len(TYPES), size=(len(PADDING), LENGTH)))
    valid = torch.zeros(len(PADDING), LENGTH, dtype=torch.bool)
    for row, (left, right) in enumerate(PADDING):
        valid[row, left : LENGTH - right] = True
    first = valid & (valid.cumsum(1) == 1)
    document = torch.tensor([0, 1, 1, 2])
    token_class = torch.tensor([CLASS_INDEX[name] for _, name in TYPES])[kind].masked_fill(first, CLASS_INDEX["first"])
    cell = kind * 3 + document[:, None]
    return Tokens(
        token_class,
        kind.masked_fill(first, -1),
        cell.masked_fill(first, -1),
        kind.masked_fill(first, -1),
        document,
        valid,
    ), kind


SPEC = CorpusSpec(
    documents=("a", "b", "c"),
    types=TYPES,
    zipf=np.arange(float(len(TYPES))),
    cells=np.array([(kind, document) for kind in range(len(TYPES)) for document in range(3)]),
    tokens=tuple((i, name, text) for i, (text, name) in enumerate(TYPES)),
    window=LENGTH,
)


@cache
def watched(family, dtype, kernel="eager"):
    """(tables, {layer: [oracle Sequence]}, spec, model) of a tiny model."""
    model = tiny_model(family, dtype=dtype)
    model.set_attn_implementation(kernel)
    tokens, kind = make_tokens()
    ids = kind + 3
    mask = tokens.valid.long()
    spec = Spec(examine(model, ids[:1, :20]), SPEC)
    states = {name: (probe, probe.init(spec)) for name, probe in choose_probes(None)[0].items()}
    visibilities = Visibilities()
    places = {layer.module: i for i, layer in enumerate(spec.model.layers)}

    def see(seen):
        visibility = visibilities.of(seen.call, tokens.valid)
        # Small blocks, so that rows of one sequence fall into several.
        observe(list(states.values()), make_batch(seen, places[seen.call.name], tokens, visibility), rows=20)

    with torch.no_grad():
        with watching(model, see):
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        with capture(model) as records:
            model(input_ids=ids, attention_mask=mask, use_cache=False)
    for probe, state in states.values():
        if hasattr(probe, "read"):
            probe.read(state, logits, ids, tokens)
    return summarise(states, spec), {r.layer: sequences(r, model, tokens, kind) for r in records}, spec, model


def sequences(record, model, tokens, kind):
    """The oracle's sequences of one layer, from the captured vectors and the model's configuration."""
    from oracle import Sequence

    config = model.config
    sliding = getattr(config, "layer_types", ["full_attention"] * 9)[record.layer] == "sliding_attention"
    module = model.get_submodule(record.module)
    learned = getattr(module, "sinks", None)
    made = []
    for row in range(len(PADDING)):
        keep = tokens.valid[row].numpy()
        place = kind[row][tokens.valid[row]].tolist()
        names = [TYPES[i] for i in place]
        q, k, v = (x["scored"][row].double().numpy()[:, keep] for x in (record.q, record.k, record.v))
        made.append(
            Sequence(
                q,
                k,
                v,
                classes=["first", *(name for _, name in names[1:])],
                types=names,
                scale=module.scaling,
                window=config.sliding_window if sliding else None,
                softcap=getattr(config, "attn_logit_softcapping", None),
                sinks=None if learned is None else learned.detach().double().numpy(),
            )
        )
    return made

"""What the model makes of the text: its loss, by document."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from geomprobe.attention.batch import Tokens
from geomprobe.attention.spec import Spec
from geomprobe.labels import FROM_ROW, WHOLE_MODEL
from geomprobe.probes.base import PROBES, OutputProbe, State, add_at, counts, zeros

ROWS = 128  # rows of logits taken to float32 at a time: a vocabulary of 262 144 makes 134 MB of them


@PROBES.register("loss")
@dataclass(frozen=True)
class Loss(OutputProbe):
    """Nats per token predicted from positions ≥ 16; NaN unless all layers are causal (docs/schema.md: loss)."""

    def init(self, spec: Spec) -> State:
        """Sums by document."""
        documents = len(spec.corpus.documents)
        return {"n": counts(documents), "loss": zeros(documents)}

    def read(self, state: State, logits: Tensor, ids: Tensor, tokens: Tokens) -> None:
        """Add one batch, in place."""
        for sequence, row_logits in enumerate(logits):
            positions = tokens.valid[sequence].nonzero().flatten()
            predicting, predicted = positions[FROM_ROW:-1], positions[FROM_ROW + 1 :]
            document = tokens.document[sequence : sequence + 1]
            for start in range(0, len(predicting), ROWS):
                part = slice(start, start + ROWS)
                target = ids[sequence, predicted[part]]
                rows = _wide(_rows(row_logits, predicting[part]))
                loss = torch.nn.functional.cross_entropy(rows, target.to(logits.device), reduction="none")
                add_at(state["loss"], document, loss.double().sum()[None])
                add_at(state["n"], document, torch.full_like(document, len(target)))

    def summarise(self, state: State, spec: Spec) -> dict[str, pd.DataFrame]:
        """A part of document_stats, on the row of the whole model."""
        n = state["n"].numpy()
        counted = np.where((n > 0) & spec.model.causal, n, np.nan)  # a model that sees the next token predicts nothing
        loss = state["loss"].numpy() / counted
        return {"document_stats": pd.DataFrame({"layer": WHOLE_MODEL, "document": np.arange(len(n)), "loss": loss})}


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _rows(logits: Tensor, positions: Tensor) -> Tensor:
    """Rows of logits at ascending positions; a view where these are one run, as they are without padding."""
    first, last = int(positions[0]), int(positions[-1])
    return logits[first : last + 1] if last - first + 1 == len(positions) else logits[positions]

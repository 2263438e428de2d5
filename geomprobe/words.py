"""The study of words: chosen types in context flow through the model, and their directions are measured."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors.numpy import save_file

from geomprobe.attention.spec import ModelSpec
from geomprobe.attention.stages import Notebook
from geomprobe.collection import Collection
from geomprobe.corpus.contexts import ContextPlan, Contexts, find_contexts
from geomprobe.corpus.sources import Source
from geomprobe.key_gauges import kept_gauges, key_gauges
from geomprobe.labels import ALL_HEADS, RAW, WHOLE_MODEL
from geomprobe.probes.typed import Cell, TypeProbe
from geomprobe.progress import Reporter
from geomprobe.run.manifest import sha256_of
from geomprobe.stats.angles import cosines, type_vectors
from geomprobe.stats.maps import flat_map
from geomprobe.stats.nearest import hub_counts, neighbours

TOKENS_A_PASS: Final = 2048
GAUGES_FILE: Final = "gauges.safetensors"
RARE_WORDS: Final = 12  # whose neighbours are written out
LISTED: Final = 10  # neighbours of each

Vectors = dict[tuple[str, str, int], NDArray[np.float16]]


@dataclass(frozen=True, eq=False)
class WordStudy:
    """What is looked at, and by which probes.

    Attributes
    ----------
    contexts : Contexts
    probes : dict from name to TypeProbe
    chosen : dict from name to list of int
        The types that each probe looks at.
    """

    contexts: Contexts
    probes: dict[str, TypeProbe]
    chosen: dict[str, list[int]]

    @classmethod
    def prepare(cls, source: Source, tokenizer: Any, probes: dict[str, TypeProbe], plan: ContextPlan) -> "WordStudy":
        """Find the words and their places.

        Raises
        ------
        CorpusError
            Where they are too few for a probe.
        """
        contexts = find_contexts(source, tokenizer, plan)
        return cls(contexts, probes, {name: probe.choose(contexts) for name, probe in probes.items()})

    @property
    def sha256(self) -> str:
        """Of the words and of all tokens that the model reads."""
        digest = hashlib.sha256(json.dumps([vars(kind) for kind in self.contexts.types]).encode())
        digest.update(self.contexts.ids.astype("<i8").tobytes())
        return digest.hexdigest()

    def described(self) -> dict[str, Any]:
        """What the manifest says of it."""
        kinds = self.contexts.types
        return {
            "n_types": len(kinds),
            "n_contexts": self.contexts.n_contexts,
            "context": self.contexts.ids.shape[1],
            "n_categories": len({kind.category for kind in kinds if kind.category}),
            "n_bands": len({kind.band for kind in kinds if kind.band >= 0}),
            "left_out": self.contexts.left_out,
            "sha256": self.sha256,
        }

    def run(
        self,
        model: Any,
        spec: ModelSpec,
        notebook: Notebook,
        folder: Path,
        reporter: Reporter,
        calibration: NDArray[np.int64],
    ) -> "WordResult":
        """The pass and the statistics.

        Parameters
        ----------
        model, spec, notebook
            As `examine` has them.
        folder : Path
            What a stopped pass needs to go on.
        reporter : Reporter
        calibration : ndarray (window, token)
            Windows of text that fix the balanced gauge; without any there is none.
        """
        length = self.contexts.ids.shape[1]
        batch_size = max(1, TOKENS_A_PASS // calibration.shape[1])
        gauges = kept_gauges(
            folder / GAUGES_FILE, lambda: key_gauges(model, spec, calibration, notebook, batch_size=batch_size)
        )
        collection = Collection(spec, self.contexts, folder, gauges)
        if collection.resume():
            reporter.say(f"going on from context {collection.done}")
        with reporter.bar("words", self.contexts.n_contexts, done=collection.done) as bar:
            collection.run(
                model,
                batch_size=max(1, TOKENS_A_PASS // length),
                report=lambda done: bar.update(done, length),
                notebook=notebook,
            )
        result = WordResult(self._plan_tables(), {})
        for name, probe in self.probes.items():
            kept: Vectors = {}
            total = collection.n_cells
            with reporter.bar(f"{name} of directions", total) as bar:
                cells = _keeping(collection.cells(self.chosen[name], probe.n_contexts), kept, bar.update_plain)
                if name == "clusters":
                    cells = chain([self._contexts_alone(name, probe)], cells)
                result.tables.update(probe.measure(cells, self.contexts, self.chosen[name]))
            result.vectors[name] = kept
        self._draw(result)
        return result

    def _contexts_alone(self, name: str, probe: TypeProbe) -> Cell:
        """What clusters are held against: nouns of a category stand in like contexts, whatever a model knows."""
        bags = self.contexts.bags(self.chosen[name], probe.n_contexts)
        return Cell("context", "", WHOLE_MODEL, ALL_HEADS, bags)

    def _plan_tables(self) -> dict[str, pd.DataFrame]:
        contexts, kinds = self.contexts, self.contexts.types
        names = np.array(contexts.document_names, dtype=object)
        words = np.array([kind.word for kind in kinds], dtype=object)
        return {
            "types": pd.DataFrame([vars(kind) | {"n_contexts": kind.n_contexts} for kind in kinds]),
            "contexts": pd.DataFrame(
                {
                    "word": words[contexts.type_index],
                    "document": names[contexts.document],
                    "start": contexts.start,
                }
            ),
        }

    def _draw(self, result: "WordResult") -> None:
        """A map of the nouns and the neighbours of rare words, in the head that a reader would look at first."""
        cell = result.best()
        if cell is None:
            return
        if "clusters" in self.probes:
            result.tables["map"] = self._map(result.vectors["clusters"], cell, self.chosen["clusters"])
        if "neighbours" in self.probes:
            result.tables.update(self._listing(result.vectors["neighbours"], cell))

    def _map(self, vectors: Vectors, cell: tuple[str, int, int], chosen: list[int]) -> pd.DataFrame:
        vector, layer, head = cell
        kinds = [self.contexts.types[index] for index in chosen]
        place = flat_map(vectors["content", vector, layer][:, head].astype(np.float32))
        return pd.DataFrame(
            {
                "layer": layer,
                "vector": vector,
                "head": head,
                "word": [kind.word for kind in kinds],
                "category": [kind.category for kind in kinds],
                "zipf": [kind.zipf for kind in kinds],
                "x": place[:, 0],
                "y": place[:, 1],
            }
        )

    def _listing(self, vectors: Vectors, cell: tuple[str, int, int]) -> dict[str, pd.DataFrame]:
        """The nearest words of the rarest ones, and how often each word is a neighbour.

        In the head, the residual stream at its layer, and the embedding.
        """
        vector, layer, head = cell
        kinds = [self.contexts.types[index] for index in self.chosen["neighbours"]]
        rare = sorted(range(len(kinds)), key=lambda at: (kinds[at].zipf, kinds[at].word))[:RARE_WORDS]
        listed: list[dict[str, Any]] = []
        hubs: list[dict[str, Any]] = []
        for space, v, where, h in (
            ("content", vector, layer, head),
            ("residual", "", layer, 0),
            ("embedding", "", -1, 0),
        ):
            if (space, v, where) not in vectors:
                continue
            similar = cosines(vectors[space, v, where][:, h].astype(np.float32))
            near = neighbours(similar, LISTED)
            key = {"layer": where, "vector": v, "head": head if space == "content" else ALL_HEADS, "space": space}
            listed += [
                {
                    **key,
                    "word": kinds[at].word,
                    "zipf": kinds[at].zipf,
                    "rank": rank,
                    "neighbour": kinds[other].word,
                    "neighbour_zipf": kinds[other].zipf,
                    "cosine": similar[at, other],
                }
                for at in rare
                for rank, other in enumerate(near[at], start=1)
            ]
            counted = hub_counts(near)
            hubs += [
                {**key, "word": kind.word, "zipf": kind.zipf, "frequency_band": kind.band, "count": int(count)}
                for kind, count in zip(kinds, counted, strict=True)
            ]
        return {"word_neighbours": pd.DataFrame(listed), "hubs": pd.DataFrame(hubs)}

    def save_vectors(self, result: "WordResult", folder: Path) -> dict[str, str]:
        """Write the centred vector of every type in every head, and the sha256 of each file by path.

        In float16: a cosine is then right to a thousandth.
        """
        target = folder / "vectors"
        target.mkdir(parents=True, exist_ok=True)
        files = {}
        for name, vectors in result.vectors.items():
            flat = {f"{space}.{v or 'x'}.{layer}": block for (space, v, layer), block in vectors.items()}
            words = [self.contexts.types[index].word for index in self.chosen[name]]
            save_file(flat, target / f"{name}.safetensors", metadata={"types": json.dumps(words)})
            files[f"vectors/{name}.safetensors"] = sha256_of(target / f"{name}.safetensors")
        return files


@dataclass(frozen=True, eq=False)
class WordResult:
    """What came out.

    Attributes
    ----------
    tables : dict from name to DataFrame
    vectors : dict from probe to vectors
        By space (content_balanced: content in the balanced gauge), vector and layer: (type, head, d).
    """

    tables: dict[str, pd.DataFrame]
    vectors: dict[str, Vectors]

    def best(self) -> tuple[str, int, int] | None:
        """The key head that separates the categories best, or that keeps its neighbours best; (vector, layer, head)."""
        by = {"clusters": "auc", "neighbours": "stability"}
        for name, column in by.items():
            table = self.tables.get(name)
            if table is None:
                continue
            keys = table[(table["space"] == "content") & (table["vector"] == "k") & (table["gauge"] == RAW)]
            heads = keys[keys["head"] >= 0]
            if name == "neighbours":
                heads = heads[heads["frequency_band"] == -1]
            heads = heads.dropna(subset=[column])
            if len(heads):
                top = heads.nlargest(1, column).to_dict("records")[0]
                return "k", int(top["layer"]), int(top["head"])
        return None


def _keeping(cells: Iterator[Cell], kept: Vectors, report: Any) -> Iterator[Cell]:
    """The same cells, their type vectors kept on the way."""
    heads: dict[tuple[str, str, int], list[NDArray]] = {}
    for done, cell in enumerate(cells, start=1):
        yield cell
        space = cell.space if cell.gauge == RAW else f"{cell.space}_{cell.gauge}"
        heads.setdefault((space, cell.vector, cell.layer), []).append(type_vectors(cell.x).astype(np.float16))
        report(done)
    kept.update({key: np.stack(blocks, axis=1) for key, blocks in heads.items()})  # (type, head, d)

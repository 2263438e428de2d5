"""The header of a GGUF file: enough to tell a whole file from a damaged one, and how its weights are stored."""

import struct
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from geomprobe.errors import ModelNotFound

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_STRING, _ARRAY = 8, 9
_FIXED: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOATS: Final = {0: "float32", 1: "float16", 30: "bfloat16"}
_MAX_DIMENSIONS: Final = 8
_ROPE_TENSORS: Final = ("rope_freqs.", "rope_factors_")


class Tensor(NamedTuple):
    """One entry of the tensor table; `kind` is ggml's number of the storage type."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class Header(NamedTuple):
    """What a GGUF file says before its data."""

    architecture: str
    tensors: tuple[Tensor, ...]
    metadata: dict[str, Any]  # of arrays only the length

    @property
    def scales_rope(self) -> bool:
        """Whether the rotary frequencies are not the plain ones of the base (YaRN, LongRoPE, Llama 3 …)."""
        kind = self.metadata.get(f"{self.architecture}.rope.scaling.type", "none")
        return kind != "none" or any(tensor.name.startswith(_ROPE_TENSORS) for tensor in self.tensors)

    @property
    def matrix_dtype(self) -> str:
        """The dtype that holds every matrix without loss: float16 or bfloat16 where all have it, else float32."""
        kinds = {_FLOATS.get(tensor.kind, "float32") for tensor in self.tensors if len(tensor.shape) > 1}
        return kinds.pop() if len(kinds) == 1 else "float32"

    @property
    def has_half_vectors(self) -> bool:
        """Whether vectors (gains, biases) are stored as the matrices are, not in float32."""
        vectors = [tensor for tensor in self.tensors if len(tensor.shape) == 1]
        return bool(vectors) and all(_FLOATS.get(tensor.kind) == self.matrix_dtype for tensor in vectors)


class _Damage(Exception):
    """The bytes are not what the format says."""


class _Reader:
    """Little-endian values from a file, never past its end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file = file
        self.size = size

    def take(self, count: int) -> bytes:
        if count > self.size - self.file.tell():  # before reading: a damaged length may be astronomical
            raise _Damage("it ends early")
        return self.file.read(count)

    def value(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def string(self) -> str:
        return self.take(self.value("Q")).decode("utf-8")

    def entry(self, kind: int) -> Any:
        """A metadata value; of arrays only the length, which is all that is needed of a vocabulary."""
        if kind in _FIXED:
            return self.value(_FIXED[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            raise _Damage(f"a metadata value has the unknown type {kind}")
        inner, count = self.value("I"), self.value("Q")
        if inner in _FIXED:
            self.take(count * struct.calcsize(f"<{_FIXED[inner]}"))
        elif inner == _STRING:
            for _ in range(count):
                self.take(self.value("Q"))
        else:
            raise _Damage(f"a metadata array has the unknown type {inner}")
        return count

    def tensor(self) -> Tensor:
        name, dimensions = self.string(), self.value("I")
        if dimensions > _MAX_DIMENSIONS:
            raise _Damage(f"the tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self.value("Q") for _ in range(dimensions))
        return Tensor(name, shape, self.value("I"), self.value("Q"))


def read_header(path: Path) -> Header:
    """The header of a GGUF file that is whole.

    Raises
    ------
    ModelNotFound
        Where the file is none, is cut off or damaged, or is one part of several.
    """
    try:
        with path.open("rb") as file:
            reader = _Reader(file, path.stat().st_size)
            if file.read(4) != _MAGIC:
                raise ModelNotFound(f"{str(path)!r} is not a GGUF file: it does not begin with the letters GGUF.")
            if (version := reader.value("I")) not in _VERSIONS:
                raise _Damage(f"its version is {version}, and {_VERSIONS[0]} or {_VERSIONS[1]} can be read")
            n_tensors, n_entries = reader.value("Q"), reader.value("Q")
            metadata: dict[str, Any] = {}
            for _ in range(n_entries):
                key = reader.string()
                metadata[key] = reader.entry(reader.value("I"))
            tensors = tuple(reader.tensor() for _ in range(n_tensors))
            _check_extent(tensors, file.tell(), _count(metadata, "general.alignment", 32), reader.size)
            n_parts = _count(metadata, "split.count", 1)
    except (_Damage, UnicodeDecodeError, OverflowError) as error:
        raise ModelNotFound(f"The GGUF file {str(path)!r} is damaged or unfinished ({error}); get it again.") from error
    except OSError as error:
        raise ModelNotFound(f"The file {str(path)!r} cannot be read ({error.strerror}).") from error
    if n_parts > 1:
        raise ModelNotFound(
            f"{str(path)!r} is one of {n_parts} parts of a GGUF file; join them first "
            "(llama.cpp's gguf-split --merge) and give the whole file."
        )
    return Header(str(metadata.get("general.architecture", "unknown")), tensors, metadata)


def _count(metadata: dict[str, Any], key: str, default: int) -> int:
    value = metadata.get(key, default)
    if not isinstance(value, int) or value < 0 or (value == 0 and default > 1):
        raise _Damage(f"its {key} is {value!r}")
    return value


def _check_extent(tensors: tuple[Tensor, ...], table_end: int, alignment: int, size: int) -> None:
    """Every tensor must end inside the file: the usual damage is a download that stopped."""
    from gguf.constants import GGML_QUANT_SIZES  # numpy and a large table: only where a GGUF file is read

    sizes = {int(kind): block for kind, block in GGML_QUANT_SIZES.items()}
    start = -(-table_end // alignment) * alignment
    for tensor in tensors:
        if tensor.kind not in sizes:
            raise _Damage(f"the tensor {tensor.name!r} has the unknown storage type {tensor.kind}")
        block, n_bytes = sizes[tensor.kind]
        if start + tensor.offset + prod(tensor.shape) // block * n_bytes > size:
            raise _Damage(f"it ends inside the tensor {tensor.name!r}")

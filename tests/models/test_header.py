import struct
from contextlib import suppress

import gguf
import numpy as np
import pytest

from geomprobe.errors import ModelNotFound
from geomprobe.models.header import read_header

KIND = gguf.GGMLQuantizationType


@pytest.fixture
def write(tmp_path):
    """Write a GGUF file of tensors {name: (array, storage)} and return its path."""

    def make(tensors, **entries):
        path = tmp_path / "it.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_array("tokens", ["a", "bb", "ccc"])
        writer.add_array("numbers", [1, 2, 3])
        for key, value in entries.items():
            writer.add_key_value(key.replace("__", "."), *value)
        for name, (array, kind) in tensors.items():
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


MATRIX, VECTOR = np.ones((4, 32), np.float32), np.ones(32, np.float32)


def test_a_header_says_architecture_and_tensors(write):
    header = read_header(write({"a": (MATRIX, KIND.Q8_0), "b": (VECTOR, KIND.F32)}))
    assert header.architecture == "llama"
    assert [(tensor.name, tensor.shape, tensor.kind) for tensor in header.tensors] == [
        ("a", (32, 4), 8),
        ("b", (32,), 0),
    ]
    assert header.metadata["tokens"] == 3
    assert not header.scales_rope


@pytest.mark.parametrize(
    ("matrices", "vector", "dtype", "half_vectors"),
    [
        ([KIND.F16, KIND.F16], KIND.F32, "float16", False),
        ([KIND.BF16, KIND.BF16], KIND.F32, "bfloat16", False),
        ([KIND.F16, KIND.F16], KIND.F16, "float16", True),
        ([KIND.F32, KIND.F32], KIND.F32, "float32", True),
        ([KIND.F16, KIND.F32], KIND.F32, "float32", True),
        ([KIND.F16, KIND.BF16], KIND.F32, "float32", True),
        ([KIND.F16, KIND.Q8_0], KIND.F32, "float32", True),
        ([KIND.Q4_0, KIND.Q8_0], KIND.F32, "float32", True),
    ],
)
def test_the_dtype_holds_what_the_file_holds(write, matrices, vector, dtype, half_vectors):
    tensors = {f"m{index}": (MATRIX, kind) for index, kind in enumerate(matrices)}
    header = read_header(write({**tensors, "v": (VECTOR, vector)}))
    assert header.matrix_dtype == dtype
    assert header.has_half_vectors is half_vectors


def test_rescaled_rotary_frequencies_are_seen(write):
    kind = gguf.GGUFValueType.STRING
    assert read_header(write({"a": (MATRIX, KIND.F32)}, llama__rope__scaling__type=("yarn", kind))).scales_rope
    assert not read_header(write({"a": (MATRIX, KIND.F32)}, llama__rope__scaling__type=("none", kind))).scales_rope
    assert read_header(write({"rope_freqs.weight": (VECTOR, KIND.F32)})).scales_rope


def test_a_file_that_is_no_gguf_is_one_sentence(tmp_path):
    path = tmp_path / "it.gguf"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ModelNotFound, match=r"is not a GGUF file: it does not begin with the letters GGUF\.$"):
        read_header(path)


@pytest.mark.parametrize("cut", [3, 10, 23, 30, 100, 200, -1])
def test_a_file_that_ends_early_is_one_sentence(write, cut):
    path = write({"a": (MATRIX, KIND.F32), "b": (VECTOR, KIND.F32)})
    content = path.read_bytes()
    end = len(content) - 512 if cut == -1 else cut  # -1: whole header, part of the data
    path.write_bytes(content[:end])
    with pytest.raises(ModelNotFound, match=r"is not a GGUF file|is damaged or unfinished \(.+\); get it again\.$"):
        read_header(path)


@pytest.mark.parametrize("seed", range(60))
def test_damage_anywhere_in_the_header_is_one_sentence_or_harmless(write, seed):
    path = write({"a": (MATRIX, KIND.F32), "b": (VECTOR, KIND.F32)})
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    for place in rng.integers(4, 200, size=4):
        content[place] = rng.integers(256)
    path.write_bytes(content)
    with suppress(ModelNotFound):
        read_header(path)


def test_an_unknown_version_is_one_sentence(write):
    path = write({"a": (MATRIX, KIND.F32)})
    content = bytearray(path.read_bytes())
    content[4:8] = struct.pack("<I", 9)
    path.write_bytes(content)
    with pytest.raises(ModelNotFound, match=r"its version is 9, and 2 or 3 can be read"):
        read_header(path)


def test_one_part_of_several_is_one_sentence(write):
    path = write({"a": (MATRIX, KIND.F32)}, split__count=(3, gguf.GGUFValueType.UINT16))
    with pytest.raises(ModelNotFound, match=r"is one of 3 parts of a GGUF file; join them first"):
        read_header(path)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(ModelNotFound, match=r"cannot be read \(No such file or directory\)\.$"):
        read_header(tmp_path / "it.gguf")

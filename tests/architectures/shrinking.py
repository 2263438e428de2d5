"""Shrink the configuration of any family to a few thousand weights, and keep one layer of every kind that it has."""

import dataclasses
import inspect
from dataclasses import dataclass, field
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from tests.architectures.sizes import HEAD_DIM, HEADS, HIDDEN, NEVER_LARGER, NEVER_NONE, ROTATED, SIZES

# The first that a configuration has says how many layers there are.
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
_PATTERNS = ("layer_types", "mlp_layer_types", "layers_block_type", "block_types", "no_rope_layers", "indexer_types")
_TOKEN_ENDINGS = ("token_id", "token_index")
_FIRST_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# Lists of the layers that are of a kind of their own.
_CHOSEN_LAYERS = ("deepstack_visual_indexes", "global_attn_indexes", "fullatt_block_indexes", "full_attn_idxs")
# Lists whose values are all the same when small.
_ALL_ALIKE = {"channel_multiplier": 1, "conv_dim": HIDDEN}
# Of a model in stages: what doubles from stage to stage, and the field whose size it starts at.
_DOUBLING = {
    "hidden_sizes": "hidden_size",
    "embed_dims": "hidden_size",
    "embed_dim": "hidden_size",
    "num_groups": "num_heads",
    "num_heads": "num_heads",
    "num_attention_heads": "num_heads",
}
STAGES = 2
# A list with more values than this numbers its layers and is no pattern of kinds.
_MOST_KINDS = 4


@dataclass
class Draft:
    """What a configuration will be made of: fields that differ from the default, and drafts of its parts.

    Attributes
    ----------
    kind : type
        The class of the configuration.
    known : set of str
        Every field that the default has, changed or not.
    text : str
        The part that describes the text model; empty where that is the configuration itself.
    fields : dict
        The values to make it with.
    per_layer : set of str
        The fields that hold one value a layer; in a draft they hold each kind once, or whatever was set.
    """

    kind: type[PreTrainedConfig]
    known: set[str]
    text: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    per_layer: set[str] = field(default_factory=set)

    def set(self, path: str, value: Any) -> None:
        """Set a field, or by a dotted path one of a part."""
        first, _, rest = path.partition(".")
        if rest:
            self.fields[first].set(rest, value)
        else:
            self.fields[first] = value

    def vary(self, path: str, value: Any) -> None:
        """Set a field where it lives: here, else in the text part, else in another."""
        holder = self._holder(path.partition(".")[0])
        if holder is None:
            raise ValueError(f"variant must name fields of {self.kind.__name__} or of its parts; got {path!r}.")
        holder.set(path, value)

    def _holder(self, name: str) -> "Draft | None":
        """The draft, this one or a part, whose class has a field of this name."""
        # Classes take some older names in their arguments alone, and turn them into fields.
        if name in self.known or f'"{name}"' in inspect.getsource(self.kind):
            return self
        parts = {key: part for key, part in self.fields.items() if isinstance(part, Draft)}
        text_first = sorted(parts, key=lambda key: key != self.text)
        return next((found for key in text_first if (found := parts[key]._holder(name)) is not None), None)

    def make(self) -> PreTrainedConfig:
        """The configuration, every list that has one value a layer as long as there are layers."""
        made = {name: value.make() if isinstance(value, Draft) else value for name, value in self.fields.items()}
        patterns = {
            name: value
            for name, value in made.items()
            if isinstance(value, list) and value and (name in self.per_layer or name in _PATTERNS)
        }
        count = next((name for name in _LAYER_COUNTS if name in made), None)
        if count is not None:
            n_layers = max([made[count], *map(len, patterns.values())])
            made[count] = n_layers
            made |= {name: [value[i % len(value)] for i in range(n_layers)] for name, value in patterns.items()}
        return self.kind(**made)


def draft(default: PreTrainedConfig, token_ids: dict[str, int] | None = None) -> Draft:
    """The draft of a small configuration, from a default one.

    Parameters
    ----------
    default : PreTrainedConfig
    token_ids : dict, optional
        The ids of special tokens, shared with the configuration around this one; new names are added.
    """
    token_ids = dict(_FIRST_IDS) if token_ids is None else token_ids
    values = _values(default)
    result = Draft(type(default), known=set(values) | set(vars(default)))
    n_layers = next((values[name] for name in _LAYER_COUNTS if name in values), None)
    for name, value in values.items():
        small = _small(name, value, n_layers, token_ids)
        if small is not None:
            result.fields[name] = small
            if isinstance(small, list) and len(value) == n_layers and name not in (*_ALL_ALIKE, *_CHOSEN_LAYERS):
                result.per_layer.add(name)
    for name, part in vars(default).items():
        if isinstance(part, PreTrainedConfig):
            result.fields[name] = draft(part, token_ids)
            if part is default.get_text_config(decoder=True):
                result.text = name
    _fit(result, values)
    return result


def _fit(result: Draft, values: dict[str, Any]) -> None:
    """Bring sizes that go together into agreement."""
    if values.get("kv_lora_rank") is not None:
        _fit_latents(result, values)
    if "depths" in values and any(isinstance(values.get(name), list | tuple) for name in _DOUBLING):
        _fit_stages(result, values)
    for name, value in values.items():
        if isinstance(value, dict) and "mrope_section" in str(value):
            result.fields[name] = _fit_sections(value, ROTATED if "qk_rope_head_dim" in values else HEAD_DIM)


def _values(default: PreTrainedConfig) -> dict[str, Any]:
    """What a configuration can be made with, as the default has it; a field may be kept under another name."""
    kept, alias = vars(default), type(default).attribute_map
    names = (each.name for each in dataclasses.fields(default) if each.init)
    return {name: kept[alias.get(name, name)] for name in names if alias.get(name, name) in kept}


def _fit_latents(result: Draft, values: dict[str, Any]) -> None:
    """Latent attention gives every query head a key of its own; some classes call the rotated part the head."""
    result.fields["num_key_value_heads"] = HEADS
    if values.get("head_dim") == values["qk_rope_head_dim"]:
        result.fields["head_dim"] = ROTATED


def _fit_stages(result: Draft, values: dict[str, Any]) -> None:
    """Models that narrow an image step by step keep the first steps, each with a few layers."""
    n_stages = len(values["depths"])
    for name, value in values.items():
        if not isinstance(value, list | tuple) or len(value) != n_stages:
            continue
        kept = list(value[:STAGES])
        if name in _DOUBLING:
            kept = [SIZES[_DOUBLING[name]] * 2**stage for stage in range(STAGES)]
        result.fields[name] = kept
    result.fields["depths"] = [2] * STAGES
    result.per_layer -= set(values)


def _fit_sections(rope: dict[str, Any], n_channels: int) -> dict[str, Any]:
    """Settings of a rotation whose pairs are shared out among time, height and width."""
    result = {name: _fit_sections(each, n_channels) if isinstance(each, dict) else each for name, each in rope.items()}
    if result.get("mrope_section"):
        n_pairs = int(n_channels * result.get("partial_rotary_factor", 1.0)) // 2
        result["mrope_section"] = [n_pairs - 2 * (n_pairs // 4), n_pairs // 4, n_pairs // 4]
    return result


def _small(name: str, value: Any, n_layers: int | None, token_ids: dict[str, int]) -> Any:
    """What a field becomes; None where it stays as it is."""
    if value is None:
        return SIZES[name] if name in NEVER_NONE else None
    if name.endswith(_TOKEN_ENDINGS):
        # Within the small vocabulary, and the same wherever the name comes again.
        return token_ids.setdefault(name, len(token_ids))
    if isinstance(value, list | tuple):
        return _several(name, list(value), n_layers)
    if isinstance(value, int) and not isinstance(value, bool):
        return min(value, SIZES[name]) if name in NEVER_LARGER else SIZES.get(name)
    return None


def _several(name: str, value: list[Any], n_layers: int | None) -> list[Any] | None:
    """What a list becomes."""
    if name in ("image_size", "patch_size") and len(value) == 2:
        return [SIZES[name]] * 2
    if name in _ALL_ALIKE:
        return [_ALL_ALIKE[name]] * len(value)
    if name in _CHOSEN_LAYERS:
        return [1]  # the second of two
    return _kinds(name, value, n_layers)


def _kinds(name: str, value: list[Any], n_layers: int | None) -> list[Any] | None:
    """Each value of a list that goes with the layers once, in the order of the layers."""
    if len(value) != n_layers or not all(isinstance(each, str | int | float) for each in value):
        return None
    if name in SIZES:
        return [SIZES[name]]
    kinds = list(dict.fromkeys(value))
    return kinds if len(kinds) <= _MOST_KINDS else None

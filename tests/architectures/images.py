"""Images for models that look at them: as many and as large as a model's configuration says."""

from typing import Any

import torch
from torch import Tensor

from tests.architectures.sizes import IMAGE, PATCH
from tests.architectures.text import LENGTH, SEQUENCES, takes

# Patches of an image that comes as a row of patches, down and across.
GRID = IMAGE // PATCH
_PARTS = ("vision_config", "vision_encoder_config", "image_model_config", "encoder", "backbone_config")
_GRID_NAMES = ("image_grid_thw", "grid_thw")


def images(model: Any, config: Any) -> dict[str, Any]:
    """Two random images under the names that a model's forward has for them; empty where it takes none.

    Drawn from torch's global generator.
    """
    grid = next((name for name in _GRID_NAMES if takes(model, name)), None)
    names = ("pixel_values", "pixel_values_videos") if grid is None else ("pixel_values", "hidden_states")
    name = next((each for each in names if takes(model, each)), None)
    if name is None:
        return {}
    vision = part(config)
    if grid is not None:
        found = {name: torch.randn(SEQUENCES * GRID**2, patch_width(vision)), grid: grids()}
        merges = grid.replace("grid_thw", "merge_sizes")
        return found | ({merges: torch.tensor([2] * SEQUENCES)} if takes(model, merges) else {})
    if takes(model, "spatial_shapes"):
        return {
            name: torch.randn(SEQUENCES, GRID**2, patch_width(vision)),
            "spatial_shapes": grids()[:, 1:],
            "pixel_attention_mask": torch.ones(SEQUENCES, GRID**2, dtype=torch.long),
        }
    shape = picture(vision)
    n_frames = getattr(vision, "num_frames", None)
    found = {name: torch.randn(SEQUENCES, *((n_frames,) if n_frames else ()), *shape)}
    if takes(model, "image_sizes"):
        found["image_sizes"] = torch.tensor([shape[1:]] * SEQUENCES)
    return found


def several(model: Any, config: Any) -> dict[str, Any]:
    """One image for each of two texts, with an axis for further ones, (sequence, image, channel, height, width)."""
    return {"pixel_values": torch.randn(SEQUENCES, 1, *picture(part(config)))}


def tiles(model: Any, config: Any) -> dict[str, Any]:
    """The same as one tile each, and that it is one."""
    return several(model, config) | {"pixel_attention_mask": torch.ones(SEQUENCES, 1, dtype=torch.bool)}


def lone(_model: Any, config: Any) -> dict[str, Any]:
    """Two images, without their sizes or anything else."""
    return {"pixel_values": torch.randn(SEQUENCES, *picture(part(config)))}


def sharp(model: Any, config: Any) -> dict[str, Any]:
    """Two images, and the same finer."""
    found = lone(model, config)
    return found | {"high_res_pixel_values": lone(model, config)["pixel_values"]}


def flat(_model: Any, config: Any) -> dict[str, Any]:
    """Images as rows of flat patches, (sequence, patch, channel)."""
    return {"pixel_values": torch.randn(SEQUENCES, GRID**2, patch_width(part(config)))}


def sized(_model: Any, config: Any) -> dict[str, Any]:
    """Images as one row of flat patches, (patch, channel), and the patches of each down and across."""
    vision = part(config)
    return {
        "pixel_values": torch.randn(SEQUENCES * GRID**2, patch_width(vision)),
        "image_grid_hw": grids()[:, 1:],
    }


def numbered(_model: Any, config: Any) -> dict[str, Any]:
    """Flat patches that start with their row and column, (sequence, patch, 2 + channel)."""
    vision = part(config)
    rows = 1 + torch.cartesian_prod(torch.arange(GRID), torch.arange(GRID)).float()  # (patch, 2)
    drawn = torch.randn(SEQUENCES, GRID**2, vision.patch_embed_hidden_size)
    return {"flattened_patches": torch.cat([rows.expand(SEQUENCES, -1, -1), drawn], dim=-1)}


def film(model: Any, config: Any) -> dict[str, Any]:
    """Two frames for each text, (sequence, frame, channel, height, width)."""
    return {"pixel_values": torch.randn(SEQUENCES, 2, *picture(part(config)))}


def blocks(_model: Any, config: Any) -> dict[str, Any]:
    """Images as a row of what becomes a token each, two frames deep, (token, frame, height, width, channel)."""
    vision = part(config)
    side = vision.patch_size
    shape = (SEQUENCES * GRID, vision.temporal_patch_size, side, side, channels(vision))
    return {"pixel_values": torch.randn(shape)}


def attended(model: Any, config: Any) -> dict[str, Any]:
    """One image for each of two texts, which every word may look at."""
    return several(model, config) | {"image_attention_mask": torch.ones(SEQUENCES, LENGTH, 1, dtype=torch.long)}


def tiled(_model: Any, config: Any) -> dict[str, Any]:
    """One image of two tiles for each of two texts, (sequence, image, tile, channel, height, width)."""
    n_tiles = config.vision_config.max_num_tiles
    here = (torch.arange(n_tiles) < 2).long()  # (tile,)
    return {
        "pixel_values": torch.randn(SEQUENCES, 1, n_tiles, *picture(config.vision_config)),
        "aspect_ratio_ids": torch.full((SEQUENCES, 1), 2),
        "aspect_ratio_mask": here.expand(SEQUENCES, 1, -1).contiguous(),
        "cross_attention_mask": here.expand(SEQUENCES, LENGTH, 1, -1).contiguous(),
    }


def pooled(_model: Any, config: Any) -> dict[str, Any]:
    """Images as flat patches, and which four of them become a token."""
    vision = part(config)
    side = GRID // 2
    squares = torch.arange(SEQUENCES * GRID**2).view(SEQUENCES, side, 2, side, 2).transpose(2, 3)
    return {
        "pixel_values": torch.randn(SEQUENCES, GRID**2, patch_width(vision)),
        "image_token_pooling": squares.reshape(-1, 4),  # (token, patch)
        "image_grids": torch.tensor([[side, side, 0, 0]] * SEQUENCES),
        "image_num_crops": torch.ones(SEQUENCES, dtype=torch.long),
    }


def steered(model: Any, config: Any) -> dict[str, Any]:
    """What a robot sees and is, and the noise that its movements are made of."""
    return {
        "pixel_values": torch.randn(SEQUENCES, 1, *picture(config.vlm_config.vision_config)),
        "pixel_attention_mask": torch.ones(SEQUENCES, 1, dtype=torch.bool),
        "state": torch.randn(SEQUENCES, config.max_state_dim),
        "noise": torch.randn(SEQUENCES, config.chunk_size, config.max_action_dim),
        "timestep": torch.rand(SEQUENCES),
    }


def huge(_model: Any, config: Any) -> dict[str, Any]:
    """Images four times as high and wide as what is seen at once."""
    n_colours, height, width = picture(part(config))
    return {"pixel_values": torch.randn(SEQUENCES, n_colours, 4 * height, 4 * width)}


def cut(_model: Any, config: Any) -> dict[str, Any]:
    """Images, whole and in two pieces, (sequence, piece, channel, height, width), and their sizes."""
    n_colours, height, width = picture(part(config))
    return {
        "pixel_values": torch.randn(SEQUENCES, 3, n_colours, height, width),
        "image_sizes": torch.tensor([[height, 2 * width]] * SEQUENCES),
    }


def patches(model: Any, config: Any) -> dict[str, Any]:
    """Images as a row of square patches, (patch, channel, height, width)."""
    grid = next(name for name in _GRID_NAMES if takes(model, name))
    vision = part(config)
    return {
        "pixel_values": torch.randn(SEQUENCES * GRID**2, channels(vision), vision.patch_size, vision.patch_size),
        grid: grids(),
    }


def merged(model: Any, config: Any) -> dict[str, Any]:
    """Images as a row of what becomes a token each, (token, height, width, channel)."""
    vision = part(config)
    side = vision.patch_size * vision.spatial_merge_size
    n_tokens = SEQUENCES * (GRID // vision.spatial_merge_size) ** 2
    shape = torch.tensor([1, vision.spatial_merge_size, vision.spatial_merge_size])
    return {"pixel_values": torch.randn(n_tokens, side, side, channels(vision)), "image_grid_thw": grids() // shape}


def placed(model: Any, config: Any) -> dict[str, Any]:
    """Images as patches that say where they stand, (sequence, patch, channel)."""
    vision = part(config)
    name = "pixel_position_ids" if takes(model, "pixel_position_ids") else "image_position_ids"
    places = torch.cartesian_prod(torch.arange(GRID), torch.arange(GRID)).flip(-1)  # (patch, 2)
    side = getattr(vision, "model_patch_size", vision.patch_size)
    size = channels(vision) * side**2
    return {"pixel_values": torch.randn(SEQUENCES, GRID**2, size), name: places.expand(SEQUENCES, -1, -1)}


def shaped(_model: Any, config: Any) -> dict[str, Any]:
    """Images as one long row of patches, (1, channel, patch height, width), and the shape of each."""
    vision = part(config)
    size, side = vision.patch_size, GRID + 2  # it is halved twice
    return {
        "pixel_values": torch.randn(1, channels(vision), size, SEQUENCES * side**2 * size),
        "target_sizes": torch.full((SEQUENCES, 2), side),
    }


def part(config: Any) -> Any:
    """The part of a configuration that describes how images are read."""
    for name in _PARTS:
        found = getattr(config, name, None)
        if found is not None and not isinstance(found, dict):
            return part(found)
    return config


def picture(vision: Any) -> tuple[int, int, int]:
    """Channels, height and width of an image."""
    size = getattr(vision, "image_size", None) or IMAGE
    height, width = (size, size) if isinstance(size, int) else (size[0], size[1])
    return channels(vision), height, width


def channels(vision: Any) -> int:
    """The colours of an image."""
    return next((n for name in ("num_channels", "in_channels", "in_chans") if (n := getattr(vision, name, None))), 3)


def patch_width(vision: Any) -> int:
    """The numbers in a patch that comes flat."""
    frames = getattr(vision, "temporal_patch_size", None) or getattr(vision, "patch_temporal", None) or 1
    return channels(vision) * frames * vision.patch_size**2


def grids() -> Tensor:
    """The patches of two images in time, down and across, (sequence, 3)."""
    return torch.tensor([[1, GRID, GRID]] * SEQUENCES)

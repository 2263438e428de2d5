"""Images as a corpus: each is a document of one window, whose tokens are the places at which the model looks."""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from geomprobe.corpus.sources import distinct
from geomprobe.corpus.windows import Corpus
from geomprobe.errors import CorpusError, UnsupportedModel
from geomprobe.labels import CLASS_INDEX, FIRST

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def find_images(paths: Iterable[str | PathLike[str]]) -> list[Path]:
    """The image files that paths name, those of a folder in alphabetical order.

    Raises
    ------
    CorpusError
        Where a path is missing, or a folder has no image.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
            if not inside:
                raise CorpusError(f"The folder {str(path)!r} has no image ({', '.join(SUFFIXES)}).")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise CorpusError(f"There is no image {str(path)!r}; give a file, or a folder of images, with --input.")
    if not found:
        raise CorpusError("No image was given; name a file or a folder with --input.")
    return found


def pixels_of(processor: Any, files: Sequence[Path]) -> Tensor:
    """What the model's own processor makes of images: (image, channel, row, column), float32.

    Raises
    ------
    CorpusError
        Where a file is no image.
    UnsupportedModel
        Where the processor makes anything but one array of pixels an image.
    """
    opened = [_open(file) for file in files]
    made = processor(images=opened, return_tensors="pt")
    pixels = made.get("pixel_values")
    if not isinstance(pixels, Tensor) or pixels.dim() != 4 or len(pixels) != len(files):
        raise UnsupportedModel(
            f"{type(processor).__name__} cuts an image into pieces of its own; an analysis takes models that get one "
            "array of pixels an image. geomprobe.capture shows what others attend to."
        )
    return pixels


def _open(file: Path) -> Image.Image:
    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise CorpusError(f"The image {str(file)!r} cannot be read ({error}); give a PNG or JPEG file.") from error


def image_corpus(files: Sequence[Path], processor: Any, *, positions: int, patch: int | None) -> Corpus:
    """Images as windows of equal length.

    Parameters
    ----------
    files : sequence of Path
    processor : transformers image processor
        The model's own.
    positions : int
        Over which the model attends (attention.anatomy.positions_of).
    patch : int or None
        Pixels a side of what stands at one position, where the model tells.

    Returns
    -------
    Corpus
        A token's id is its place and its text the patch there, by row and column from 0; position 0 has the class
        `first`, what stands before the patches beside it `special`, a patch `other`. A type is a place.
    """
    height, width = pixels_of(processor, files[:1]).shape[-2:]
    names = _places(positions, (height, width), patch)
    shape = (len(files), positions)
    token_class = np.full(shape, CLASS_INDEX["other"], dtype=np.int64)
    token_class[:, [name.startswith("extra") for name in names]] = CLASS_INDEX["special"]
    token_class[:, 0] = CLASS_INDEX[FIRST]
    digest = hashlib.sha256()
    for file in files:
        data = file.read_bytes()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    nothing = np.zeros(len(files), dtype=np.int64)
    stems = tuple(distinct([file.stem for file in files]))
    return Corpus(
        name=files[0].stem if len(files) == 1 else files[0].resolve().parent.name or "images",
        sha256=digest.hexdigest(),
        tokens_sha256=digest.hexdigest(),
        language="",
        bos=False,
        ids=np.tile(np.arange(positions), (len(files), 1)),
        token_class=token_class,
        document=np.arange(len(files)),
        token_start=nothing,
        char_start=nothing,
        char_end=nothing,
        token_text=np.tile(np.array(names, dtype=object), (len(files), 1)),
        document_names=stems,
        pixels=_lazily(processor, list(files)),
    )


def _lazily(processor: Any, files: list[Path]) -> Callable[[slice], Tensor]:
    return lambda windows: pixels_of(processor, files[windows])


def _places(positions: int, size: tuple[int, int], patch: int | None) -> list[str]:
    """A name for each position: the patches last, by row and column, behind whatever else the model reads."""
    rows, columns = (side // patch for side in size) if patch else (0, 0)
    extra = positions - rows * columns
    if not patch or extra < 0 or extra > math.isqrt(positions) + 1:
        return [f"place {index}" for index in range(positions)]
    patches = [f"patch {row},{column}" for row in range(rows) for column in range(columns)]
    return [*(f"extra {index}" for index in range(extra)), *patches]

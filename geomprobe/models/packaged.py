"""The checkpoints that come with the package: a small pair of twins, without and with a QK norm."""

from importlib.resources import files
from pathlib import Path
from typing import Final

PLAIN: Final = "plain"
QKNORM: Final = "qknorm"
PAIR: Final = (PLAIN, QKNORM)


def packaged_folder(name: str) -> Path:
    """The folder of a packaged checkpoint, as transformers reads it; its README.md is the card.

    Parameters
    ----------
    name : {"plain", "qknorm"}
    """
    return Path(str(files("geomprobe.data").joinpath("checkpoints", name)))

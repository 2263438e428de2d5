"""Names as parts of file and folder names."""

import re


def slug(name: str) -> str:
    """A name as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name.replace("/", "--")).strip("-.") or "unnamed"

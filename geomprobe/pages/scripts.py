"""The scripts of a page: its own, plotly's packed, and a policy that lets no other run and nothing load."""

import base64
import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from markupsafe import Markup

FILES: Final = ("elements.js", "rows.js", "charts.js", "explorer.js", "page.js")


@dataclass(frozen=True)
class Scripts:
    """What a template needs to let a page act.

    Attributes
    ----------
    policy : str
        The Content-Security-Policy: the two scripts by their hashes, pictures out of the page, and no connection.
    own : Markup
        The page's script.
    plotly : Markup
        plotly.js, gzip in base64; the page's script unpacks it.
    """

    policy: str
    own: Markup
    plotly: Markup


@cache
def scripts() -> Scripts:
    """The scripts, the same for every page."""
    from plotly.offline import get_plotlyjs  # takes long to import, and figures can be drawn meanwhile

    templates = resources.files("geomprobe.pages") / "templates"
    texts = [(templates / name).read_text(encoding="utf-8") for name in FILES]
    own = "\n".join(['(() => {\n"use strict";', *texts, "})();\n"])
    plotly = get_plotlyjs().encode("utf-8")
    packed = base64.b64encode(gzip.compress(plotly, 6, mtime=0)).decode("ascii")
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in (own.encode("utf-8"), plotly))
    policy = (
        f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; "
        "form-action 'none'"
    )
    return Scripts(policy, Markup(own), Markup(packed))  # no text of a run is in them


def _digest(script: bytes) -> str:
    return base64.b64encode(hashlib.sha256(script).digest()).decode("ascii")

"""Token text that a figure can show: every character that the font lacks is spelled out."""

from functools import cache

from matplotlib.font_manager import findfont, get_font

from geomprobe.tables import TOKEN_WIDTH, code_point, visible

FONT = "DejaVu Sans"


@cache
def _known() -> frozenset[int]:
    return frozenset(get_font(findfont(FONT)).get_charmap())


def drawable(token: str, width: int = TOKEN_WIDTH) -> str:
    r"""A token as `visible` shows it, with \u… for what the font has no glyph for."""
    return "".join(c if ord(c) in _known() else code_point(c) for c in visible(token, width))

"""The pictures of a page in docs/pictures/: `python -m docsite.screens report.html`, with chromium."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image, ImageChops

from docsite.pictures import COLOURS, FOLDER

WIDTH: Final = 1280
# The picture's name → what of the page is left out, and the height of the window.
_ALONE: Final = "body > header, body > nav, main > section:not"
PARTS: Final = {
    "page-top": ("", 720),
    "page-heads": (f"{_ALONE}(#heads)", 900),
    "page-figure": (f"{_ALONE}(#figures), #figures > :not(#key_lengths)", 900),
    "page-claims": (f"{_ALONE}(#tables), #tables > h3 ~ h3, #tables > h3 ~ h3 ~ *", 820),
}


def take(page: Path, hidden: str, target: Path, height: int) -> None:
    """Save what a window of that height shows of a page with some of it left out."""
    with tempfile.TemporaryDirectory() as folder:
        copy, shot = Path(folder) / "page.html", Path(folder) / "shot.png"
        rule = f"<style>{hidden} {{ display: none !important }}</style></head>" if hidden else "</head>"
        copy.write_text(page.read_text(encoding="utf-8").replace("</head>", rule, 1), encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--window-size={WIDTH},{height}", "--virtual-time-budget=15000", f"--screenshot={shot}"]
        subprocess.run([*command, copy.as_uri()], check=True, capture_output=True, timeout=300)
        image = _trimmed(Image.open(shot).convert("RGB"))
        image.quantize(COLOURS // 2, dither=Image.Dither.NONE).save(target, optimize=True)


def _trimmed(image: Image.Image, margin: int = 16) -> Image.Image:
    """Without the white around what is shown."""
    left, top, right, bottom = ImageChops.difference(image, Image.new("RGB", image.size, "white")).getbbox()
    return image.crop((max(0, left - margin), max(0, top - margin), min(right + margin, image.width), bottom))


def main(page: str) -> None:
    """Take every part."""
    for name, (hidden, height) in PARTS.items():
        take(Path(page), hidden, FOLDER / f"{name}.png", height)


if __name__ == "__main__":
    main(sys.argv[1])

"""Runs the notebooks and writes docs/notebooks/*.html: one file each, without any reference to the network.

    python -m reports.notebooks [--out FOLDER] [name …]

Each notebook runs from top to bottom in a kernel of its own, in a temporary folder. An exception, a warning or anything
else on stderr, and a picture without a text for who cannot see it, end it.
"""

import argparse
import hashlib
import html
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ROOT / "notebooks"
RENDERED: Final = ROOT / "docs" / "notebooks"
HASH: Final = "geomprobe-notebook-sha256"  # the name of the meta tag that says of which source a page is
TIMEOUT: Final = 900  # seconds a cell may take

STYLE: Final = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, "DejaVu Sans", sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto;
  max-width: 66rem; padding: 1rem 1.25rem 4rem; }
h1, h2, h3 { line-height: 1.25; margin: 1.6em 0 .5em; }
h1 { font-size: 1.8rem; margin-top: .6em; }
h2 { font-size: 1.3rem; }
a { color: #0057a8; }
a.anchor-link { display: none; }
.rendered_html > p, .rendered_html > ul { max-width: 52rem; }
pre { margin: 0; overflow-x: auto; font: .84rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
:not(pre) > code { font: .88em ui-monospace, "DejaVu Sans Mono", monospace; background: #f1f1f1; padding: .08em .3em;
  border-radius: 3px; }
.cell { margin: .7rem 0; }
.code_cell > .input { background: #f7f7f7; border: 1px solid #e2e2e2; border-radius: 4px; padding: .6rem .8rem; }
.prompt { display: none; }
.output_area { margin: .6rem 0; overflow-x: auto; }
.output_stdout, .output_text { padding-left: .8rem; border-left: 3px solid #d0d0d0; }
.output_stdout pre { white-space: pre-wrap; }
.output_png img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
table.dataframe, .rendered_html table { border: 0; margin: .5rem 0; }
th, td { padding: .2rem .6rem; text-align: right; border: 0; border-bottom: 1px solid #e2e2e2; white-space: nowrap; }
thead th { border-bottom: 1px solid #888; }
blockquote { margin: 1rem 0; padding: .1rem 1rem; border-left: 3px solid #d0d0d0; color: #444; }
"""
PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="{name}" content="{sha256}">
<link rel="icon" href="data:,">
<title>{title} – geomprobe</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


class BadNotebook(Exception):
    """A notebook does not run from top to bottom as a reader would want it."""


def sources() -> list[Path]:
    """The notebooks, in their order."""
    return sorted(SOURCES.glob("[0-9]*.py"))


def sha256_of_source(source: Path) -> str:
    """The hash of a notebook's text, whatever its line ends."""
    return hashlib.sha256(source.read_text(encoding="utf-8").encode("utf-8")).hexdigest()


def executed(source: Path) -> Any:
    """A notebook with its outputs, run in a temporary folder.

    Raises
    ------
    BadNotebook
        Where a cell fails, something stands on stderr, or a picture has no alternative text.
    """
    import jupytext
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = jupytext.read(source)
    with tempfile.TemporaryDirectory(prefix="geomprobe-notebook-") as folder:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=TIMEOUT,
            startup_timeout=TIMEOUT,
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute()
        except CellExecutionError as error:
            raise BadNotebook(f"{source.name}: {error}") from None
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise BadNotebook(f"{source.name}: a cell writes to stderr: {output['text'][:2000]}")
        shows = any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
        if shows and not cell.metadata.get("alt"):
            raise BadNotebook(f'{source.name}: a picture has no text; write # %% alt="…":\n{cell.source[:300]}')
        if cell.metadata.get("alt") and not shows:
            raise BadNotebook(f"{source.name}: a picture is told of and there is none:\n{cell.source[:300]}")
    return notebook


def page_of(notebook: Any, source: Path) -> str:
    """A run notebook as a page of its own."""
    from nbconvert import HTMLExporter
    from pygments.formatters import HtmlFormatter

    body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    title = next(line.lstrip("# ") for cell in notebook.cells for line in cell.source.splitlines() if line[:2] == "# ")
    style = (
        f"{STYLE}{HtmlFormatter(style='default').get_style_defs('.highlight')}\n.highlight {{ background: none; }}\n"
    )
    filled = {"name": HASH, "sha256": sha256_of_source(source), "title": html.escape(title), "style": style}
    return PAGE.format(**filled, body=body)


def render(source: Path, folder: Path) -> Path:
    """Run a notebook and write its page; where the page is."""
    page = page_of(executed(source), source)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{source.stem}.html"
    target.write_text(page, encoding="utf-8")
    return target


def main() -> int:
    """Run the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="as 1_first_look; all by default")
    parser.add_argument("--out", type=Path, default=RENDERED)
    given = parser.parse_args()
    known = {source.stem: source for source in sources()}
    for name in given.names or known:
        if name not in known:
            print(f"There is no notebook {name!r}; there are {', '.join(known)}.", file=sys.stderr)
            return 2
        begun = time.monotonic()
        try:
            target = render(known[name], given.out)
        except BadNotebook as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{target}: {time.monotonic() - begun:.0f} s, {target.stat().st_size / 1000:,.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

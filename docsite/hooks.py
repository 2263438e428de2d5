"""What mkdocs calls while it builds the site: pages from the code, and links that leave docs/."""

from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docsite.commands import command_reference
from docsite.figures import figure_catalogue
from docsite.links import Links, published
from docsite.notebooks import notebook_list
from docsite.probes import probe_details, probe_list, schema_map

ROOT: Final = Path(__file__).resolve().parent.parent
# A line by itself in a page, and what stands there in the site.
MARKS: Final = {
    "<!-- made: commands -->": command_reference,
    "<!-- made: figures -->": figure_catalogue,
    "<!-- made: probes -->": probe_list,
    "<!-- made: tables -->": schema_map,
    "<!-- made: notebooks -->": notebook_list,
}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the repository's own pages (contributing, changelog, reports), and every file that a page links to."""
    links = Links(ROOT)
    for repository, site in published(ROOT).items():
        files.append(_file(config, site, ROOT / repository))
    texts = {links.home(file.src_uri): file for file in files if file.src_uri.endswith(".md")}
    for home in texts:
        for asset in links.assets(home):
            if files.get_file_from_path(asset) is None:
                files.append(_file(config, asset, ROOT / asset))
    return files


def _file(config: MkDocsConfig, site: str, source: Path) -> File:
    return File.generated(config, site, abs_src_path=str(source), inclusion=InclusionLevel.NOT_IN_NAV)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The text of a page: made parts in the place of their marks, links that lead to where things are in the site."""
    uri = page.file.src_uri
    for mark, make in MARKS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    if uri.startswith("probes/") and uri != "probes/index.md":
        markdown = f"{markdown.rstrip()}\n\n{probe_details(Path(uri).stem)}"
    return Links(ROOT).rewrite(markdown, uri)

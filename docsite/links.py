"""Links of the repository's Markdown, as they have to be in the site.

The texts are read on a code host too, so they link to each other as files of the repository: docs/claims.md says
``../CONTRIBUTING.md``. In the site a page of docs/ has its path below docs/, and what is published from elsewhere has a
path of its own.
"""

import posixpath
import re
from pathlib import Path
from typing import Final

_LINK: Final = re.compile(r"(\]\()([^)\s]+)(\))")
_FENCE: Final = re.compile(r"^(```|~~~)")
_ITEM: Final = re.compile(r"^([-*+]|\d+\.) ")
_LARGEST: Final = 2_000_000  # bytes of a file that is published because a page links to it


def published(root: Path) -> dict[str, str]:
    """Pages from outside docs/: their path in the repository → their path in the site."""
    found = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
    reports = sorted(file.relative_to(root).as_posix() for file in root.glob("reports/**/*.md"))
    # A README would be the index of a section of the navigation.
    return found | {name: name.replace("README.md", "report.md") for name in reports}


class Links:
    """Where the repository's files are in the site.

    Parameters
    ----------
    root : Path
        Of the repository.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._published = published(root)
        self._homes = {site: name for name, site in self._published.items()}

    def home(self, uri: str) -> str:
        """The path in the repository of a page of the site."""
        return self._homes.get(uri, f"docs/{uri}")

    def assets(self, home: str) -> list[str]:
        """Files outside docs/ that a text links to and that are no pages themselves."""
        path = self._root / home
        found = []
        for target in _targets(path.read_text(encoding="utf-8")) if path.is_file() else ():
            name = self._resolve(home, target)
            file = self._root / name
            outside = not name.startswith(("docs/", "..")) and name not in self._published
            if outside and file.is_file() and file.stat().st_size <= _LARGEST:
                found.append(name)
        return found

    def rewrite(self, text: str, uri: str) -> str:
        """A page's text with links that hold in the site, and with a blank line before each list.

        Markdown as code hosts read it lets a list follow a paragraph at once; the site's does not.
        """
        home, fenced = self.home(uri), False
        lines: list[str] = []
        for line in text.split("\n"):
            if _FENCE.match(line.lstrip()):
                fenced = not fenced
            elif not fenced:
                line = _LINK.sub(lambda link: self._replace(link, home, uri), line)
                before = lines[-1] if lines else ""
                if _ITEM.match(line) and before.strip() and not _ITEM.match(before) and not before.startswith(" "):
                    lines.append("")
            lines.append(line)
        return "\n".join(lines)

    def _replace(self, link: re.Match[str], home: str, uri: str) -> str:
        target = link[2]
        if _elsewhere(target):
            return link[0]
        place, hash_, anchor = target.partition("#")
        site = self._site(self._resolve(home, place))
        if site is None:
            return link[0]
        return f"{link[1]}{posixpath.relpath(site, posixpath.dirname(uri) or '.')}{hash_}{anchor}{link[3]}"

    def _site(self, name: str) -> str | None:
        """The path in the site of a path in the repository; None where it is not there."""
        if name in self._published:
            return self._published[name]
        if f"{name}/README.md" in self._published:
            return self._published[f"{name}/README.md"]
        if (self._root / name).is_dir() and (
            pages := [page for page in self._published if page.startswith(f"{name}/")]
        ):
            return pages[0]
        return name.removeprefix("docs/") if (self._root / name).is_file() or name.startswith("docs/") else None

    @staticmethod
    def _resolve(home: str, target: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(home), target.partition("#")[0]))


def _targets(text: str) -> list[str]:
    return [link[2] for link in _LINK.finditer(text) if not _elsewhere(link[2])]


def _elsewhere(target: str) -> bool:
    return target.startswith("#") or ":" in target.split("/")[0]

"""The pages of a finished site: links lead to files and headings, and nothing comes from elsewhere.

MkDocs itself checks the links of Markdown; here those of the generated references count, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# By element the attribute that a browser loads by itself.
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


class Page(HTMLParser):
    """The links, names and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.names.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if LOADED.get(tag) in found:
            self.loads.append(found[LOADED[tag]])


def faults(site: Path) -> list[str]:
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    return [f"{path.relative_to(site)}: {fault}"
            for path, page in pages.items()
            for fault in _of(path, page, pages)]  # fmt: skip


def _of(path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    for target in page.loads:
        if urlsplit(target).netloc:
            yield f"loads {target}"
    if path.name == "404.html":  # its links begin at the root of a server
        return
    for target in {*page.links, *page.loads}:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not file.exists():
            yield f"{target} leads nowhere"
        elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].names:
            yield f"{target}: there is no such heading"

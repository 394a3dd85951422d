"""MkDocs' hooks: pages from outside of docs/, and Markdown as MkDocs reads it."""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs_site import pages
from docs_site.markdown import for_site

GENERATED = {"decisions/index.md": pages.decisions, "python.md": pages.python_api}
# The weights in the search by the beginnings of places: guides first, records of the past last.
BOOSTS = {
    **dict.fromkeys(("start/", "guides/", "errors.", "faq."), 4.0),
    **dict.fromkeys(
        ("decisions/", "changes.", "measured.", "lab.", "long_runs.", "papers.", "format."), 0.2
    ),
}
SEARCH = 'data-md-component="search" role="dialog"'


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for path, place in pages.OUTSIDE.items():
        text = (pages.ROOT / path).read_text()
        files.append(File.generated(config, place, content=text))
    for place, made in GENERATED.items():
        files.append(File.generated(config, place, content=made()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    if place in ("README.md", "faq.md"):
        page.meta["hide"] = ["navigation"]  # there is nothing beside it
    for beginning, boost in BOOSTS.items():
        if place.startswith(beginning):
            page.meta["search"] = {"boost": boost}
    return for_site(markdown, pages.source_of(place), place, pages.place_of)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """For screen readers: a name of the theme's dialog, and no empty heads of columns."""
    output = re.sub(r"<th((?: [^>]*)?)></th>", r"<td\1></td>", output)
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')

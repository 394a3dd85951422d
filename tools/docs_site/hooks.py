"""MkDocs' hooks: pages from outside of docs/, and Markdown as MkDocs reads it."""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs_site import pages
from docs_site.markdown import for_site

GENERATED = {"decisions/index.md": pages.decisions, "python.md": pages.python_api}
RECORDS = ("decisions/", "changes.", "measured.", "lab.", "long_runs.", "papers.")  # of the past
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
    if place.startswith(RECORDS):
        page.meta["search"] = {"boost": 0.2}  # guides come first
    return for_site(markdown, pages.source_of(place), place, pages.place_of)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """For screen readers: a name of the theme's dialog, and no empty heads of columns."""
    output = re.sub(r"<th((?: [^>]*)?)></th>", r"<td\1></td>", output)
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')

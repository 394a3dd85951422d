"""The site of `make docs`: Markdown as MkDocs reads it, and the check of the finished pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_site import built, pages
from docs_site.docstring_text import with_arguments, with_fields
from docs_site.markdown import for_site

PLACES = {"docs/a.md": "a.md", "docs/sub/b.md": "sub/b.md", "README.md": "readme.md"}


def changed(text: str, source: str = "docs/sub/b.md") -> str:
    return for_site(text, source, PLACES[source], PLACES.get)


def test_links_lead_to_pages() -> None:
    assert changed("[x](../a.md#top) and ![y](../a.md)") == "[x](../a.md#top) and ![y](../a.md)"
    assert changed("[x](docs/sub/b.md)", "README.md") == "[x](sub/b.md)"
    assert changed("[x](../../README.md)") == "[x](../readme.md)"
    assert changed("[x]: ../../README.md#one") == "[x]: ../readme.md#one"


def test_a_link_to_another_file_is_its_path_as_text() -> None:
    assert changed("[src/x.h](../../src/x.h)") == "`src/x.h`"
    assert changed("[the\nprotocol](../../src/x.h)") == "the protocol (`src/x.h`)"
    assert changed("[`x.h`](../../src/x.h)") == "`src/x.h`"


@pytest.mark.parametrize("text", ["[x](https://example.org)", "[x](#here)", "`[x](../../src/x.h)`",
                                  "```\n[x](../../src/x.h)\n```"])  # fmt: skip
def test_other_text_stays(text: str) -> None:
    assert changed(text) == text


def test_lists_are_spaced_as_python_markdown_wants_them() -> None:
    assert changed("text\n- one\n  more\n  - two") == "text\n\n- one\n    more\n    - two"
    assert changed("1. one\n   more") == "1. one\n    more"
    assert changed("- one\n\n  ```sh\n  a\n    b\n  ```\n\nafter\n    code") == (
        "- one\n\n    ```sh\n    a\n      b\n    ```\n\nafter\n    code"
    )
    assert changed("text\n| a |\n|---|") == "text\n\n| a |\n|---|"


def test_places() -> None:
    assert pages.place_of("docs/using.md") == "using.md"
    assert pages.place_of("docs/frameworks") == "frameworks/README.md"
    assert pages.place_of("docs/decisions") == "decisions/index.md"
    assert pages.place_of("CONTRIBUTING.md") == "contributing.md"
    assert pages.place_of("src/LAYERS") is None
    assert pages.place_of("docs/nowhere.md") == "nowhere.md"  # MkDocs says that it is missing


def test_each_public_name_is_in_the_reference() -> None:
    assert {"Checkpointer", "lightning.DeepFreezeCallback"} <= pages.public_names()
    assert "::: deepfreeze.Checkpointer\n" in pages.python_api()


def test_lines_about_parameters_become_a_section() -> None:
    text = "Opens it.\nevery: When to save,\n    and more.\na, b: Two.\nother: no parameter\n\nEnd."
    assert with_arguments(text, {"every", "a", "b"}) == (
        "Opens it.\nother: no parameter\n\nEnd.\n\nArgs:\n"
        "    every: When to save, and more.\n    a: Two.\n    b: Two."
    )
    assert with_arguments("Plain.", {"every"}) == "Plain."


def test_fields_are_told_with_their_comments() -> None:
    lines = ["@dataclass", "class A:", "    step: int", "    bytes: int  # of data", "    # Above,",
             "    # in two lines.", "    torn: tuple[str, ...] = ()", "    def f(self) -> None:",
             "        x: int = 1"]  # fmt: skip
    assert with_fields("A.", lines) == (
        "A.\n\nAttributes:\n    step: Step\n    bytes: Of data\n    torn: Above, in two lines."
    )


def test_finished_pages_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#there"></a><a href="#top"></a><a href="c.html"></a>'
        '<a href="b.html#gone"></a><a href="https://example.org"></a>'
        '<script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<h2 id="there"></h2><img src="none.png">')
    assert sorted(built.faults(tmp_path)) == [
        "a.html: b.html#gone: there is no such heading",
        "a.html: c.html leads nowhere",
        "a.html: loads https://example.org/x.js",
        "b.html: none.png leads nowhere",
    ]

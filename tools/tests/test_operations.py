"""docs/operations.md names every environment variable of ours that the sources name."""

import re

from stamp import ROOT, files_under

PAGE = ROOT / "docs" / "operations.md"
FOLDERS = ("src", "include", "python", "tests", "lab", "examples", "tools", "Makefile")
NAME = re.compile(r"\b(?:FSSPEC_)?DEEPFREEZE_[A-Z_]*[A-Z]\b")
MACROS = re.compile(r"DEEPFREEZE_VERSION_\w+")  # of include/deepfreeze/version.h


def named_in_sources() -> set[str]:
    found: set[str] = set()
    for path in files_under(*FOLDERS):
        if path.suffix in (".cc", ".h", ".py", ".txt", ""):
            found.update(NAME.findall(path.read_text(errors="replace")))
    return {name for name in found if not MACROS.fullmatch(name)}


def test_the_page_has_the_variables_of_the_sources_and_no_others() -> None:
    named = named_in_sources()
    assert "DEEPFREEZE_PARANOID" in named
    assert set(NAME.findall(PAGE.read_text())) == named


def test_the_page_is_found_from_the_readme() -> None:
    assert "(docs/operations.md)" in (ROOT / "README.md").read_text()

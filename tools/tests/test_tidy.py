"""Each rule of tools/tidy.py fires on a bad sample and stays quiet on a good one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tidy
from stamp import ROOT
from tidy_rules import headers
from tidy_rules.ratchets import functions
from tidy_rules.source import Finding, Source, Tree, blank_literals

GOOD = {
    "src/LAYERS": "# order\nbase:\nstorage: base\n",
    "src/base/README.md": "# base\n",
    "src/base/a.h": "#pragma once\nint one();\n",
    "src/storage/README.md": "# storage\n",
    "src/storage/CMakeLists.txt": "df_module(storage\n  SOURCES a.cc\n  DEPS base)\n",
    "src/storage/a.cc": '#include "base/a.h"\nint two() { return ::open(path, 0); }\n',
    "python/LAYERS": "base:\nstate: base\nframeworks/torch: base state\ntorch = frameworks/torch\n",
    "python/deepfreeze/base/names.py": "import re\n",
    "python/deepfreeze/state/tree.py": "from deepfreeze import _core\n"
    "from deepfreeze.base import names\n",
    "python/deepfreeze/frameworks/torch/adapter.py": "import torch\n"
    "from deepfreeze.state.tree import Node\n",
}


def check(folder: Path, files: dict[str, str], compile_headers: bool = False) -> list[Finding]:
    for name, text in (GOOD | files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tidy.check(Tree(folder), compile_headers)


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


def test_a_good_tree_has_no_findings(tmp_path: Path) -> None:
    assert check(tmp_path, {}, compile_headers=True) == []


def test_this_repository_is_tidy() -> None:
    assert [str(finding) for finding in tidy.check(Tree(ROOT), False)] == []


def test_the_program_names_the_place_and_exits_1(tmp_path: Path) -> None:
    check(tmp_path, {"src/base/b.cc": "int x;\nvolatile int y;\n"})
    command = [sys.executable, str(ROOT / "tools" / "tidy.py"), "--no-headers", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("src/base/b.cc:2: volatile: write std::atomic")


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("src/base/b.cc", '#include "storage/a.h"\n', "base may not include storage/"),
        ("src/odd/b.cc", '#include "base/a.h"\n', "folder odd has no line"),
        ("include/deepfreeze/b.h", '#include "base/a.h"\n', "public header"),
        ("python/src/b.cc", '#include "base/a.h"\n', "python/src includes base/"),
        ("src/LAYERS", "storage: base\nbase:\n", "order them"),
        ("src/storage/CMakeLists.txt", "df_module(storage SOURCES a.cc)\n", "must be: base"),
        ("src/base/CMakeLists.txt", "df_module(base SOURCES a.cc DEPS storage)\n", "must be:"),
    ],
)
def test_layers(tmp_path: Path, path: str, text: str, words: str) -> None:
    found = [f for f in check(tmp_path, {path: text}) if f.rule == "layers"]
    assert found
    assert words in found[0].text
    assert found[0].path == path


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("base/a.py", "from deepfreeze.state.tree import Node\n", "base may not import state"),
        ("base/a.py", "def f():\n    from deepfreeze.state import tree\n", "base may not import"),
        (
            "base/a.py",
            "if TYPE_CHECKING:\n    import deepfreeze.state.tree\n",
            "base may not import state",
        ),
        ("base/a.py", "from ..state.tree import Node\n", "base may not import state"),
        ("state/a.py", "import torch\n", "only frameworks/torch may import torch"),
        ("state/a.py", "def f():\n    from torch.nn import Module\n", "only frameworks/torch may"),
        ("state/a.py", "import numpy\n", "has no line for numpy"),
        ("odd.py", "", "no room of python/LAYERS has this file"),
    ],
)
def test_layers_of_the_package(tmp_path: Path, path: str, text: str, words: str) -> None:
    found = check(tmp_path, {f"python/deepfreeze/{path}": text})
    assert [(each.rule, each.path) for each in found] == [("layers", f"python/deepfreeze/{path}")]
    assert words in found[0].text


@pytest.mark.parametrize("way", ["{}", "def f():\n    {}", "if TYPE_CHECKING:\n    {}"])
def test_a_circle_of_files_is_found_within_a_room_too(tmp_path: Path, way: str) -> None:
    back = way.format("from deepfreeze.state.a import A")
    forth = {"python/deepfreeze/state/a.py": "from deepfreeze.state.b import B\n"}
    found = check(tmp_path, forth | {"python/deepfreeze/state/b.py": f"{back}\n"})
    assert [each.text for each in found] == ["a circle of files: state/a > state/b > state/a"]


def test_rooms_are_listed_lower_ones_first(tmp_path: Path) -> None:
    found = check(tmp_path, {"python/LAYERS": "state: base\nbase:\nframeworks/torch: state\n"
                             "torch = frameworks/torch\n"})  # fmt: skip
    assert [(each.path, each.text) for each in found] == [
        ("python/LAYERS", "state is above base: order them")
    ]


def test_a_test_may_look_further_down_but_not_up(tmp_path: Path) -> None:
    files = {
        "src/LAYERS": "base:\ncodec: base\nstorage: base\n",
        "src/codec/README.md": "# codec\n",
        "src/storage/a_test.cc": '#include "codec/a.h"\n',
        "src/codec/a_test.cc": '#include "storage/a.h"\n',
    }
    found = check(tmp_path, files)
    assert [(f.path, f.text) for f in found] == [
        ("src/codec/a_test.cc", "codec may not include storage/ (see src/LAYERS)")
    ]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("detach", "worker.detach();"),
        ("rename", "::rename(a, b);"),
        ("rename", "std::filesystem::rename(a, b);"),
        ("rename", "renameat2(1, a, 2, b, 0);"),
        ("file call", "const int fd = ::open(path, O_RDONLY);"),
        ("file call", "if (pwrite(fd, a, b, 0) < 0) {}"),
        ("file call", "fsync(fd);"),
        ("file call", "::fdatasync(fd);"),
        ("file call", "unlink(path);"),
        ("file stream", "std::ofstream out(path);"),
        ("assert", "assert(x > 0);"),
        ("endl", "std::cout << std::endl;"),
        ("volatile", "volatile int flag = 0;"),
        ("using namespace", "using namespace std;"),
        ("catch all", "} catch (...) {"),
        ("new", "auto* x = new Thing(1);"),
        ("delete", "delete x;"),
        ("delete", "delete[] x;"),
        ("rand", "int x = rand();"),
        ("leftover", "// TO" "DO: later"),
        ("leftover", "// FIX" "ME"),
        ("machine path", 'auto p = "/ho' 'me/someone/data";'),
        ("line", "int x = 0;  // " + "a" * 90),
    ],
)  # fmt: skip
def test_a_banned_thing_is_found_with_its_replacement(tmp_path: Path, rule: str, code: str) -> None:
    found = check(tmp_path, {"src/base/b.cc": f"void f() {{\n  {code}\n}}\n"})
    assert rules(found) == [rule]
    assert (found[0].path, found[0].line) == ("src/base/b.cc", 2)


@pytest.mark.parametrize(
    "code",
    [
        "Thing(const Thing&) = delete;",
        "void* operator new(std::size_t) = delete;",
        "auto run = Checkpointer::open(path, {});",
        "file->open(); vfs.rename_no_replace(a, b); tensor.unlink();",
        "static_assert(sizeof(int) == 4);",
        "// a new assert(), rand() and volatile in a comment",
        'log_warning("delete this; new that; fsync(fd)");',
        "const int brand(5); using namespace std::chrono_literals;",
        "const int big = 1'000'000; const char c = '\"'; /* volatile */",
    ],
)
def test_what_only_looks_banned_passes(tmp_path: Path, code: str) -> None:
    assert check(tmp_path, {"src/base/b.cc": f"{code}\n"}) == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("src/storage/b.cc", "::fsync(fd); ::rename(a, b); ::open(c, 0);"),
        ("src/base/b_test.cc", "std::ofstream out(path); ::unlink(path);"),
        ("python/src/b.cc", "} catch (...) { delete p; }"),
    ],
)
def test_where_a_ban_does_not_hold(tmp_path: Path, path: str, code: str) -> None:
    assert check(tmp_path, {path: f"{code}\n"}) == []


def test_a_known_exception_holds_for_its_number_only(tmp_path: Path) -> None:
    ratchet = {"tools/ratchet.txt": "banned src/base/b.cc:volatile 1  # a register\n"}
    one = {"src/base/b.cc": "volatile int x;\n"}
    two = {"src/base/b.cc": "volatile int x;\nvolatile int y;\n"}
    assert check(tmp_path, ratchet | one) == []
    assert rules(check(tmp_path, ratchet | two)) == ["volatile", "volatile"]


def cpp_function(lines: int) -> str:
    body = "  step();\n" * (lines - 3)
    return f"namespace deepfreeze {{\n\nStatus Thing::run(int a,\n    int b) {{\n{body}}}\n\n}}\n"


def test_a_function_of_71_lines_is_too_long(tmp_path: Path) -> None:
    assert check(tmp_path, {"src/base/b.cc": cpp_function(70)}) == []
    found = check(tmp_path, {"src/base/b.cc": cpp_function(71)})
    assert [str(f) for f in found] == [
        "src/base/b.cc:3: function: Thing::run has 71 lines, 70 at most"
    ]


def test_a_method_inside_a_class_and_a_python_function_are_measured(tmp_path: Path) -> None:
    method = "struct A {\n  int f() {\n" + "    g();\n" * 69 + "  }\n};\n"
    python = "def f() -> None:\n" + "    g()\n" * 70
    found = check(tmp_path, {"src/base/b.h": method, "python/deepfreeze/b.py": python})
    assert [(f.path, f.line) for f in found if f.rule == "function"] == [
        ("python/deepfreeze/b.py", 1),
        ("src/base/b.h", 2),
    ]


def test_the_ratchet_only_shrinks(tmp_path: Path) -> None:
    def found(recorded: int) -> list[str]:
        line = f"function src/base/b.cc:Thing::run {recorded}\n"
        files = {"src/base/b.cc": cpp_function(80), "tools/ratchet.txt": line}
        return [finding.text for finding in check(tmp_path, files)]

    assert found(80) == []
    assert found(79) == ["Thing::run has 80 lines, 79 at most"]
    assert found(90) == ["src/base/b.cc:Thing::run is down to 80: write that"]


def test_an_exception_that_nothing_needs_must_go(tmp_path: Path) -> None:
    ratchet = "function src/base/gone.cc:f 90\nfile src/base/a.h 600\n"
    found = check(tmp_path, {"tools/ratchet.txt": ratchet})
    assert sorted(f.text for f in found) == [
        "src/base/a.h needs no exception: remove it",
        "src/base/gone.cc:f needs no exception: remove it",
    ]


def test_files_are_limited_and_tests_less_so(tmp_path: Path) -> None:
    text = "int x;\n" * 501
    assert rules(check(tmp_path, {"src/base/b.cc": text})) == ["file"]
    (tmp_path / "src/base/b.cc").unlink()
    assert check(tmp_path, {"src/base/b_test.cc": text}) == []
    assert rules(check(tmp_path, {"src/base/b_test.cc": "int x;\n" * 801})) == ["file"]


def test_a_folder_needs_a_short_readme(tmp_path: Path) -> None:
    assert rules(check(tmp_path, {"src/codec/b.cc": "int x;\n"})) == ["readme"]
    assert check(tmp_path, {"src/codec/README.md": "line\n" * 25}) == []
    assert rules(check(tmp_path, {"src/codec/README.md": "line\n" * 26})) == ["readme"]


def test_a_fail_point_that_no_test_names_is_found(tmp_path: Path) -> None:
    point = {"src/base/b.cc": 'void f() { DF_FAIL_POINT("commit.sealed"); }\n'}
    assert [f.text for f in check(tmp_path, point)] == ['no test stops at "commit.sealed"']
    named = {"tests/e2e/test_kill.py": 'POINTS = ["commit.sealed"]\n'}
    assert check(tmp_path, point | named) == []


def test_a_header_that_needs_another_first_is_found(tmp_path: Path) -> None:
    bad = {"src/base/b.h": "#pragma once\nstd::string name();\n"}
    found = check(tmp_path, bad, compile_headers=True)
    assert rules(found) == ["headers"]
    assert "does not compile alone" in found[0].text
    # Remembered as good only once it is: the finding comes again.
    assert rules(check(tmp_path, bad, compile_headers=True)) == ["headers"]


@pytest.mark.parametrize(
    ("before", "needs"),
    [
        ("#include <string>\n", "std::string name();\n"),
        ("struct Shape {};\n", "Shape shape();\n"),
        ("enum class Kind { kLast };\n", "Kind kind();\n"),
        ("int last(int);\n", "inline int next() { return last(1); }\n"),
    ],
)
def test_a_header_before_it_in_its_chain_does_not_help_it(
    before: str, needs: str, tmp_path: Path
) -> None:
    both = {"src/base/a.h": f"#pragma once\n{before}", "src/base/b.h": f"#pragma once\n{needs}"}
    found = check(tmp_path, both, compile_headers=True)
    assert [f.path for f in found if f.rule == "headers"] == ["src/base/b.h"]


def test_headers_that_cannot_help_each_other_are_compiled_together(tmp_path: Path) -> None:
    for name, text in {
        "a.h": "struct Shape {};",
        "b.h": "int one();",
        "c.h": "struct Size {};",
    }.items():
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / name).write_text(f"#pragma once\n{text}\n")
    closures = {each.path: headers._closure(Tree(tmp_path), each) for each in Tree(tmp_path).cpp}
    assert headers._chains(closures) == [["src/a.h", "src/b.h", "src/c.h"]]


def test_a_change_below_a_header_compiles_it_again(tmp_path: Path) -> None:
    above = {"src/storage/b.h": '#pragma once\n#include "base/a.h"\ninline int t = one();\n'}
    assert check(tmp_path, above, compile_headers=True) == []
    without = {"src/base/a.h": "#pragma once\n"}
    found = check(tmp_path, above | without, compile_headers=True)
    assert [f.path for f in found] == ["src/storage/b.h"]


def test_a_header_of_mpi_is_left_to_those_who_have_mpi(tmp_path: Path) -> None:
    above = {"include/deepfreeze/b.h": "#pragma once\n#include <mpi.h>\nint one(Unknown);\n"}
    assert check(tmp_path, above, compile_headers=True) == []


def test_literals_and_comments_are_blanked_in_place() -> None:
    text = 'a("x // y"); // new\nb(R"(delete\nz)"); c = \'"\'; /* 1\n2 */ d'
    blanked = blank_literals(text)
    assert [len(line) for line in blanked.splitlines()] == [len(line) for line in text.splitlines()]
    assert "new" not in blanked
    assert "delete" not in blanked
    assert blanked.endswith(" d")


def test_functions_of_this_repository_are_seen() -> None:
    """The measure would also be quiet if it found nothing."""
    source = Source("a.cc", (ROOT / "src/base/fail_point.cc").read_text())
    assert len(list(functions(source))) >= 5


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("b.md", "b.md leads nowhere"),
        ("src", "src leads nowhere"),
        ("b/c.md#a-third", "b/c.md has no heading for #a-third"),
        ("#other", "a.md has no heading for #other"),
    ],
)
def test_links_that_lead_nowhere(tmp_path: Path, target: str, words: str) -> None:
    good = "[b](b/c.md#a-second-heading), ![c](b), [x](https://x.y), `[code](z)`, [a](#title)\n"
    other = "# A\n\n## A *second* `heading`\n"
    files = {"docs/a.md": f"# Title\n\n{good}", "docs/b/c.md": other}
    assert check(tmp_path, files) == []
    for text in (f"[it]({target})", f"[it]: {target}"):
        found = check(tmp_path, files | {"docs/a.md": f"# Title\n\n{good}\n{text}\n"})
        assert [(each.line, each.rule, each.text) for each in found] == [(5, "links", words)]


@pytest.mark.parametrize("path", ["src/base/gone.cc", "src/gone/cmd_NAME.cc", "src/gone"])
def test_paths_that_are_gone(tmp_path: Path, path: str) -> None:
    text = "`src/base/a.h:12`, `src/base/cmd_NAME.cc`, `a/b`, `python x.py src/base/`, `b/c.md`\n"
    files = {"docs/a.md": text, "docs/b/c.md": "# C\n"}
    assert check(tmp_path, files) == []
    found = check(tmp_path, files | {"docs/a.md": f"{text}\n`{path} --all`\n"})
    assert [str(each) for each in found] == [f"docs/a.md:3: links: {path} is no path of the tree"]
    assert check(tmp_path, files | {"docs/decisions/0001.md": f"`{path}`\n"}) == []


PLAIN = ["The writer syncs each file before it renames it, so a reader sees all of it or none."] * 5


def prose_findings(folder: Path, files: dict[str, str]) -> list[Finding]:
    return [each for each in check(folder, files) if each.rule == "prose"]


@pytest.mark.parametrize(
    ("area", "path", "text"),
    [
        ("src", "src/base/b.cc", lambda lines: "".join(f"// {line}\n" for line in lines)),
        (
            "python",
            "python/deepfreeze/b.py",
            lambda lines: "".join(f"# {line}\n" for line in lines),
        ),
        ("python", "python/deepfreeze/c.py", lambda lines: '"""' + "\n".join(lines) + '"""\n'),
        ("documents", "docs/b.md", "\n".join),
    ],
)
@pytest.mark.parametrize(
    ("construction", "bad"),
    [
        ("noun", "It copies what is attached."),
        ("noun", "Nobody helps whoever waits."),
        ("where", "It fails where the disk is full."),
        ("start", "It ends. Of these one stays."),
    ],
)
def test_a_sentence_that_is_not_plain_is_counted(
    tmp_path: Path,
    area: str,
    path: str,
    text: Callable[[list[str]], str],
    construction: str,
    bad: str,
) -> None:
    assert prose_findings(tmp_path, {path: text(PLAIN)}) == []
    found = prose_findings(tmp_path, {path: text([*PLAIN, bad])})
    assert [each.path for each in found] == [path]
    assert f"of '{construction}'" in found[0].text
    known = {"tools/ratchet.txt": f"prose {area}:{construction} 999  # a reason\n"}
    assert prose_findings(tmp_path, known) == []
    (unneeded,) = prose_findings(tmp_path, {path: text(PLAIN)})
    assert "needs no exception" in unneeded.text


def test_markdown_is_not_wide(tmp_path: Path) -> None:
    table = "| " + "a" * 130 + " |\n"
    assert check(tmp_path, {"docs/b.md": table, "changes/c.md": "b " * 70 + "\n"}) == []
    found = check(tmp_path, {"docs/b.md": table + "a " * 70 + "\n"})
    assert [(f.path, f.line, f.rule) for f in found] == [("docs/b.md", 2, "prose")]

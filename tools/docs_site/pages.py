"""The pages of the site that are no files of docs/."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PYTHON = ROOT / "python" / "deepfreeze"
PYTHON_PAGE = Path(__file__).with_name("python_api.md")
DECISIONS = "docs/decisions"

# Documents of other folders, with their places on the site.
OUTSIDE = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "lab/README.md": "lab.md",
    "lab/STUDY.md": "study.md",
    "lab/results/summary.md": "measured.md",
    "tests/torture.md": "long_runs.md",
}


def place_of(path: str) -> str | None:
    """The place on the site of a file or folder of the repository; None if it has none.

    A file that does not exist has one, too: MkDocs will say that it is missing.
    """
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path == DECISIONS:
        return "decisions/index.md"
    if (DOCS.parent / path / "README.md").is_file():
        path = f"{path}/README.md" if path.startswith("docs") else path
    is_elsewhere = not path.startswith("docs/") and (ROOT / path).exists()
    return None if is_elsewhere else path.removeprefix("docs/")


def source_of(place: str) -> str:
    """The path in the repository from which a page's links begin."""
    back = {each: path for path, each in OUTSIDE.items()}
    back["python.md"] = str(PYTHON_PAGE.relative_to(ROOT))
    return back.get(place, f"docs/{place}")


def decisions() -> str:
    """The list of all records, the newest first."""
    lines = [
        "# Decisions",
        "",
        "Why something is as it is: a record for each decision that needed a reason.",
        "",
    ]
    for path in sorted((ROOT / DECISIONS).glob("[0-9]*.md"), reverse=True):
        title = path.read_text().partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def python_api() -> str:
    """The page with all public names of the package; ValueError if one is missing there."""
    text = PYTHON_PAGE.read_text()
    told = set(re.findall(r"^::: deepfreeze\.([\w.]+)", text, re.MULTILINE))
    missing = sorted(public_names() - told)
    if missing:
        raise ValueError(f"{PYTHON_PAGE.relative_to(ROOT)} lacks {', '.join(missing)}")
    return text


def public_names() -> set[str]:
    """Those of the package, and those of its public modules as `lightning.Name`."""
    module = ast.parse((PYTHON / "__init__.py").read_text())
    assigned = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if node.targets[0].id in ("__all__", "_MODULES")
    }
    names = set(assigned["__all__"])
    for each in assigned["_MODULES"]:
        file = PYTHON / f"{each}.py"
        file = file if file.is_file() else PYTHON / each / "__init__.py"
        names |= {f"{each}.{name}" for name in _all_of(file)}
    return names


def _all_of(file: Path) -> list[str]:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []

"""The files of the page, as they lie beside this module."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = Path(__file__).parent / "page"
INDEX, STYLE = "index.html", "style.css"
# Each imports only from those before it, so that they can stand in one script in this order.
MODULES = (
    "dom.js", "format.js", "colour.js", "source.js", "model.js", "table.js", "chart.js",
    "ridgeline.js", "rows.js", "heatmap.js", "runs.js", "timeline.js", "tensors.js", "tensor.js",
    "compare.js", "flags.js", "analysis.js", "polling.js", "main.js",
)  # fmt: skip
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./[a-z]+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def text_of(name: str) -> str:
    """The text of one of the files."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def served() -> dict[str, tuple[str, bytes]]:
    """Address, type and content of each file."""
    files = {
        f"/{name}": (f"{_TYPES[Path(name).suffix]}; charset=utf-8", text_of(name).encode())
        for name in (STYLE, *MODULES)
    }
    return files | {"/": (f"{_TYPES['.html']}; charset=utf-8", text_of(INDEX).encode())}


def one_script() -> str:
    """All modules as one: their names are unique, so imports and exports can be left out."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", text_of(name))) for name in MODULES)

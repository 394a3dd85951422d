"""Docstrings as the package writes them, for the reference: a griffe extension.

A line `name: text` about a parameter becomes an entry of its table. The fields of a dataclass
become one, too, with the comments that stand behind or above them.
"""

from __future__ import annotations

from typing import Any

from griffe import Class, Docstring, Extension, Function

from docs_site.docstring_text import with_arguments, with_fields


class Docstrings(Extension):  # type: ignore[misc]
    """Changes objects after griffe has read them."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        if func.docstring is not None:
            names = {each.name for each in func.parameters}
            func.docstring.value = with_arguments(func.docstring.value, names)

    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        if cls.docstring is not None and any("dataclass" in str(each.value)
                                             for each in cls.decorators):  # fmt: skip
            value = with_fields(cls.docstring.value, cls.lines)
            cls.docstring = Docstring(value, parent=cls)

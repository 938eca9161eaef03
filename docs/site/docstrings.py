"""How the API reference reads the docstrings: `Example` is a section of code, and Sphinx' roles are names."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|meth|func|attr|mod|data):`~?([^`]+)`")


class PlainDocstrings(griffe.Extension):
    """Rewrite each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was loaded."""
        if obj.docstring is not None:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = _ROLE.sub(lambda found: f"`{found[1].rpartition('.')[2]}`", text)

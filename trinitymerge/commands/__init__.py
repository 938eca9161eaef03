"""The command ``trinitymerge``: tables from a shell. Its modules need the extra ``cli``."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    try:
        run = import_module("trinitymerge.commands.app").run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(
            f"error: the command needs the package '{error.name}'. Run: pip install 'trinitymerge[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))

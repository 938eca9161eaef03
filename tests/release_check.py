"""Builds the distributions, installs each in an empty environment, and runs the quick start: `make release-check`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEEDED = ("trinitymerge/py.typed", "LICENSE")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command and return its output; end the check with it on failure."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # or pip finds this checkout
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False, env=clean)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def quick_start() -> str:
    """Return the code of the README's quick start."""
    page = (ROOT / "README.md").read_text("utf-8").split("## Quick start")[1]
    return re.split(r"^```$", page.split("```python\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def contents(distribution: Path) -> list[str]:
    """Return the names of the files in a wheel or a source archive."""
    if distribution.suffix == ".whl":
        return zipfile.ZipFile(distribution).namelist()
    with tarfile.open(distribution) as archive:
        return archive.getnames()


def check(distribution: Path, directory: Path) -> None:
    """Install a distribution in an empty environment and run the quick start and the command there."""
    names = contents(distribution)
    missing = [needed for needed in NEEDED if not any(name.endswith(needed) for name in names)]
    if missing:
        sys.exit(f"{distribution.name} lacks {', '.join(missing)}")
    if any("/tests/" in name for name in names) and distribution.suffix == ".whl":
        sys.exit(f"{distribution.name} holds tests")
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{distribution}[cli]")
    (directory / "quick_start.py").write_text(quick_start(), "utf-8")
    shown = run(python, "quick_start.py", cwd=directory)
    if "|      o1| 12.50|" not in shown:
        sys.exit(f"The quick start of {distribution.name} shows:\n{shown}")
    if "UPSERT" not in (
        history := run(directory / "venv" / "bin" / "trinitymerge", "history", "data/orders", cwd=directory)
    ) and ("MERGE" not in history):
        sys.exit(f"trinitymerge history shows:\n{history}")
    print(f"{distribution.name}: {len(names)} files, quick start and command run", flush=True)


def main() -> int:
    """Build and check both distributions; return the exit code."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        run(sys.executable, "-m", "build", "--outdir", directory / "dist", ROOT)
        found = sorted((directory / "dist").iterdir())
        run(sys.executable, "-m", "twine", "check", "--strict", *found)
        for n, distribution in enumerate(found):
            (directory / str(n)).mkdir()
            check(distribution, directory / str(n))
    return 0


if __name__ == "__main__":
    sys.exit(main())

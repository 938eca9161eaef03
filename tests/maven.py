"""Jars that tests need from Maven Central; a test is skipped if they cannot be had."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def jars(directory: Path, pom: str, profile: str, property: str = "", *versions: str) -> list[Path]:
    """Return the jars of a profile of a POM.

    Args:
        directory: where they are kept.
        pom: the POM's folder in ``tests/data``.
        profile: in it.
        property: that holds a version in it.
        versions: of which the first that can be had is taken.
    """
    if shutil.which("mvn") is None:
        pytest.skip("there is no Maven (mvn), which fetches the jars")
    told = ""
    for version in versions or ("",):
        kept = directory / f"{profile}{version}"
        if not kept.exists():
            file = ROOT / "tests" / "data" / pom / "pom.xml"
            command = ["mvn", "-q", "-B", "-f", str(file), "-P", profile, f"-D{property or 'none'}={version}"]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={kept}.part"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            told = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr)
            if done.returncode:
                shutil.rmtree(f"{kept}.part", ignore_errors=True)
                continue
            Path(f"{kept}.part").rename(kept)
        return sorted(kept.glob("*.jar"))
    pytest.skip(f"Maven cannot fetch the jars of {profile}: {told[:300]}")

"""Which path a merge takes at first (S31).

Owns: the list of paths, cheapest first, and the verdict on each of them.
"""

from __future__ import annotations

import attrs

from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.analysis.keymatch import key_equalities
from trinitymerge.merge.analysis.outcomes import Outcomes, is_certain, outcomes_of, recorded_deletes
from trinitymerge.merge.analysis.understood import Analysis
from trinitymerge.merge.paths.base import Path, Verdict
from trinitymerge.merge.paths.blind import BLIND
from trinitymerge.merge.paths.full import FULL
from trinitymerge.merge.paths.keyed import KEYED
from trinitymerge.merge.paths.mixed import MIXED

PATHS: tuple[Path, ...] = (BLIND, MIXED, KEYED, FULL)
"""All there are, cheapest first."""

_JUDGED: tuple[Path, ...] = (FULL, KEYED, BLIND, MIXED)
"""The same, in the order in which they are judged: each may build on what was found before it."""

assert set(_JUDGED) == set(PATHS), "a path that is not judged would count as sound"


def judge(analysis: Analysis, needs_counts: str | None) -> Verdict:
    """Decides which paths are sound, and which of these would be tried in vain.

    Args:
        analysis: the merge.
        needs_counts: why the merge must know what its rows replace, or None.
    """
    equalities = key_equalities(analysis)
    match = equalities.match(analysis.definition)
    outcomes = outcomes_of(analysis, match) if match and match.exact else Outcomes()
    certain = is_certain(analysis, outcomes)
    verdict = Verdict(equalities, match, outcomes, certain, recorded_deletes(analysis, match), needs_counts)
    for path in _JUDGED:
        why = path.why_not(analysis, verdict)
        if why is not None:
            verdict = attrs.evolve(verdict, why_not={**verdict.why_not, path: why})
        elif (vain := path.why_in_vain(analysis, verdict)) is not None:
            verdict = attrs.evolve(verdict, in_vain={**verdict.in_vain, path: vain})
    return verdict


def cheapest(verdict: Verdict) -> Path:
    """The cheapest sound path that is a choice of its own, and not bound to be given up."""
    return next(p for p in PATHS if p.is_choice and p not in verdict.why_not and p not in verdict.in_vain)


def cheaper(path: Path) -> tuple[Path, ...]:
    """The paths that would have been chosen before one, had there been nothing against them."""
    return tuple(p for p in PATHS[: PATHS.index(path)] if p.is_choice)


def dearer(path: Path, other: Path | None) -> Path:
    """The one of two paths that reads more; None is none."""
    return path if other is None else max(path, other, key=PATHS.index)


def check_forced(path: Path, verdict: Verdict) -> None:
    """Refuses to take a path that is not sound.

    Raises:
        InvalidMergeError: with the reason.
    """
    if path in verdict.why_not:
        raise InvalidMergeError(f"This merge cannot run as {path.name}: {verdict.why_not[path]}.")

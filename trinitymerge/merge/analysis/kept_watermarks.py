"""Watermarks that updates keep because the source lacks the column (S10)."""

from __future__ import annotations

import logging

from trinitymerge.merge.analysis.result import Analysis
from trinitymerge.merge.analysis.row_kinds import FromReplacedRow

_logger = logging.getLogger(__name__)
_warned: set[tuple[str, tuple[str, ...]]] = set()


def kept_watermarks(analysis: Analysis) -> tuple[str, ...]:
    """Return the watermark columns that updates by source columns take over from the rows they replace."""
    by_source = [p for p in analysis.clauses if any(a.from_source is not None for a in p.clause.actions)]
    updates = [row for plan in by_source for row in plan.rows if row.changes_pre_image]
    names = analysis.definition.watermarkKey
    return tuple(n for n in names if any(isinstance(row.values[n], FromReplacedRow) for row in updates))


def warn(path: str, columns: tuple[str, ...]) -> None:
    """Log a warning, once per process, table and columns."""
    if not columns or (path, columns) in _warned:
        return
    _warned.add((path, columns))
    _logger.warning(
        "%s: the source lacks the watermark column%s %s, so updated rows keep the stored watermark: a source row that is late "
        "replaces a newer one. Add the column to the source, or set the time of the change with .at(...).",
        path,
        "s" if len(columns) > 1 else "",
        ", ".join(columns),
    )

"""A validated, compiled merge of which nothing has run: :class:`MergePlan`.

Owns: the choice of a path, the rows a path appends, ``explain()`` and ``preview()``. Executing a plan is the writer's
business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from pyspark.sql import DataFrame

from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import physical_type, quote
from trinitymerge.maintenance.streaming import MicroBatch
from trinitymerge.merge import compiler, keyrange, settling, sides
from trinitymerge.merge.analysis import Analysis, ClausePlan, Template
from trinitymerge.merge.clauses import Clause, WhenMatched, WhenNotMatched, heading
from trinitymerge.merge.frames import Source
from trinitymerge.merge.paths import Path, Paths
from trinitymerge.merge.program import CLAUSE, KEEP, Program, program_for
from trinitymerge.merge.purged import without_purged
from trinitymerge.merge.result import MergeResult
from trinitymerge.merge.sides import Materialised
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.storage.backend import Backend, Batches
from trinitymerge.storage.entries import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen
class Options:
    """The settings of a merge that are not clauses.

    Attributes:
        on_stale: ``"skip"``, ``"error"`` or ``"force"`` (S11).
        transaction: ``(appId, version)`` or None (S36).
        stream: the micro-batch that the transaction is, or None (S36a).
        max_delete_fraction: share of live rows, or None (S37).
        path: a sound path to take instead of the cheapest, or None.
    """

    on_stale: str = "skip"
    transaction: tuple[str, int] | None = None
    stream: MicroBatch | None = None
    max_delete_fraction: float | None = None
    path: Path | None = None


@attrs.frozen(eq=False)
class Compiled:
    """The rows one path appends.

    Attributes:
        program: the slots.
        rows: stored columns and the technical ones of :func:`trinitymerge.merge.settling.settle` and
            :func:`trinitymerge.merge.purged.without_purged`.
        source_rows: rows of the source; None where the write job observes it, or there is no source.
        keys_read: the keys that were looked up in the target (:func:`trinitymerge.reader.key_to_find`); None where
            nothing or everything was read.
    """

    program: Program
    rows: DataFrame
    source_rows: int | None
    keys_read: DataFrame | None = None


@attrs.frozen(eq=False)
class MergePlan:
    """A merge, validated and ready to run; made by ``MergeBuilder.build()``.

    Attributes:
        path: the path that will be tried first.

    Example:
        >>> plan = orders.merge(orders.toDF()).whenMatched().updateAll().whenNotMatched().insertAll().build()
        >>> plan.path
        'blind append'
    """

    backend: Backend
    analysis: Analysis
    paths: Paths
    options: Options
    clauses: tuple[Clause, ...]
    _execute: Callable[[MergePlan], MergeResult]

    @property
    def definition(self) -> TableDefinition:
        """The target's definition."""
        return self.analysis.definition

    @property
    def chosen(self) -> Path:
        """The path that is tried first."""
        return self.options.path or self.paths.cheapest

    @property
    def path(self) -> str:
        """The name of the path that is tried first."""
        return self.chosen.value

    def execute(self) -> MergeResult:
        """Runs the merge; see ``MergeBuilder.execute``."""
        return self._execute(self)

    def preview(self) -> DataFrame:
        """The rows the merge would append, without writing anything (S31): rows of purged keys are left out.

        Returns:
            The stored columns, ``_tm_action`` (``insert``, ``update``, ``delete``, or ``upsert`` where the
            target is not read) and ``_tm_clause`` (from 1). Where
            the target must be read the source is evaluated now, once, and the rows are resolved when they are used.
            Where only the run will tell whether it must be, the preview reads it.

        Example:
            >>> plan = orders.delete(spark.sql("SELECT '1' AS order_id")).build()
            >>> [(r["order_id"], r["_tm_action"], r["_tm_clause"]) for r in plan.preview().collect()]
            [('1', 'delete', 1)]
        """
        path = self.chosen
        if path is Path.BLIND and not self.paths.certain:
            path = Path.KEYED
        with held(self.backend.spark, LITERAL_NAMES):
            compiled = self.compile(path, self.backend.snapshot())
            stored = [quote(f.name) for f in self.definition.stored_fields]
            rows = compiled.rows.filter(KEEP)
            return rows.selectExpr(*stored, compiler.action_of(compiled.program), CLAUSE)

    def compile(self, path: Path, snapshot: Snapshot) -> Compiled:
        """The rows a path appends to a snapshot.

        On the blind path nothing runs. On the others the source is evaluated here, once (S32).
        """
        compiled = self._compile(path, Batches.of(snapshot))
        return attrs.evolve(compiled, rows=without_purged(compiled.rows, self.definition, snapshot.purged))

    def _compile(self, path: Path, batches: Batches) -> Compiled:
        if path is Path.BLIND:
            assert self.analysis.source is not None
            program = self._program(path, batches)
            fired = compiler.fire_blind(self.analysis.source.frame, program, self.paths.outcomes)
            return Compiled(program, self._steps(fired, program, batches), None)
        source, once = self._source_once()
        if path is Path.MIXED:
            return self._compile_mixed(source, once, batches)
        program = self._program(path, batches)
        joined = self._sides(path, source, once, batches)
        return Compiled(program, self._pair(program, joined, batches), once.rows if once else None, joined.keys)

    def _compile_mixed(self, source: Source | None, once: Materialised | None, batches: Batches) -> Compiled:
        """Appends blindly what can be, and looks up the keys of the other source rows."""
        assert source is not None
        assert once is not None
        blind, keyed = self._program(Path.BLIND, batches), self._program(Path.KEYED, batches)
        fired = compiler.fire_blind(source.frame, blind, self.paths.outcomes)
        decided, undecided = compiler.split_undecided(fired)
        joined = self._sides(Path.KEYED, attrs.evolve(source, frame=undecided), once, batches)
        looked_up = self._pair(keyed, joined, batches)
        rows = self._steps(decided, blind, batches).unionByName(settling.without_effect(looked_up))
        return Compiled(blind, rows, once.rows, joined.keys)

    def _program(self, path: Path, batches: Batches) -> Program:
        return program_for(self.analysis, self.paths, path, any(b.tombstones for b in batches.batches))

    def _pair(self, program: Program, joined: sides.Sides, batches: Batches) -> DataFrame:
        return self._steps(compiler.fire(joined.joined, program, self.paths, joined.matched), program, batches)

    def _source_once(self) -> tuple[Source | None, Materialised | None]:
        source, match = self.analysis.source, self.paths.key_match
        if source is None:
            return None, None
        sought = [(k.alone, k.type) for k in match.keys] if match else []
        metrics = keyrange.metrics(self.definition, sought) if match else {}
        once = sides.materialise(source.df, metrics)
        return source.over(once.frame), once

    def _sides(self, path: Path, source: Source | None, once: Materialised | None, batches: Batches) -> sides.Sides:
        if path is Path.FULL:
            return sides.full(self.analysis, self.paths, source, self.backend, batches)
        assert source is not None
        assert once is not None
        assert self.paths.key_match is not None
        return sides.keyed(self.analysis, self.paths.key_match, source, once, self.backend, batches)

    def _steps(self, fired: DataFrame, program: Program, batches: Batches) -> DataFrame:
        rows = compiler.shape(compiler.spread(compiler.evaluate(fired, program), program), program)
        if program.unknown:
            # Used twice: for the keys to look up, and for what is found.
            asked = zip(compiler.asked_keys(program), self.definition.primaryKey, strict=True)
            types = [(key, physical_type(self.definition.field(name))) for key, name in asked]
            once = sides.materialise(rows, keyrange.metrics(self.definition, types))
            rows = compiler.probe(once.frame, program, lambda keys: sides.look_up(self.backend, batches, keys, once))
        return settling.settle(rows, program, self.options.on_stale)

    def explain(self) -> str:
        """Prints, in words and in order, what will happen to which rows, and which path was chosen and why.

        Returns:
            The text it printed.

        Example:
            >>> text = orders.delete(spark.sql("SELECT '1' AS order_id")).build().explain()
            Merge into 'target' (orders), one append batch
              1. whenMatched(): delete the target row
            Path: keyed lookup
              not blind append: clause 1 takes the watermark 'ts' over from the row it replaces
        """
        text = "\n".join([self._headline(), *self._clause_lines(), *self._ignored_lines(), *self._path_lines()])
        print(text)
        return text

    def _headline(self) -> str:
        name = self.backend.path.rstrip("/").rsplit("/", 1)[-1]
        return f"Merge into '{self.analysis.target.alias}' ({name}), one append batch"

    def _clause_lines(self) -> list[str]:
        lines = []
        for position, plan in enumerate(self.analysis.clauses):
            head = heading(self.clauses[position])
            does = "; ".join(_words(plan, t) for t in plan.templates)
            lines.append(f"  {position + 1}. {head}: {does}")
        kinds = {WhenMatched: "pairs", WhenNotMatched: "source rows without a pair"}
        for kind, words in kinds.items():
            clauses = [p for _, p in self.analysis.of_kind(kind)]
            if clauses and all(p.condition is not None for p in clauses):
                lines.append(f"     {words} for which no condition is true: nothing")
        return lines

    def _ignored_lines(self) -> list[str]:
        columns = ", ".join(self.analysis.ignored)
        return [f"Source columns left out: {columns} (not in the table, and nothing mentions them)"] if columns else []

    def _path_lines(self) -> list[str]:
        chosen = self.chosen
        doubt = (
            "" if chosen is not Path.BLIND or self.paths.certain else " where no row depends on whether its key exists"
        )
        lines = [f"Path: {chosen.value}{doubt}"]
        for path in Path:
            if path is chosen:
                break
            if path is Path.MIXED:
                continue  # what blind append becomes if need be; never a choice of its own
            reason = self.paths.why_not.get(path, "another path was asked for")
            lines.append(f"  not {path.value}: {reason}")
        return lines


def _words(plan: ClausePlan, template: Template) -> str:
    action = next(a for a, t in zip(plan.clause.actions, plan.templates, strict=True) if t is template)
    if template.action == "delete":
        return "delete the target row"
    values = getattr(action, "values", None)
    items = getattr(values, "items", None)
    if items is None:
        excepted = getattr(values, "exceptColumns", ())
        but = f" but {', '.join(excepted)}" if excepted else ""
        return f"{template.action} all columns{but} from the source"
    return f"{template.action} {', '.join(str(k) for k, _ in items)}"

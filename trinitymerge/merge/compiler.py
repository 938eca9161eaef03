"""From an analysed merge to the rows it appends, as one DataFrame (S10-S12, S17-S26).

Owns: the sequence of steps below, each a function from DataFrame to DataFrame. Reads nothing itself: it is handed the
joined sides, and a function that looks up the latest rows of keys. Writes nothing, decides no path.

    joined sides          target and source columns side by side (:mod:`trinitymerge.merge.sides`)
    -> fire               which clause applies to each row: the first whose condition is true
    -> evaluate           the clause's values that must be checked or used twice, evaluated once
    -> spread             one row per row to be written
    -> shape              the stored columns, and what is known of the row each one replaces
    -> probe              what the written keys hold, where the join does not tell
    -> settle             watermarks, stale rows, moved and freed keys, and what each row will mean to readers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from trinitymerge.definition import HIDDEN_PREFIX, Field, TableDefinition
from trinitymerge.expressions import (
    all_of,
    any_of,
    column,
    is_older,
    is_tombstone,
    physical_type,
)
from trinitymerge.merge.analysis import (
    Alive,
    Analysis,
    Carried,
    Dead,
    Given,
    Null,
    Replaced,
    Template,
    Value,
    alive,
    dead,
)
from trinitymerge.merge.assignment import Storing, misfit, stored, zero
from trinitymerge.merge.clauses import WhenMatched, WhenNotMatched, WhenOnlyOnTarget
from trinitymerge.merge.frames import IN_SOURCE, LIVE, before_watermark
from trinitymerge.merge.paths import Outcome, Path, Paths, keeps_key

CLAUSE = HIDDEN_PREFIX + "clause"
"""Stored with every row: the position of the clause that wrote it, from 1."""

EFFECT = HIDDEN_PREFIX + "effect"
"""Stored with every row: what it means for its key's readers if it is the batch's freshest (S30a); null if unknown."""

ACTION = HIDDEN_PREFIX + "action"
SLOT = HIDDEN_PREFIX + "slot"
KEEP = HIDDEN_PREFIX + "keep"
MISFIT = HIDDEN_PREFIX + "misfit"
_FIRED = HIDDEN_PREFIX + "fired"
_STALE = HIDDEN_PREFIX + "is_stale"
_CHANGED = HIDDEN_PREFIX + "changed"
_ARRIVES = HIDDEN_PREFIX + "arrives"
_BY_DELETE = HIDDEN_PREFIX + "freed_by_delete"
_BY_MOVE = HIDDEN_PREFIX + "freed_by_move"
_FOUND_LIVE = HIDDEN_PREFIX + "found_live"

UNDECIDED = -1
"""Slot of a source row whose outcome depends on whether its key exists, on the blind path."""

DUPLICATE, STALE = "duplicate", "stale"
INSERTED, UPDATED, DELETED, NOTHING = "insert", "update", "delete", "none"
MOVED_OVER, MOVED_AWAY = "update+delete", "delete+delete"

Lookup = Callable[[DataFrame], DataFrame]
"""From the keys of rows (columns in primary-key order) to the latest stored rows of those keys, tombstones included."""


@attrs.frozen(eq=False)
class Slot:
    """One kind of row to write, by number.

    Attributes:
        template: where its values come from.
        action: ``"update"``, ``"delete"``, ``"insert"``, ``"leave"`` (the tombstone a move leaves behind) or
            ``"absent delete"`` (the tombstone of a key that is not live).
        known: the joined row tells what the written key holds; otherwise it must be probed.
        may_arrive: the row may come to a key that is live (S24, S25).
    """

    template: Template
    action: str
    known: bool
    may_arrive: bool = False


@attrs.frozen(eq=False)
class Program:
    """A merge compiled for one path: its slots, and which of them each fired clause fills.

    Attributes:
        analysis: the merge.
        path: the path.
        slots: by number.
        by_fired: fired code -> slot numbers. Codes are clause positions from 1; absent deletes are their negatives.
    """

    analysis: Analysis
    path: Path
    slots: tuple[Slot, ...]
    by_fired: dict[int, tuple[int, ...]]

    @property
    def definition(self) -> TableDefinition:
        """The target's definition."""
        return self.analysis.definition

    def numbers(self, *actions: str) -> list[int]:
        """The slots of some actions."""
        return [n for n, s in enumerate(self.slots) if s.action in actions]

    @property
    def moves(self) -> bool:
        """Can the merge change primary keys (S24)."""
        return any(s.action == "leave" for s in self.slots)

    @property
    def needs_probe(self) -> bool:
        """Does any row need to be told what its key holds."""
        return any(not s.known for s in self.slots)

    def first_slot(self, position: int) -> int | None:
        """The slot that is filled once whenever the clause at a position fires."""
        return next(iter(self.by_fired.get(position + 1, ())), None)


def program(analysis: Analysis, paths: Paths, path: Path, tombstones_possible: bool) -> Program:
    """Numbers the rows a merge can write on a path.

    Args:
        analysis: the merge.
        paths: the verdict; ``path`` must be sound.
        path: the path to compile for.
        tombstones_possible: may the target hold tombstones.
    """
    if path is Path.BLIND:
        return _blind_program(analysis, paths.outcomes)
    slots: list[Slot] = []
    by_fired: dict[int, tuple[int, ...]] = {}
    for position, plan in enumerate(analysis.clauses):
        first = len(slots)
        for template in plan.templates:
            slots += _slots_of(analysis, paths, path, template, tombstones_possible)
        by_fired[position + 1] = tuple(range(first, len(slots)))
    for position, absent in paths.absent_deletes:
        if absent is not None:
            by_fired[-(position + 1)] = (len(slots),)
            slots.append(Slot(absent, "absent delete", known=True))
    return Program(analysis, path, tuple(slots), by_fired)


def _blind_program(analysis: Analysis, outcomes: Sequence[Outcome]) -> Program:
    written = [o for o in outcomes if o.template]
    slots = tuple(Slot(o.template, "absent delete" if o.not_matched is None else "insert", True) for o in written)  # type: ignore[arg-type]
    return Program(analysis, Path.BLIND, slots, {n + 1: (n,) for n in range(len(slots))})


def _slots_of(
    analysis: Analysis, paths: Paths, path: Path, template: Template, tombstones_possible: bool
) -> list[Slot]:
    if template.action == "delete":
        return [Slot(template, "delete", known=True)]
    if template.action == "update":
        if not template.moves or keeps_key(analysis, paths.key_match, template):
            return [Slot(template, "update", known=True)]
        return [
            Slot(template, "update", known=False, may_arrive=True),
            Slot(_leave(analysis, template), "leave", known=False),
        ]
    exact = paths.key_match is not None and paths.key_match.exact
    not_matched = isinstance(analysis.clauses[template.clause].clause, WhenNotMatched)
    own_key = not_matched and keeps_key(analysis, paths.key_match, template)
    hidden_shown = path is Path.KEYED or not tombstones_possible or not analysis.definition.watermarkKey
    known = own_key and hidden_shown and (exact or path is Path.KEYED)
    return [Slot(template, "insert", known, may_arrive=not (own_key and exact))]


def _leave(analysis: Analysis, update: Template) -> Template:
    """The tombstone of the key that a move leaves (S24), with the pre-image's columns (S9)."""
    own = analysis.definition.watermarkKey
    values: dict[str, Value] = {n: update.values[n] if n in own else Carried() for n in update.values}
    values[analysis.definition.tombstone_column] = Dead()
    return Template(update.clause, "leave", values)


# fire -----------------------------------------------------------------------------------------------------------------


def fire(joined: DataFrame, program: Program, paths: Paths, matched: Column) -> DataFrame:
    """Marks each joined row with the code of the first clause whose condition is true (S17-S20).

    Args:
        joined: the sides.
        program: codes to slots.
        paths: for the absent deletes.
        matched: is the row a pair; never null.
    """
    analysis = program.analysis
    absent = F.lit(0)
    if paths.key_match is not None and paths.absent_deletes:
        has_key = all_of(k.value.isNotNull() for k in paths.key_match.keys)  # a null key has no tombstone
        cases = [(analysis.clauses[p].condition, -(p + 1) if t is not None else 0) for p, t in paths.absent_deletes]
        absent = F.when(has_key, _first_true(cases, F.lit(0))).otherwise(absent)
    code = (
        F.when(matched, _first_clause(analysis, WhenMatched, F.lit(0)))
        .when(column(IN_SOURCE).isNotNull(), _first_clause(analysis, WhenNotMatched, absent))
        .otherwise(_first_clause(analysis, WhenOnlyOnTarget, F.lit(0)))
    )
    return joined.withColumn(_FIRED, code).filter(column(_FIRED) != 0)


def _first_clause(analysis: Analysis, kind: type, otherwise: Column) -> Column:
    return _first_true([(c.condition, i + 1) for i, c in analysis.of_kind(kind)], otherwise)


def _first_true(cases: Iterable[tuple[Column | None, int]], otherwise: Column) -> Column:
    """The value of the first case whose condition is true; null is not true (S20)."""
    for condition, value in reversed(list(cases)):
        otherwise = F.lit(value) if condition is None else F.when(condition, F.lit(value)).otherwise(otherwise)
    return otherwise


def fire_blind(source: DataFrame, program: Program, outcomes: Sequence[Outcome]) -> DataFrame:
    """Marks each source row with the slot of its outcome, 0 for nothing, or :data:`UNDECIDED`."""
    analysis = program.analysis
    matched = _first_clause(analysis, WhenMatched, F.lit(0))
    not_matched = _first_clause(analysis, WhenNotMatched, F.lit(0))
    code = F.lit(UNDECIDED)
    number = sum(1 for o in outcomes if o.template)
    m, n = HIDDEN_PREFIX + "m", HIDDEN_PREFIX + "n"
    for outcome in reversed(outcomes):
        here = (column(m) == ((outcome.matched + 1) if outcome.matched is not None else 0)) & (
            column(n) == ((outcome.not_matched + 1) if outcome.not_matched is not None else 0)
        )
        written = F.lit(number if outcome.template else 0)
        if outcome.template and outcome.not_matched is None:
            written = F.when(_has_key(outcome.template, program.definition), written).otherwise(F.lit(0))
        code = F.when(here, written).otherwise(code)
        number -= 1 if outcome.template else 0
    tried = source.withColumn(m, matched).withColumn(n, not_matched)
    return tried.withColumn(_FIRED, code)


def _has_key(template: Template, definition: TableDefinition) -> Column:
    """Over the source alone: is no part of the written key null; a null key has no tombstone."""
    given = [template.values[k] for k in definition.primaryKey]
    return all_of(g.alone.isNotNull() for g in given if isinstance(g, Given) and g.alone is not None)


# evaluate -------------------------------------------------------------------------------------------------------------


def _raw(slot: int, i: int) -> str:
    return f"{HIDDEN_PREFIX}v{slot}_{i}"


def _new_key(i: int) -> str:
    return f"{HIDDEN_PREFIX}n{i}"


def _old_key(i: int) -> str:
    return f"{HIDDEN_PREFIX}o{i}"


def evaluate(fired: DataFrame, program: Program) -> DataFrame:
    """Evaluates, once and only on rows of their clause, the values that are checked or used twice (S29, S32)."""
    raws = {}
    for code, numbers in program.by_fired.items():
        for number in numbers:
            template = program.slots[number].template
            for i, field in enumerate(program.definition.stored_fields):
                value = template.values[field.name]
                if isinstance(value, Given) and _is_evaluated_first(program, value, field):
                    raws[_raw(number, i)] = F.when(column(_FIRED) == code, value.value)
    return fired.select("*", *[c.alias(n) for n, c in raws.items()])


def _is_evaluated_first(program: Program, value: Given, field: Field) -> bool:
    return value.way is Storing.CHECKED or (program.moves and field.name in program.definition.primaryKey)


def _stored_value(program: Program, number: int, i: int, field: Field) -> Column:
    value = program.slots[number].template.values[field.name]
    kind = physical_type(field)
    if isinstance(value, Given):
        if _is_evaluated_first(program, value, field):
            return stored(_raw(number, i), value.way, field)
        return value.value if value.way is Storing.AS_IS else value.value.cast(kind)
    if isinstance(value, Carried):
        return program.analysis.target.column(field.name)
    if isinstance(value, Dead):
        return dead(program.definition)
    if isinstance(value, Alive):
        return alive(program.definition)
    is_tombstone_row = program.slots[number].action == "absent delete"
    if isinstance(value, Null) and is_tombstone_row and not field.nullable:
        return zero(field)
    if isinstance(value, (Null, Replaced)):
        return F.lit(None).cast(kind)
    raise AssertionError(f"unknown value {value!r}")


# spread ---------------------------------------------------------------------------------------------------------------


def spread(evaluated: DataFrame, program: Program) -> DataFrame:
    """One row per row to be written, numbered by slot; a row without any keeps a null slot."""
    if all(len(n) <= 1 for n in program.by_fired.values()):
        slot = _first_true([(column(_FIRED) == code, n[0]) for code, n in program.by_fired.items() if n], F.lit(None))
        undecided = F.when(column(_FIRED) == UNDECIDED, F.lit(UNDECIDED)) if program.path is Path.BLIND else F.lit(None)
        return evaluated.withColumn(SLOT, F.coalesce(slot, undecided).cast("int"))
    arrays = F.array().cast("array<int>")
    for code, numbers in program.by_fired.items():
        arrays = F.when(column(_FIRED) == code, F.array(*[F.lit(n) for n in numbers])).otherwise(arrays)
    return evaluated.select("*", F.explode(arrays).alias(SLOT))


# shape ----------------------------------------------------------------------------------------------------------------


def shape(spread_rows: DataFrame, program: Program) -> DataFrame:
    """The stored columns of each row, and what the join knows of the row it replaces.

    Returns:
        Stored columns, ``_tm_slot``, ``_tm_clause``, ``_tm_misfit``; off the blind path also ``_tm_live`` and the
        watermarks of the latest target row the source row was paired by, and for moves the old and the new key.
    """
    definition = program.definition
    fields = definition.stored_fields
    numbers = range(len(program.slots))
    written = [
        _by_slot({n: _stored_value(program, n, i, f) for n in numbers}).cast(physical_type(f)).alias(f.name)
        for i, f in enumerate(fields)
    ]
    clause = _by_slot({n: F.lit(s.template.clause + 1) for n, s in enumerate(program.slots)})
    columns = [*written, column(SLOT), clause.cast("int").alias(CLAUSE), _misfits(program).alias(MISFIT)]
    if program.path is not Path.BLIND:
        columns += [column(LIVE), *[column(w) for w in _before(definition)]]
    if program.moves:
        columns += _keys_of_moves(program)
    return spread_rows.select(*columns)


def _by_slot(values: dict[int, Column]) -> Column:
    """The value for a row's slot. Slots that share an expression could share a branch; Spark finds that itself."""
    chosen = None
    for number, value in values.items():
        here = column(SLOT) == number
        chosen = F.when(here, value) if chosen is None else chosen.when(here, value)
    return F.lit(None) if chosen is None else chosen


def _before(definition: TableDefinition) -> list[str]:
    return [before_watermark(i) for i in range(len(definition.watermarkKey))]


def _misfits(program: Program) -> Column:
    found = []
    for number, slot in enumerate(program.slots):
        for i, field in enumerate(program.definition.stored_fields):
            value = slot.template.values[field.name]
            bad = misfit(_raw(number, i), value.way, field) if isinstance(value, Given) else None
            if bad is not None:
                found.append(bad)
    return F.coalesce(*found) if found else F.lit(None).cast("string")


def _keys_of_moves(program: Program) -> list[Column]:
    """Of each row of a moving update: the key it has left and the key it goes to."""
    columns = []
    fields = program.definition.stored_fields
    for k, key in enumerate(program.definition.primaryKey):
        i = next(i for i, f in enumerate(fields) if f.name == key)
        new = {n: _stored_value(program, n, i, fields[i]) for n in program.numbers("update") if _is_move(program, n)}
        for n in program.numbers("leave"):
            new[n] = _stored_value_of_pair(program, n, i, fields[i])
        columns.append(_by_slot(new).cast(physical_type(fields[i])).alias(_new_key(k)))
        columns.append(program.analysis.target.column(key).alias(_old_key(k)))
    return columns


def _is_move(program: Program, number: int) -> bool:
    following = program.slots[number + 1 : number + 2]
    return bool(following) and following[0].action == "leave"


def _stored_value_of_pair(program: Program, leave: int, i: int, field: Field) -> Column:
    return _stored_value(program, leave - 1, i, field)


# probe ----------------------------------------------------------------------------------------------------------------


def probe(rows: DataFrame, program: Program, lookup: Lookup) -> DataFrame:
    """Adds what the written keys hold, live row or tombstone, where the join does not tell (S10.3, S25, S26).

    For a move that is the key it goes to, for its tombstone likewise: both must come to the same verdict.
    """
    definition = program.definition
    leave = column(SLOT).isin(program.numbers("leave")) if program.moves else F.lit(False)
    asked = [
        F.when(leave, column(_new_key(i)) if program.moves else F.lit(None))
        .otherwise(column(k))
        .alias(f"{HIDDEN_PREFIX}q{i}")
        for i, k in enumerate(definition.primaryKey)
    ]
    asking = rows.select("*", *asked)
    unknown = [n for n, s in enumerate(program.slots) if not s.known]
    names = [f"{HIDDEN_PREFIX}q{i}" for i in range(len(asked))]
    keys = asking.filter(column(SLOT).isin(unknown)).select(*[column(n) for n in names])
    found = lookup(keys)
    answer = found.select(
        *[column(k).alias(f"{HIDDEN_PREFIX}a{i}") for i, k in enumerate(definition.primaryKey)],
        (~is_tombstone(definition)).alias(_FOUND_LIVE),
        *[column(w).alias(_found_watermark(i)) for i, w in enumerate(definition.watermarkKey)],
    )
    same_key = all_of(column(n) == column(f"{HIDDEN_PREFIX}a{i}") for i, n in enumerate(names))
    joined = asking.join(answer, same_key & column(SLOT).isin(unknown), "left")
    return joined.drop(*names, *[f"{HIDDEN_PREFIX}a{i}" for i in range(len(names))])


def _found_watermark(i: int) -> str:
    return f"{HIDDEN_PREFIX}f{i}"


# settle ---------------------------------------------------------------------------------------------------------------


def settle(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """Decides watermarks, stale rows, moves and arrivals, and says what each row means to readers (S10-S12, S24-S26).

    Returns:
        Stored columns, ``_tm_slot``, ``_tm_clause``, ``_tm_misfit``, ``_tm_effect`` and ``_tm_keep``.
    """
    if program.path is Path.BLIND:
        effect = F.lit(None).cast("string").alias(EFFECT)
        return rows.select("*", effect, (column(SLOT) >= 0).alias(KEEP))
    rows = _known_before(rows, program)
    rows = _watermarks(rows, program, on_stale)
    rows = _arrivals(rows, program)
    return _effects(rows, program, on_stale)


def _is(program: Program, *actions: str) -> Column:
    numbers = program.numbers(*actions)
    return column(SLOT).isin(numbers) if numbers else F.lit(False)


def _known_before(rows: DataFrame, program: Program) -> DataFrame:
    """``_tm_live`` and the before-watermarks become those of the written key; ``_tm_changed`` says a key moves."""
    definition = program.definition
    moving = any_of(column(SLOT) == n for n in range(len(program.slots)) if _is_move(program, n)) | _is(
        program, "leave"
    )
    changed = F.lit(False)
    if program.moves:
        same = all_of(column(_new_key(i)).eqNullSafe(column(_old_key(i))) for i in range(len(definition.primaryKey)))
        changed = moving & ~same
    rows = rows.withColumn(_CHANGED, changed)
    if not program.needs_probe:
        return rows.withColumn(LIVE, F.coalesce(column(LIVE), F.lit(False)))
    unknown = column(SLOT).isin([n for n, s in enumerate(program.slots) if not s.known])
    live = F.when(unknown, column(_FOUND_LIVE)).otherwise(column(LIVE))
    rows = rows.withColumn(LIVE, F.coalesce(live, F.lit(False)))
    mine, found = (
        _columns(_before(definition)),
        _columns(_found_watermark(i) for i in range(len(definition.watermarkKey))),
    )
    for i, name in enumerate(_before(definition)):
        # what a move replaces is both the row it leaves and what its new key holds: the fresher of the two
        pre_image = HIDDEN_PREFIX + f"pre{i}"
        rows = rows.withColumn(pre_image, column(name))
    pre = _columns(HIDDEN_PREFIX + f"pre{i}" for i in range(len(mine)))
    for i, name in enumerate(_before(definition)):
        taken = F.when(moving, F.when(is_older(pre, found), found[i]).otherwise(pre[i])).otherwise(found[i])
        rows = rows.withColumn(name, F.when(unknown, taken).otherwise(column(name)))
    return rows


def _columns(names: Iterable[str]) -> list[Column]:
    return [column(n) for n in names]


def _watermarks(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """Fills watermarks nobody assigned from the replaced row, and finds stale rows (S10, S11)."""
    definition = program.definition
    keys = definition.watermarkKey
    before = _columns(_before(definition))
    unassigned = [[n for n, s in enumerate(program.slots) if isinstance(s.template.values[k], Replaced)] for k in keys]
    row_watermark = [
        F.when(column(SLOT).isin(slots), b).otherwise(column(k)) if slots else column(k)
        for k, b, slots in zip(keys, before, unassigned, strict=True)
    ]
    stale = is_older(row_watermark, before) & ~_is(program, "absent delete")
    rows = rows.withColumn(_STALE, stale)
    finals = [column(k) for k in keys]
    for i, slots in enumerate(unassigned):
        final = row_watermark[i]
        if program.moves and slots:  # the tombstone left behind replaces the pre-image alone
            final = F.when(
                _is(program, "leave") & column(SLOT).isin(slots), column(f"{HIDDEN_PREFIX}pre{i}")
            ).otherwise(final)
        finals[i] = F.when(column(_STALE), before[i]).otherwise(final) if on_stale == "force" else final
    if on_stale == "force":
        rows = rows.select(*_replaced(rows, dict(zip(keys, finals, strict=True))))
        return rows.withColumn(_STALE, F.lit(False))
    return rows.select(*_replaced(rows, dict(zip(keys, finals, strict=True))))


def _replaced(rows: DataFrame, values: dict[str, Column]) -> list[Column]:
    """All columns, some with new values, at once: each new value is computed from the old ones."""
    return [values[n].alias(n) if n in values else column(n) for n in rows.columns]


def _arrivals(rows: DataFrame, program: Program) -> DataFrame:
    """Finds rows that come to a live key, and whether the merge frees it (S24, S25)."""
    may_arrive = [n for n, s in enumerate(program.slots) if s.may_arrive]
    if not may_arrive:
        nothing = F.lit(False)
        return rows.withColumn(_ARRIVES, nothing).withColumn(_BY_DELETE, nothing).withColumn(_BY_MOVE, nothing)
    comes = column(SLOT).isin(may_arrive) & (~_is(program, "update") | column(_CHANGED))
    rows = rows.withColumn(_ARRIVES, comes & column(LIVE))
    same_key = Window.partitionBy(*_columns(program.definition.primaryKey))
    effective = ~column(_STALE)
    left = _is(program, "leave") & column(_CHANGED) & effective
    return rows.select(
        "*",
        F.max(_is(program, "delete") & effective).over(same_key).alias(_BY_DELETE),
        F.max(left).over(same_key).alias(_BY_MOVE),
        F.max(column(_ARRIVES) & effective).over(same_key).alias(_TAKEN),
    )


_TAKEN = HIDDEN_PREFIX + "taken"


def _effects(rows: DataFrame, program: Program, on_stale: str) -> DataFrame:
    """The effect of each row, and whether it is written (S30a)."""
    arrival_possible = any(s.may_arrive for s in program.slots)
    dead_row, freed = is_tombstone(program.definition), column(_BY_DELETE) | column(_BY_MOVE)
    moved_onto_deleted = column(_ARRIVES) & column(_BY_DELETE) & ~column(_BY_MOVE)
    moved = _is(program, "update") & column(_CHANGED)
    effect = (
        F.when(_is(program, "absent delete"), NOTHING)
        .when(column(_ARRIVES) & ~freed, DUPLICATE)
        .when(_is(program, "leave"), NOTHING)
        .when(column(_STALE), STALE)
        .when(_is(program, "delete"), DELETED)
        .when(moved & moved_onto_deleted, F.when(dead_row, MOVED_AWAY).otherwise(MOVED_OVER))
        .when(_is(program, "update"), F.when(dead_row, DELETED).otherwise(UPDATED))
        .when(moved_onto_deleted, F.when(dead_row, DELETED).otherwise(UPDATED))
        .otherwise(F.when(dead_row, NOTHING).otherwise(INSERTED))
    )
    written = F.lit(True)
    if program.moves:
        unmoved = _is(program, "leave") & ~column(_CHANGED)
        refused = F.lit(on_stale == "error")  # kept, so that the error can name it
        dropped = column(_CHANGED) & column(_STALE) & ~refused & (moved | _is(program, "leave"))
        written = ~unmoved & ~dropped
    if arrival_possible:
        written = written & ~(column(_TAKEN) & _is(program, "delete", "leave"))
    return rows.select(
        *_columns(f.name for f in program.definition.stored_fields),
        column(SLOT),
        column(CLAUSE),
        column(MISFIT),
        effect.alias(EFFECT),
        written.alias(KEEP),
    )


def action_of(program: Program) -> Column:
    """The action column of a preview: what each row does, in the user's words."""
    shown = {"leave": "delete", "absent delete": "delete"}
    return _by_slot({n: F.lit(shown.get(s.action, s.action)) for n, s in enumerate(program.slots)}).alias(ACTION)


def stored_columns(definition: TableDefinition) -> list[Column]:
    """The columns of a staged batch."""
    return [*_columns(f.name for f in definition.stored_fields), column(CLAUSE), column(EFFECT)]

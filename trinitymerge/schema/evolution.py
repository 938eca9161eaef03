"""Schema evolution (S43-S46). Every change raises ``InvalidDefinitionError`` if a column does not exist or may not change."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import count
from typing import Any

import attrs

from trinitymerge.errors import InvalidDefinitionError, did_you_mean, invalid_column
from trinitymerge.schema.constraints import Check, about, require_unchecked
from trinitymerge.schema.definition import HIDDEN_TOMBSTONE, TableDefinition
from trinitymerge.schema.field import Field, FileColumn, type_text
from trinitymerge.schema.nullability import dotted, never_null, values_inside, with_never_null
from trinitymerge.schema.types import INTEGRAL, Path, agree, combined, common, is_longer, leaves, shaped, with_names_of

_ANY_LAYOUT = sys.maxsize

# Changes --------------------------------------------------------------------------------------------------------------


def find_column(definition: TableDefinition, name: str) -> Field:
    found = next((f for f in definition.fields if f.name.lower() == str(name).lower()), None)
    if found is None:
        raise InvalidDefinitionError(
            f"The table has no column '{name}'.{did_you_mean(str(name), definition.names)}", column=str(name)
        )
    return found


def with_column(definition: TableDefinition, field: Field) -> TableDefinition:
    """Add a column at the end; existing rows have null in it."""
    _require_free(definition, field.name)
    if not field.nullable:
        raise invalid_column(field.name, "cannot be NOT NULL: existing rows have no value for it. Leave NOT NULL out.")
    stored = _free_name(definition, field.name)
    new = attrs.evolve(field, physical_name=None if stored == field.name else stored, added=True)
    return attrs.evolve(definition, fields=(*definition.fields, new))


def rename_column(definition: TableDefinition, old: str, new: str) -> TableDefinition:
    field = find_column(definition, old)
    require_unchecked(definition.checks, field.name, "renamed")
    if field.name.lower() != new.lower():
        _require_free(definition, new)
    stored = field.stored_as
    changed = attrs.evolve(field, name=new, physical_name=None if stored == new else stored)

    def key(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(new if n == field.name else n for n in names)

    return attrs.evolve(
        _replaced(definition, field, changed),
        primaryKey=key(definition.primaryKey),
        watermarkKey=key(definition.watermarkKey),
        clusterBy=key(definition.clusterBy),
        tombstoneKey=key([definition.tombstoneKey])[0] if definition.tombstoneKey is not None else None,
    )


def without_column(definition: TableDefinition, name: str) -> TableDefinition:
    """Drop a column. Its values stay in files for past versions until a rewrite."""
    field = find_column(definition, name)
    role = definition.role_of(field.name)
    if role:
        raise invalid_column(field.name, f"is {role} and cannot be dropped.")
    require_unchecked(definition.checks, field.name, "dropped")
    if field.name in definition.clusterBy:
        raise invalid_column(
            field.name,
            "is a column of clusterBy and cannot be dropped: call alter().clusterBy(...) with other columns, or none.",
        )
    if len(definition.fields) == 1:
        raise invalid_column(field.name, "cannot be dropped: it is the only column.")
    kept = tuple(f for f in definition.fields if f is not field)
    return attrs.evolve(definition, fields=kept, retired_names=(*definition.retired_names, *_names(field)))


def widened(definition: TableDefinition, name: str, kind: Any) -> TableDefinition:
    field = find_column(definition, name)
    if field.type == kind:
        return definition
    if is_longer(kind, field.type):
        return _replaced(definition, field, attrs.evolve(field, type=kind))
    wide, more = combined(field.type, kind)
    strict = [path for path in never_null(kind) if path not in never_null(wide)]
    if strict:
        why = "existing rows have no value for it" if strict[0] in more else "existing rows may hold a null"
        raise InvalidDefinitionError(
            f"Column '{dotted(field, strict[0])}' cannot be NOT NULL: {why}. Leave NOT NULL out; setNotNull() sets it.",
            column=field.name,
        )
    if with_never_null(wide, ()) != with_never_null(kind, ()) or field.type == wide:
        raise invalid_column(
            field.name,
            f"is {field.text}, and {type_text(kind)} is not wider: values could change or be lost. "
            "Add a column of that type, fill it, and drop this one.",
        )
    role = definition.role_of(field.name)
    has_versions = definition.history and field.name in definition.watermarkKey
    if role and (has_versions or not {field.type, wide} <= INTEGRAL.keys()):
        why = "with history its" if has_versions else "only whole numbers can become wider there, its"
        raise invalid_column(
            field.name,
            f"is {role}: {why} values are stored in the log and in archives. "
            "Make a table with the wider column and insert the rows.",
        )
    if _is_stored_otherwise(field.type, wide):
        require_unchecked(definition.checks, field.name, "widened")
    return _with_type(definition, field, wide, more)


def _with_type(definition: TableDefinition, field: Field, kind: Any, more: Iterable[Path]) -> TableDefinition:
    """Set a wider type; the column gets a new name in files only if they will store its values differently."""
    grown = reduce(partial(_grown, definition), more, field)
    earlier = tuple(attrs.evolve(e, type=shaped(e.type, kind)) for e in field.previous)
    before = shaped(field.type, kind)
    if not _is_stored_otherwise(field.type, kind):
        return _replaced(definition, field, attrs.evolve(grown, type=kind, previous=earlier))
    layout = definition.layout_version + 1
    earlier = (*earlier, FileColumn(field.stored_as, before, layout))
    wide = attrs.evolve(grown, type=kind, physical_name=_free_name(definition, field.name), previous=earlier)
    return attrs.evolve(_replaced(definition, field, wide), layout_version=layout)


def _grown(definition: TableDefinition, field: Field, path: Path) -> Field:
    """Add a field inside of a column, under a name in files that no field there has or has had."""
    taken = (*_names(field), *(_inside(field, p) for p, _ in values_inside(field.type)))
    stored = path[-1] + _free_name(definition, _inside(field, path), taken).removeprefix(_inside(field, path))
    within = () if stored == path[-1] else ((path, stored),)
    return attrs.evolve(field, added_fields=(*field.added_fields, path), within=(*field.within, *within))


def _inside(field: Field, path: Path) -> str:
    """Return the full name in files of a field inside of a column."""
    return ".".join((field.first_stored_as, *field.path_in_files(path)))


def _is_stored_otherwise(narrow: Any, wide: Any) -> bool:
    """Return True if files store values differently: more struct fields alone make no difference."""
    return list(leaves(shaped(narrow, wide))) != list(leaves(wide))


def drop_not_null(definition: TableDefinition, name: str) -> TableDefinition:
    """Let a column, or a value inside of it, be null."""
    field, path = _place(definition, name)
    if field.name in definition.primaryKey:
        raise invalid_column(field.name, "is part of the primary key, which is never null.")
    return _with_nullable(definition, field, path, True)


def set_not_null(definition: TableDefinition, name: str) -> TableDefinition:
    return _with_nullable(definition, *_place(definition, name), False)


def _place(definition: TableDefinition, name: str) -> tuple[Field, Path]:
    """Return the column and the path inside of it of a dotted name: ``address.city``, ``tags.element`` or ``prices.value``."""
    places = {f.name.lower(): (f, Path()) for f in definition.fields}
    for field in definition.fields:
        for path, _ in values_inside(field.type):
            places.setdefault(dotted(field, path).lower(), (field, path))
    return places.get(str(name).lower()) or (find_column(definition, name), ())


def _with_nullable(definition: TableDefinition, field: Field, path: Path, nullable: bool) -> TableDefinition:
    if not path:
        return _replaced(definition, field, attrs.evolve(field, nullable=nullable))
    paths = {*never_null(field.type), path} - ({path} if nullable else set())
    return _replaced(definition, field, attrs.evolve(field, type=with_never_null(field.type, paths)))


def with_comment(definition: TableDefinition, name: str, comment: str | None) -> TableDefinition:
    """Set the comment of a column, or remove it with None."""
    field = find_column(definition, name)
    kept = {k: v for k, v in field.metadata.items() if k != "comment"}
    said = {} if comment is None else {"comment": str(comment)}
    return _replaced(definition, field, attrs.evolve(field, metadata={**kept, **said}))


def with_default(definition: TableDefinition, name: str, default: str | None) -> TableDefinition:
    """Set the default of a column, or remove it with None; existing rows do not change (S46)."""
    field = find_column(definition, name)
    return _replaced(definition, field, attrs.evolve(field, default=default))


def clustered(definition: TableDefinition, names: Iterable[str]) -> TableDefinition:
    """Set the columns by which rows are sorted within files (S7c); none for the key."""
    return attrs.evolve(definition, clusterBy=tuple(find_column(definition, n).name for n in names))


def with_check(definition: TableDefinition, check: Check) -> TableDefinition:
    """Add a constraint (S45)."""
    if any(c.name.lower() == check.name.lower() for c in definition.checks):
        raise InvalidDefinitionError(
            f"The table already has a constraint '{check.name}'. Drop it with dropCheck(), or give this one another name.",
            constraint=check.name,
        )
    return attrs.evolve(definition, checks=(*definition.checks, check))


def without_check(definition: TableDefinition, name: str) -> TableDefinition:
    kept = tuple(c for c in definition.checks if c.name.lower() != str(name).lower())
    if len(kept) == len(definition.checks):
        known = [c.name for c in definition.checks]
        raise InvalidDefinitionError(
            f"The table has no constraint '{name}'.{did_you_mean(str(name), known)}", constraint=str(name)
        )
    return attrs.evolve(definition, checks=kept)


def evolve_for_source(definition: TableDefinition, source: Iterable[Field], new: Iterable[str]) -> TableDefinition:
    """Add the ``new`` columns of a source and struct fields, and widen types to hold its values (S44).

    ``source`` has the columns that are assigned by name. Keys, strings and columns of a constraint keep their types.
    """
    wanted = set(new)
    for field in source:
        own = next((f for f in definition.fields if f.name.lower() == field.name.lower()), None)
        if field.name in wanted:
            comment = {} if field.comment is None else {"comment": field.comment}
            definition = with_column(definition, Field(field.name, with_never_null(field.type, ()), metadata=comment))
        elif own is not None and not definition.role_of(own.name):
            kind, more = combined(own.type, with_never_null(field.type, ()))
            if kind != own.type and not (about(definition.checks, own.name) and _is_stored_otherwise(own.type, kind)):
                definition = _with_type(definition, own, kind, more)
    return definition


# Comparing ------------------------------------------------------------------------------------------------------------


def differences_of_columns(before: TableDefinition, after: TableDefinition) -> Iterator[str]:
    was, now = ({f.first_stored_as: f for f in d.fields} for d in (before, after))
    yield from (f"column {f.name} is dropped" for stored, f in was.items() if stored not in now)
    for stored, field in now.items():
        old = was.get(stored)
        if old is None:
            default = "" if field.default is None else f" DEFAULT {field.default}"
            yield f"column {field.name} {field.text}{default} is added"
            continue
        if old.name != field.name:
            yield f"column {old.name} is called {field.name}"
        if with_never_null(old.type, ()) != with_never_null(field.type, ()):
            yield f"column {field.name} is {field.text}, not {old.text}"
        was_never, is_never = _never_null(old), _never_null(field)
        yield from (f"column {dotted(field, p)} may be null" for p in was_never if p not in is_never)
        yield from (f"column {dotted(field, p)} must not be null" for p in is_never if p not in was_never)
        if old.default != field.default:
            yield f"the default of column {field.name} is {field.default or 'null'}"
        if old.comment != field.comment:
            yield f"the comment of column {field.name} is {field.comment!r}"


def _never_null(field: Field) -> tuple[Path, ...]:
    return (() if field.nullable else ((),)) + never_null(field.type)


def changed_meaning(before: TableDefinition, after: TableDefinition) -> dict[str, str]:
    """Return the renamed and dropped columns, each with a description (S35).

    New columns, wider types, properties and comments do not change what a name means.
    """
    now = {f.first_stored_as: f for f in after.fields}
    found = {}
    for field in before.fields:
        same = now.get(field.first_stored_as)
        if same is None:
            found[field.name] = f"column {field.name} has been dropped"
        elif same.name != field.name:
            found[field.name] = f"column {field.name} has become {same.name}"
    return found


# Several versions -----------------------------------------------------------------------------------------------------


def for_reading(definition: TableDefinition, others: Iterable[TableDefinition]) -> TableDefinition:
    """Return a definition that also reads files of other versions, including those that a restore left behind.

    A column that these versions store differently gets a type that holds all its values.
    """
    others = tuple(others)
    for field in definition.fields:
        theirs = [(f, d.layout_version) for d in others for f in d.fields if f.first_stored_as == field.first_stored_as]
        if not all(_reads(field, *their) for their in theirs):
            fields = (field, *(f for f, _ in theirs))
            kind = reduce(common, (f.in_files(f.type) for f in fields))
            definition = _replaced(definition, field, _read_as(field, kind, fields))
    return definition


def readings(
    definition: TableDefinition, others: Mapping[str, TableDefinition]
) -> list[tuple[TableDefinition, list[str]]]:
    """Return definitions that read files of other versions, each value with its stored type or a wider one.

    ``others`` has the definition of each group of files, by any name, newest first. Each reading comes with the names of the
    groups to read by it.
    """
    found: list[tuple[TableDefinition, list[str]]] = [(definition, [])]
    for name, other in others.items():
        names = next((names for reading, names in found if all(_reads(*pair) for pair in _same(reading, other))), None)
        if names is None:
            names = []
            found.append((_as_stored_by(definition, other), names))
        names.append(name)
    return found


def disagree(definition: TableDefinition, other: TableDefinition) -> bool:
    """Return True if two definitions store different types under one name, as independent writers may."""
    return any(
        name == theirs.stored_as and not agree(field.in_files(kind), theirs.in_files(theirs.type))
        for field, theirs, _ in _same(definition, other)
        for name, kind in ((field.stored_as, field.type), *((e.name, e.type) for e in field.previous))
    )


def _as_stored_by(definition: TableDefinition, other: TableDefinition) -> TableDefinition:
    """Return a definition that reads columns as another one stores them."""
    for field, theirs, layout in _same(definition, other):
        if not _reads(field, theirs, layout):
            kind = shaped(theirs.in_files(theirs.type), field.in_files(field.type))
            definition = _replaced(definition, field, _read_as(field, kind, [theirs]))
    return definition


def _same(definition: TableDefinition, other: TableDefinition) -> list[tuple[Field, Field, int]]:
    """Return the columns of a definition that another one has too, with its column and its layout."""
    theirs = {f.first_stored_as: f for f in other.fields}
    own = [f for f in definition.fields if f.first_stored_as in theirs]
    return [(f, theirs[f.first_stored_as], other.layout_version) for f in own]


def _reads(field: Field, theirs: Field, layout: int) -> bool:
    """Return True if a column is read correctly from files that another definition of this layout wrote."""
    earlier = (e for e in field.previous if e.name == theirs.stored_as and layout < e.until)
    return field.stored_as == theirs.stored_as or any(earlier)


def _read_as(field: Field, kind: Any, fields: Sequence[Field]) -> Field:
    """Return a column of a type (with the field names of files) that reads every form in which some definitions store it."""
    forms: dict[str, Any] = {}
    for f in fields:
        for name, stored in (*((e.name, e.type) for e in f.previous), (f.stored_as, f.type)):
            forms[name] = shaped(f.in_files(stored), forms.get(name, kind))
    earlier = tuple(FileColumn(name, with_names_of(stored, field.type), _ANY_LAYOUT) for name, stored in forms.items())
    named = with_names_of(kind, field.type)
    return attrs.evolve(field, type=named, physical_name=fields[0].stored_as, previous=earlier)


def restore_definition(old: TableDefinition, latest: TableDefinition) -> TableDefinition:
    """Return the definition of an old version, with the names in files reserved that newer versions have used since."""
    taken = set(old.retired_names) | {n for f in old.fields for n in _names(f)}
    since = (n for n in (*latest.retired_names, *(n for f in latest.fields for n in _names(f))) if n not in taken)
    layout = max(old.layout_version, latest.layout_version)
    return attrs.evolve(old, retired_names=(*old.retired_names, *since), layout_version=layout)


def _require_free(definition: TableDefinition, name: str) -> None:
    taken = next((f.name for f in definition.fields if f.name.lower() == name.lower()), None)
    if taken is not None:
        raise InvalidDefinitionError(f"The table already has a column '{taken}'.", column=taken)


def _free_name(definition: TableDefinition, name: str, taken: Iterable[str] = ()) -> str:
    """Return a name for files that no column has or has had, and that is not in ``taken``."""
    used = {HIDDEN_TOMBSTONE, *(n.lower() for n in (*definition.retired_names, *taken))}
    used |= {n.lower() for f in definition.fields for n in _names(f)}
    candidates = (name if n == 1 else f"{name}_{n}" for n in count(1))
    return next(c for c in candidates if c.lower() not in used)


def _names(field: Field) -> tuple[str, ...]:
    """Every name in files of a column, now and before, and of the fields added inside of it."""
    return (field.stored_as, *(e.name for e in field.previous), *(_inside(field, path) for path in field.added_fields))


def _replaced(definition: TableDefinition, old: Field, new: Field) -> TableDefinition:
    return attrs.evolve(definition, fields=tuple(new if f is old else f for f in definition.fields))

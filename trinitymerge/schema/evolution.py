"""How a definition changes: columns added, renamed, dropped or widened; constraints and defaults (S43-S46)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import attrs

from trinitymerge.errors import InvalidDefinitionError, did_you_mean
from trinitymerge.schema.constraints import Check, about, require_unchecked
from trinitymerge.schema.definition import HIDDEN_TOMBSTONE, TableDefinition
from trinitymerge.schema.field import Field, FileColumn, type_text
from trinitymerge.schema.nullability import dotted, never_null, values_inside, with_never_null
from trinitymerge.schema.types import INTEGRAL, Path, agree, combined, common, is_longer, leaves, shaped, with_names_of

_ALWAYS = sys.maxsize
"""A layout that no file reaches."""

# Changes --------------------------------------------------------------------------------------------------------------


def find_column(definition: TableDefinition, name: str) -> Field:
    """The column of a name, in any case.

    Raises:
        InvalidDefinitionError: there is none.
    """
    found = next((f for f in definition.fields if f.name.casefold() == str(name).casefold()), None)
    if found is None:
        raise InvalidDefinitionError(
            f"The table has no column '{name}'.{did_you_mean(str(name), definition.names)}", column=str(name)
        )
    return found


def with_column(definition: TableDefinition, field: Field) -> TableDefinition:
    """With one more column, at the end; rows that are there have null in it.

    Raises:
        InvalidDefinitionError: there is a column of that name.
    """
    _require_free(definition, field.name)
    if not field.nullable:
        raise InvalidDefinitionError(
            f"Column '{field.name}' cannot be NOT NULL: the rows that are there have no value for it. Leave NOT NULL out.",
            column=field.name,
        )
    stored = _free_name(definition, field.name)
    new = attrs.evolve(field, physical_name=None if stored == field.name else stored, added=True)
    return _with_fields(definition, [*definition.fields, new])


def rename_column(definition: TableDefinition, old: str, new: str) -> TableDefinition:
    """With another name for a column, whatever its role.

    Raises:
        InvalidDefinitionError: there is none, or one of the new name.
    """
    field = find_column(definition, old)
    require_unchecked(definition.checks, field.name, "renamed")
    if field.name.casefold() != new.casefold():
        _require_free(definition, new)
    stored = field.stored_as
    changed = attrs.evolve(field, name=new, physical_name=None if stored == new else stored)

    def key(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(new if n == field.name else n for n in names)

    return attrs.evolve(
        _replaced(definition, field, changed),
        primaryKey=key(definition.primaryKey),
        watermarkKey=key(definition.watermarkKey),
        tombstoneKey=key([definition.tombstoneKey])[0] if definition.tombstoneKey is not None else None,
    )


def without_column(definition: TableDefinition, name: str) -> TableDefinition:
    """Without a column. Its values stay in files, for past versions, until these are rewritten.

    Raises:
        InvalidDefinitionError: there is none, or it is a key.
    """
    field = find_column(definition, name)
    role = definition.role_of(field.name)
    if role:
        raise InvalidDefinitionError(
            f"Column '{field.name}' is {role}, and cannot be dropped: rows would not be told apart without it.",
            column=field.name,
        )
    require_unchecked(definition.checks, field.name, "dropped")
    if len(definition.fields) == 1:
        raise InvalidDefinitionError(f"Column '{field.name}' is the only one.", column=field.name)
    kept = [f for f in definition.fields if f is not field]
    return attrs.evolve(_with_fields(definition, kept), retired_names=(*definition.retired_names, *_names(field)))


def widened(definition: TableDefinition, name: str, kind: Any) -> TableDefinition:
    """With a wider type for a column; nothing is rewritten.

    Raises:
        InvalidDefinitionError: there is none, or the type is not wider, or what the log says of a key would not hold any more.
    """
    field = find_column(definition, name)
    if field.type == kind:
        return definition
    if is_longer(kind, field.type):
        return _replaced(definition, field, attrs.evolve(field, type=kind))
    wide, more = combined(field.type, kind)
    strict = [path for path in never_null(kind) if path not in never_null(wide)]
    if strict:
        why = "the rows that are there have no value for it" if strict[0] in more else "it may be null now"
        raise InvalidDefinitionError(
            f"Column '{dotted(field, strict[0])}' cannot be NOT NULL: {why}. Leave NOT NULL out; setNotNull() sets it.",
            column=field.name,
        )
    if with_never_null(wide, ()) != with_never_null(kind, ()) or field.type == wide:
        raise InvalidDefinitionError(
            f"Column '{field.name}' is {field.text}, and {type_text(kind)} is not wider: a value could be lost, or become another "
            "one. Add a column of that type, fill it, and drop this one.",
            column=field.name,
        )
    _check_key_can_be_wider(definition, field, wide)
    if _is_stored_otherwise(field.type, wide):
        require_unchecked(definition.checks, field.name, "widened")
    return _with_type(definition, field, wide, more)


def _check_key_can_be_wider(definition: TableDefinition, field: Field, kind: Any) -> None:
    role = definition.role_of(field.name)
    is_number = all(isinstance(k, str) and k in INTEGRAL for k in (kind, field.type))
    begins = definition.history and field.name in definition.watermarkKey
    if role and (not is_number or begins):
        why = "with history its" if begins else "only whole numbers can become wider there, its"
        raise InvalidDefinitionError(
            f"Column '{field.name}' is {role}: {why} values stand in the log and in archives as they are. "
            "Make a table with the wider column and insert the rows.",
            column=field.name,
        )


def _with_type(definition: TableDefinition, field: Field, kind: Any, more: Iterable[Path]) -> TableDefinition:
    """With a type that holds all values of the one before. Only where stored values differ from then on, they need a new name."""
    grown = reduce(partial(_grown, definition), more, field)
    earlier = tuple(attrs.evolve(e, type=shaped(e.type, kind)) for e in field.previous)
    before = shaped(field.type, kind)
    if not _is_stored_otherwise(field.type, kind):
        return _replaced(definition, field, attrs.evolve(grown, type=kind, previous=earlier))
    layout = definition.layout_version + 1
    wide = attrs.evolve(
        grown,
        type=kind,
        physical_name=_free_name(definition, field.name),
        previous=(*earlier, FileColumn(field.stored_as, before, layout)),
    )
    return attrs.evolve(_replaced(definition, field, wide), layout_version=layout)


def _grown(definition: TableDefinition, field: Field, path: Path) -> Field:
    """With a field more inside of a column, at a path; its name in files is one that no field there has or has had."""
    taken = (*_names(field), *(_inside(field, p) for p, _ in values_inside(field.type)))
    stored = path[-1] + _free_name(definition, _inside(field, path), taken).removeprefix(_inside(field, path))
    within = () if stored == path[-1] else ((path, stored),)
    return attrs.evolve(field, added_fields=(*field.added_fields, path), within=(*field.within, *within))


def _inside(field: Field, path: Path) -> str:
    """A field inside of a column, as it stands among the names in files that are taken."""
    return ".".join((field.first_stored_as, *field.path_in_files(path)))


def _is_stored_otherwise(narrow: Any, wide: Any) -> bool:
    """True if values become others in files: not where a struct has more fields, and nothing else has changed."""
    return list(leaves(shaped(narrow, wide))) != list(leaves(wide))


def drop_not_null(definition: TableDefinition, name: str) -> TableDefinition:
    """With a column that may hold nulls.

    Raises:
        InvalidDefinitionError: there is none, or it is part of the primary key.
    """
    field, path = _place(definition, name)
    if field.name in definition.primaryKey:
        raise InvalidDefinitionError(
            f"Column '{field.name}' is part of the primary key, which is never null.", column=field.name
        )
    return _replaced(definition, field, _allowing(field, path, True))


def with_comment(definition: TableDefinition, name: str, comment: str | None) -> TableDefinition:
    """With another comment on a column.

    Raises:
        InvalidDefinitionError: there is none.
    """
    field = find_column(definition, name)
    kept = {k: v for k, v in field.metadata.items() if k != "comment"}
    said = {} if comment is None else {"comment": str(comment)}
    return _replaced(definition, field, attrs.evolve(field, metadata={**kept, **said}))


def set_not_null(definition: TableDefinition, name: str) -> TableDefinition:
    """With a column that holds no nulls.

    Raises:
        InvalidDefinitionError: there is none.
    """
    field, path = _place(definition, name)
    return _replaced(definition, field, _allowing(field, path, False))


def _place(definition: TableDefinition, name: str) -> tuple[Field, Path]:
    """The column of a name, or the place inside of one, such as ``address.city``, ``tags.element`` or ``prices.value``.

    Raises:
        InvalidDefinitionError: there is none.
    """
    places = {f.name.casefold(): (f, Path()) for f in definition.fields}
    for field in definition.fields:
        for path, _ in values_inside(field.type):
            places.setdefault(dotted(field, path).casefold(), (field, path))
    return places.get(str(name).casefold()) or (find_column(definition, name), ())


def _allowing(field: Field, path: Path, nullable: bool) -> Field:
    if not path:
        return attrs.evolve(field, nullable=nullable)
    others = [p for p in never_null(field.type) if p != path]
    return attrs.evolve(field, type=with_never_null(field.type, others if nullable else [*others, path]))


def with_default(definition: TableDefinition, name: str, default: str | None) -> TableDefinition:
    """With another default for a column, or none; rows that are there stay as they are (S46).

    Raises:
        InvalidDefinitionError: there is no such column.
    """
    field = find_column(definition, name)
    return _replaced(definition, field, attrs.evolve(field, default=default))


def with_check(definition: TableDefinition, check: Check) -> TableDefinition:
    """With one more constraint (S45).

    Raises:
        InvalidDefinitionError: there is one of that name.
    """
    if any(c.name.casefold() == check.name.casefold() for c in definition.checks):
        raise InvalidDefinitionError(
            f"The table has a constraint '{check.name}' already. Drop it first, with dropCheck(), or give this one another name.",
            constraint=check.name,
        )
    return attrs.evolve(definition, checks=(*definition.checks, check))


def without_check(definition: TableDefinition, name: str) -> TableDefinition:
    """Without a constraint.

    Raises:
        InvalidDefinitionError: there is none of that name.
    """
    kept = tuple(c for c in definition.checks if c.name.casefold() != str(name).casefold())
    if len(kept) == len(definition.checks):
        known = [c.name for c in definition.checks]
        raise InvalidDefinitionError(
            f"The table has no constraint '{name}'.{did_you_mean(str(name), known)}", constraint=str(name)
        )
    return attrs.evolve(definition, checks=kept)


def evolve_for_source(definition: TableDefinition, source: Iterable[Field], new: Iterable[str]) -> TableDefinition:
    """A definition that has room for what a source brings (S44): columns that are new, wider types, more fields of structs.

    Keys stay as they are, and so does text, and the type of what a check is about.

    Args:
        definition: of the table.
        source: the columns that are taken by their names.
        new: the names of those among them that the table has not, and shall have.
    """
    wanted = set(new)
    for field in source:
        own = next((f for f in definition.fields if f.name.casefold() == field.name.casefold()), None)
        if field.name in wanted:
            kind = with_never_null(field.type, ())
            definition = with_column(definition, Field(field.name, kind, metadata=_comment_of(field)))
        elif own is not None and not definition.role_of(own.name):
            kind, more = combined(own.type, with_never_null(field.type, ()))
            if kind != own.type and not (about(definition.checks, own.name) and _is_stored_otherwise(own.type, kind)):
                definition = _with_type(definition, own, kind, more)
    return definition


def _comment_of(field: Field) -> Mapping[str, Any]:
    return {} if field.comment is None else {"comment": field.comment}


# Comparing ------------------------------------------------------------------------------------------------------------


def differences_of_columns(before: TableDefinition, after: TableDefinition) -> Iterator[str]:
    """What has become of a table's columns, in words."""
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


def differences_of_checks(before: TableDefinition, after: TableDefinition) -> Iterator[str]:
    """What has become of a table's constraints, in words."""
    yield from (f"constraint {check.name} is dropped" for check in before.checks if check not in after.checks)
    yield from (f"{check} is a constraint" for check in after.checks if check not in before.checks)


def changed_meaning(before: TableDefinition, after: TableDefinition) -> dict[str, str]:
    """The columns whose names do not mean what they meant, each with what has become of it (S35).

    Columns that have come, wider types, properties and comments take no meaning from what was there.
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
    """A definition by which files of other versions can be read as well, those that a restore has left behind among them.

    A column that these hold in forms of their own has a type that holds the values of all.
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
    """Definitions by which files of other versions can be read, each value with a type that it was stored with, or a wider one.

    Args:
        definition: whose columns are wanted.
        others: by which definition files were written, the newest first, by any name.

    Returns:
        Definitions, with the names of what to read by each.
    """
    found: list[tuple[TableDefinition, list[str]]] = [(definition, [])]
    for name, other in others.items():
        names = next((names for reading, names in found if _reads_all(reading, other)), None)
        if names is None:
            names = []
            found.append((_as_stored_by(definition, other), names))
        names.append(name)
    return found


def disagree(definition: TableDefinition, other: TableDefinition) -> bool:
    """True if two definitions have different types for one name in files, as writers give that know nothing of each other."""
    return any(
        name == theirs.stored_as and not agree(field.in_files(kind), theirs.in_files(theirs.type))
        for field, theirs in _same(definition, other)
        for name, kind in ((field.stored_as, field.type), *((e.name, e.type) for e in field.previous))
    )


def _as_stored_by(definition: TableDefinition, other: TableDefinition) -> TableDefinition:
    """A definition with columns in the forms that another one has for them."""
    for field, theirs in _same(definition, other):
        if not _reads(field, theirs, other.layout_version):
            kind = shaped(theirs.in_files(theirs.type), field.in_files(field.type))
            definition = _replaced(definition, field, _read_as(field, kind, [theirs]))
    return definition


def _same(definition: TableDefinition, other: TableDefinition) -> list[tuple[Field, Field]]:
    """The columns that two definitions have both."""
    theirs = {f.first_stored_as: f for f in other.fields}
    return [(f, theirs[f.first_stored_as]) for f in definition.fields if f.first_stored_as in theirs]


def _reads_all(definition: TableDefinition, other: TableDefinition) -> bool:
    return all(_reads(field, theirs, other.layout_version) for field, theirs in _same(definition, other))


def _reads(field: Field, theirs: Field, layout: int) -> bool:
    """True if a column is read right from files of another definition, which has this layout."""
    earlier = (e for e in field.previous if e.name == theirs.stored_as and layout < e.until)
    return field.stored_as == theirs.stored_as or any(earlier)


def _read_as(field: Field, kind: Any, fields: Sequence[Field]) -> Field:
    """A column with a type, named as in files, that is read from every form that some definitions have of it."""
    forms: dict[str, Any] = {}
    for f in fields:
        for name, stored in (*((e.name, e.type) for e in f.previous), (f.stored_as, f.type)):
            forms[name] = shaped(f.in_files(stored), forms.get(name, kind))
    earlier = tuple(FileColumn(name, with_names_of(stored, field.type), _ALWAYS) for name, stored in forms.items())
    return attrs.evolve(
        field, type=with_names_of(kind, field.type), physical_name=fields[0].stored_as, previous=earlier
    )


def restore_definition(old: TableDefinition, latest: TableDefinition) -> TableDefinition:
    """The definition of an old version on top of a newer one; physical names that were used since stay reserved."""
    taken = set(old.retired_names) | {n for f in old.fields for n in _names(f)}
    since = (n for n in (*latest.retired_names, *(n for f in latest.fields for n in _names(f))) if n not in taken)
    return attrs.evolve(
        old, retired_names=(*old.retired_names, *since), layout_version=max(old.layout_version, latest.layout_version)
    )


# Parts ----------------------------------------------------------------------------------------------------------------


def _require_free(definition: TableDefinition, name: str) -> None:
    taken = next((f.name for f in definition.fields if f.name.casefold() == name.casefold()), None)
    if taken is not None:
        raise InvalidDefinitionError(f"The table has a column '{taken}' already.", column=taken)


def _free_name(definition: TableDefinition, name: str, taken: Iterable[str] = ()) -> str:
    """A name for files that no column has or has had, and that is not taken otherwise."""
    used = {HIDDEN_TOMBSTONE, *(n.casefold() for n in (*definition.retired_names, *taken))}
    used |= {n.casefold() for f in definition.fields for n in _names(f)}
    found, n = name, 1
    while found.casefold() in used:
        n += 1
        found = f"{name}_{n}"
    return found


def _names(field: Field) -> tuple[str, ...]:
    """What files call a column, or have called it, and fields that came to be inside of it."""
    return (field.stored_as, *(e.name for e in field.previous), *(_inside(field, path) for path in field.added_fields))


def _replaced(definition: TableDefinition, old: Field, new: Field) -> TableDefinition:
    return _with_fields(definition, [new if f is old else f for f in definition.fields])


def _with_fields(definition: TableDefinition, fields: Iterable[Field]) -> TableDefinition:
    return attrs.evolve(definition, fields=tuple(fields))

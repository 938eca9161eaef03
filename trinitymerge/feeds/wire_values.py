"""Values of change feeds: from the text of a message to the type of a column.

The column decides. A value that its type cannot hold exactly becomes null, and the feed rejects its message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from pyspark.sql import types as T

from trinitymerge.errors import InvalidMergeError
from trinitymerge.feeds.json_text import TAG, elements_of, entries_of, is_bare, text_of
from trinitymerge.feeds.total_sql import (
    date_of_days,
    let,
    local_of_micros,
    map_of,
    micros_of,
    moment_of_micros,
    renamed,
    within_years,
)
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E
from trinitymerge.spark.casts import cast_policy, cast_to_column
from trinitymerge.spark.sql_text import Sql

DECIMALS = ("text", "base64")
BINARIES = ("base64", "base64url", "hex")
UNITS = {"ms": 1_000, "us": 1, "ns": None}
"""Units of timestamps, and how many microseconds they have; None for a part of one."""

_INTEGER = r"^[+-]?[0-9]+$"
_WITH_ZEROS = r"^[+-]?[0-9]+[.]0+$"
_WITH_EXPONENT = r"^[+-]?[0-9]+([.][0-9]*)?[eE][+-]?[0-9]{1,9}$"
_NUMBER = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,9})?$"
_NO_NUMBER = r"^([+-]?(Infinity|inf)|NaN)$"
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_BASE64_URL = r"^[A-Za-z0-9_-]+={0,2}$"
_HEX = r"^([0-9A-Fa-f]{2})*$"
_ZONED = (
    r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}[ T][0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}([.][0-9]{1,6}0*)?)? ?"
    r"(Z|[+-][0-9]{2}(:?[0-9]{2}){0,2}|[A-Za-z][A-Za-z0-9_/+-]*)$"
)
_DAY = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_DATE = rf"^{_DAY}(Z|[ T]00:00(:00([.]0+)?)?Z?)?$"
_LOCAL = rf"^{_DAY}([ T][0-9]{{1,2}}:[0-9]{{1,2}}(:[0-9]{{1,2}}([.][0-9]{{1,6}}0*)?)?)?$"
_VARIABLE_SCALE = E.text_literal(rf'^[{{]"scale":"{TAG}(-?[0-9]{{1,9}})","value":"([A-Za-z0-9+/=]*+)"[}}]$')
"""The JSON of a decimal number with its scale, as Debezium writes those of a column without one."""

BARE = E.text_literal("bare")
"""The meaning of a value that is written as a JSON number or boolean."""

_MAX_SCALE = 100
"""No number of a database has more digits behind the point, or zeros before it."""


@attrs.frozen
class WireForms:
    """How the messages of a feed write values.

    Attributes:
        decimals: ``"text"``, or ``"base64"`` for the big-endian bytes of the unscaled number.
        binary: ``"base64"``, ``"base64url"`` or ``"hex"``.
        timestamps: the unit of timestamps that are numbers: ``"ms"``, ``"us"`` or ``"ns"``, for all columns or by column. Without
            it, only a message that says the unit itself is read.
        zone: the time zone of timestamps without a zone.
        arrays: ``"json"`` or ``"postgres"`` (``{a,NULL,"b c"}``).
        are_marked: values are as ``json_text.py`` writes them. Those of typed columns are not.
    """

    decimals: str = "text"
    binary: str = "base64"
    timestamps: str | Mapping[str, str] | None = None
    zone: str = "UTC"
    arrays: str = "json"
    are_marked: bool = True

    def __attrs_post_init__(self) -> None:
        units = [self.timestamps] if isinstance(self.timestamps, str) else [*(self.timestamps or {}).values()]
        given = [("decimals", self.decimals), ("binary", self.binary), *(("timestamps", unit) for unit in units)]
        for name, value in given:
            known = {"decimals": DECIMALS, "binary": BINARIES, "timestamps": (*UNITS,)}[name]
            if value not in known:
                raise InvalidMergeError(f"{name} takes {', '.join(map(repr, known))}, got {value!r}.")

    def unit(self, column: str) -> str | None:
        if isinstance(self.timestamps, Mapping):
            return next((u for name, u in self.timestamps.items() if name.casefold() == column.casefold()), None)
        return self.timestamps


def read_value(value: Sql, meaning: Sql, kind: T.DataType, forms: WireForms) -> tuple[Sql, Sql]:
    """Return the text of a value that ``json_text.py`` has written, and how it is written.

    A message itself may say ``decimal:2``, ``days``, ``ms``, ``us``, ``ns``, ``time_ms``, ``time_us`` or ``time_ns``: the meaning.
    """
    if not forms.are_marked:
        return value, meaning
    text = text_of(value)
    is_text = isinstance(kind, T.StringType) and forms.decimals != "base64"
    if is_text or not isinstance(kind, (T.StringType, T.DecimalType, T.BinaryType)):
        return text, meaning
    said = [(E.all_of([is_bare(value), E.or_else(Sql(f"NOT startswith({meaning}, 'time')"), E.TRUE)]), BARE)]
    if forms.decimals == "base64" and not isinstance(kind, T.BinaryType):
        is_variable = Sql(f"startswith({value}, '{{') AND {value} RLIKE {_VARIABLE_SCALE}")
        scale, digits = (Sql(f"regexp_extract({value}, {_VARIABLE_SCALE}, {group})") for group in (1, 2))
        text = E.case([(is_variable, digits)], text)
        said.append((is_variable, Sql(f"concat('decimal:', {scale})")))
    return text, E.case(said, meaning)


def value_in_column(text: Sql, meaning: Sql, field: Field, forms: WireForms, exact: bool = False) -> Sql:
    """Return a message's value (:func:`read_value`) as the column stores it; null if it does not fit."""
    return stored(read_as(text, meaning, field, forms, exact), field)


def read_as(text: Sql, meaning: Sql, field: Field, forms: WireForms, exact: bool) -> Sql:
    """Return a message's value in the type of a column; null if it does not fit (:func:`value_in_column`)."""
    return _Reader(forms, forms.unit(field.name), exact).read(text, meaning, E.physical_type(field))


def stored(value: Sql, field: Field) -> Sql:
    """Return a value of the type of a column as the column stores it; null if it does not fit."""
    return cast_to_column(value, cast_policy(E.physical_type(field), field), field)


def misfit_reason(text: Sql, meaning: Sql, field: Field, forms: WireForms) -> Sql:
    """Return the reason for which a value does not fit: ``unit:`` and the column for a timestamp without a unit, or ``type:``."""
    of_type = E.text_literal(f"type:{field.name}")
    is_moment = isinstance(E.physical_type(field), (T.TimestampType, T.TimestampNTZType))
    if not is_moment or forms.unit(field.name) is not None:
        return of_type
    lacks_unit = E.all_of([E.is_null(meaning), _matches(text, _INTEGER)])
    return E.case([(lacks_unit, E.text_literal(f"unit:{field.name}"))], of_type)


def does_not_fit(text: Sql, value: Sql) -> Sql:
    """Return SQL that is true if a message has a value that the column cannot hold."""
    return E.all_of([E.is_not_null(text), E.is_null(value)])


def _matches(text: Sql, pattern: str) -> Sql:
    return Sql(f"{text} RLIKE {E.text_literal(pattern)}")


def _tried(text: Sql, kind: T.DataType) -> Sql:
    return Sql(f"try_cast({text} AS {E.sql_type(kind)})")


def _clock(text: Sql, unit: Sql) -> Sql:
    """Return a number as `HH:mm:ss.ffffff`, or with nine digits. There may be more hours than a day has, or less than none."""
    per = "CASE u WHEN 'ms' THEN 1000000L WHEN 'us' THEN 1000L WHEN 'ns' THEN 1L END"
    nanos = Sql(f"transform(array({unit}), u -> try_multiply(try_cast({text} AS BIGINT), {per}))[0]")

    def written(n: Sql) -> Sql:
        size = f"abs({n})"
        parts = [f"{size} div 3600000000000", *(f"{size} div {per} % 60" for per in (60_000_000_000, 1_000_000_000))]
        clock = f"format_string('%02d:%02d:%02d.%06d', {', '.join(parts)}, {size} div 1000 % 1000000)"
        more = f"if({size} % 1000 = 0, '', format_string('%03d', {size} % 1000))"
        return E.case([(Sql(f"{n} > -9223372036854775807"), Sql(f"concat(if({n} < 0, '-', ''), {clock}, {more})"))])

    return let(nanos, written, Sql("n"))


@attrs.frozen
class _Reader:
    forms: WireForms
    unit: str | None
    exact: bool

    def read(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        readers: list[tuple[type[T.DataType], Callable[..., Sql]]] = [
            *[(T.StringType, self._string), (T.BooleanType, self._plain), (T.DecimalType, self._decimal)],
            *[(T.IntegralType, self._integer), (T.FractionalType, self._float), (T.DateType, self._date)],
            *[(T.TimestampNTZType, self._timestamp_ntz), (T.TimestampType, self._timestamp)],
            *[(T.BinaryType, self._binary), (T.ArrayType, self._array), (T.MapType, self._map)],
            (T.StructType, self._struct),
        ]
        if target.typeName() == "variant":
            return Sql(f"try_parse_json({text})")
        reader = next((read for kind, read in readers if isinstance(target, kind)), self._plain)
        return reader(text, meaning, target)

    def _plain(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        return _tried(text, target)

    def _string(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        """Return the text. A time of day, or MySQL's TIME, that is a number becomes `HH:mm:ss.ffffff`, as `-838:59:59.000000`."""
        is_time = E.all_of([Sql(f"startswith({meaning}, 'time')"), _matches(text, _INTEGER)])
        said = [(is_time, _clock(text, Sql(f"substring({meaning}, 6)")))]
        if self.forms.decimals == "base64":
            said.append((_is_decimal(meaning), _decimal_of(text, meaning)))
        return E.case([(E.is_null(meaning), text), *said], text)

    def _integer(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        ways = [
            (_matches(text, _INTEGER), _tried(text, target)),
            (_matches(text, _WITH_ZEROS), _tried(Sql(f"substring_index({text}, '.', 1)"), target)),
            (_matches(text, _WITH_EXPONENT), _tried(_exact_decimal(text, T.DecimalType(20, 0)), target)),
        ]
        return E.case(ways)

    def _float(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        """Return a DOUBLE or FLOAT; a suffix of Java's (`1d`) does not fit."""
        return let(Sql(f"trim(BOTH '\"' FROM {text})"), lambda v: _nearest(v, target))

    def _decimal(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        assert isinstance(target, T.DecimalType)
        shown = _of_twos_complement(text, E.number(target.scale)) if self.forms.decimals == "base64" else text
        shown = E.case([(E.equals(meaning, BARE), text), (_is_decimal(meaning), _decimal_of(text, meaning))], shown)
        return let(shown, lambda number: _exact_decimal(number, target))

    def _date(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        day = Sql(f"try_cast(regexp_extract({text}, '^{_DAY}', 0) AS DATE)")
        ways = [(_matches(text, "^-?[0-9]{1,7}$"), date_of_days(text)), (_matches(text, _DATE), day)]
        return E.case(ways, E.cast(E.NULL, target))

    def _micros(self, text: Sql, unit: Sql) -> Sql:
        """Return the microseconds of a number; null if the unit is not known, or it is part of one, or after the year 9999."""
        n = f"try_cast({text} AS BIGINT)"
        of_nanos = (Sql(f"{unit} = 'ns' AND {n} % 1000 = 0"), micros_of(Sql(f"{n} div 1000"), "us"))
        return E.case([*((Sql(f"{unit} = '{u}'"), micros_of(text, u)) for u in ("ms", "us")), of_nanos])

    def _unit(self, meaning: Sql) -> Sql:
        return E.or_else(meaning, E.NULL if self.unit is None else E.text_literal(self.unit))

    def _timestamp_ntz(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        """Return the time on the wall in the feed's zone."""
        moment = within_years(Sql(f"try_cast({text} AS TIMESTAMP_LTZ)"))
        local = Sql(f"unix_micros(from_utc_timestamp({moment}, {E.text_literal(self.forms.zone)}))")
        ways = [
            (_matches(text, _INTEGER), local_of_micros(self._micros(text, self._unit(meaning)))),
            (_matches(text, _ZONED), local_of_micros(micros_of(local, "us"))),
            (_matches(text, _LOCAL), _tried(text, target)),
        ]
        return E.case(ways, E.cast(E.NULL, target))

    def _timestamp(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        """Return the moment. Spark takes a time of day alone as one of today."""
        zone = E.text_literal(self.forms.zone)
        micros = self._micros(text, self._unit(meaning))
        local = Sql(f"try_cast(concat(CAST(try_cast({text} AS TIMESTAMP_NTZ) AS STRING), 'Z') AS TIMESTAMP_LTZ)")
        ways = [
            (_matches(text, _INTEGER), Sql(f"to_utc_timestamp({moment_of_micros(micros)}, {zone})")),
            (_matches(text, _ZONED), _tried(text, target)),
            (_matches(text, _LOCAL), Sql(f"to_utc_timestamp({local}, {zone})")),
        ]
        return let(E.case(ways, E.cast(E.NULL, target)), within_years)

    def _binary(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        return E.case([(E.or_else(E.not_(E.equals(meaning, BARE)), E.TRUE), self._bytes(text))])

    def _bytes(self, text: Sql) -> Sql:
        if self.forms.binary == "hex":
            bare = Sql(f"regexp_replace({text}, '^[\\\\\\\\]x', '')")
            return E.case([(_matches(bare, _HEX), Sql(f"unhex({bare})"))])
        if self.forms.binary == "base64url":
            plain = Sql(f"translate(rtrim('=', {text}), '-_', '+/')")
            padded = Sql(f"rpad({plain}, CAST(ceil(length({plain}) / 4.0) * 4 AS INT), '=')")
            is_whole = Sql(f"length({plain}) % 4 <> 1")
            return E.case([(E.all_of([_matches(text, _BASE64_URL), is_whole]), Sql(f"unbase64({padded})"))])
        return E.case([(_matches(text, _BASE64), Sql(f"unbase64({text})"))])

    def _array(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        assert isinstance(target, T.ArrayType)
        found = _postgres_array(text) if self.forms.arrays == "postgres" else elements_of(text)

        def of_parts(parts: Sql) -> Sql:
            return E.case([(E.not_(_misfits(parts)), E.cast(Sql(f"{parts}.value"), target))])

        return let(self._parts(found, target.elementType, meaning), of_parts, Sql("parts"))

    def _map(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        assert isinstance(target, T.MapType)
        kinds = {"names": (Sql("map_keys(e)"), target.keyType), "parts": (Sql("map_values(e)"), target.valueType)}
        read = ", ".join(f"{E.text_literal(of)}, {self._parts(found, kind)}" for of, (found, kind) in kinds.items())

        def of_entries(entries: Sql) -> Sql:
            wrong = E.any_of(_misfits(Sql(f"{entries}.{of}")) for of in kinds)
            names, values = (Sql(f"{entries}.{of}.value") for of in kinds)
            return E.case([(E.not_(wrong), E.cast(map_of(names, values), target))])

        both = let(entries_of(text), lambda e: E.case([(E.is_not_null(e), Sql(f"named_struct({read})"))]), Sql("e"))
        return let(both, of_entries, Sql("both"))

    def _struct(self, text: Sql, meaning: Sql, target: T.DataType) -> Sql:
        """Return a struct of a JSON object; fields that it lacks are null. A field that comes twice does not fit."""
        assert isinstance(target, T.StructType)

        def of_entries(entries: Sql) -> Sql:
            parts = []
            for f in target.fields:
                name = E.text_literal(f.name if self.exact else f.name.lower())
                part = self._parts(Sql(f"array({entries}[{name}])"), f.dataType)
                parts.append(f"{E.text_literal(f.name)}, {part}[0]")
            read = Sql(f"named_struct({', '.join(parts)})")
            return E.case([(E.is_not_null(entries), let(read, of_fields, Sql("parts")))])

        def of_fields(parts: Sql) -> Sql:
            fields = {f.name: E.field_of(parts, f.name) for f in target.fields}
            misfits = E.any_of(does_not_fit(Sql(f"{of}.text"), Sql(f"{of}.value")) for of in fields.values())
            struct = ", ".join(f"{E.text_literal(name)}, {of}.value" for name, of in fields.items())
            return E.case([(E.not_(misfits), E.cast(Sql(f"named_struct({struct})"), target))])

        key = Sql("k" if self.exact else "lower(k)")
        named = let(entries_of(text), lambda found: renamed(found, key), Sql("found"))
        return let(named, of_entries, Sql("entries"))

    def _parts(self, values: Sql, kind: T.DataType, meaning: Sql = E.NULL) -> Sql:
        """Return the parts of nested values: structs of the text of each, and of its value in a type."""
        forms = attrs.evolve(self.forms, are_marked=True)
        text, said = read_value(Sql("raw"), E.cast(meaning, T.StringType()), kind, forms)
        read = f"transform({values}, raw -> named_struct('text', {text}, 'meaning', {said}))"
        value = self.read(Sql("x.text"), Sql("x.meaning"), kind)
        return Sql(f"transform({read}, x -> named_struct('text', x.text, 'value', {value}))")


def _misfits(parts: Sql) -> Sql:
    """Return SQL that is true if a part has a value that its type cannot hold."""
    return Sql(f"exists({parts}, x -> {does_not_fit(Sql('x.text'), Sql('x.value'))})")


def _is_decimal(meaning: Sql) -> Sql:
    return Sql(f"startswith({meaning}, 'decimal:')")


def _decimal_of(text: Sql, meaning: Sql) -> Sql:
    """Return the text of a decimal number whose scale the message says; null if it is none."""
    return _of_twos_complement(text, Sql(f"try_cast(substring({meaning}, 9) AS INT)"))


def _nearest(text: Sql, target: T.DataType) -> Sql:
    """Return a DOUBLE or FLOAT; null for a whole number that is not one, and for one beyond the largest or the smallest."""
    value = _tried(text, target)
    double = Sql(f"CAST({value} AS DOUBLE)")
    is_zero = _matches(text, "^[+-]?[0.]*([eE].*)?$")
    is_within = Sql(f"abs({double}) < CAST('Infinity' AS DOUBLE) AND ({double} <> 0 OR {is_zero})")
    of_long = f"try_cast({double} AS BIGINT) = try_cast({text} AS BIGINT) AND abs({double}) < 9.2e18D"
    of_digits = f"try_cast({double} AS DECIMAL(38, 0)) = try_cast({text} AS DECIMAL(38, 0))"
    are_equal = [E.or_else(Sql(equal), E.FALSE) for equal in (of_long, of_digits)]
    is_exact = E.any_of([E.not_(_matches(text, _INTEGER)), *are_equal])
    is_nearest = E.all_of([_matches(text, _NUMBER), is_within, is_exact])
    return E.case([(_matches(text, _NO_NUMBER), value), (is_nearest, value)], E.cast(E.NULL, target))


def _exact_decimal(text: Sql, target: T.DecimalType) -> Sql:
    """Return a number, or null if the column would round it."""
    exponent = Sql(f"coalesce(try_cast(nullif(regexp_extract({text}, '[eE]([+-]?[0-9]+)$', 1), '') AS INT), 0)")
    mantissa = Sql(f"regexp_extract({text}, '^[+-]?([0-9.]+)', 1)")
    # The last digit that is not a zero, counted from the point.
    digits = Sql(f"rtrim('0', replace({mantissa}, '.', ''))")
    point = Sql(f"length(substring_index({mantissa}, '.', 1))")
    fits = Sql(f"({digits} = '' OR length({digits}) - {point} - {exponent} <= {target.scale})")
    return E.case([(E.all_of([_matches(text, _NUMBER), fits]), _tried(text, target))], E.cast(E.NULL, target))


def _of_twos_complement(text: Sql, scale: Sql) -> Sql:
    """Return the decimal number of big-endian bytes in base64, as text (Kafka Connect's Decimal); null if they are none."""

    def unscaled(digits: Sql) -> Sql:
        sign = E.case([(Sql(f"{digits} >= '8'"), Sql("'F'"))], Sql("'0'"))
        return let(Sql(f"lpad({digits}, 32, {sign})"), lambda padded: number_of(digits, padded), Sql("padded"))

    def number_of(digits: Sql, padded: Sql) -> Sql:
        high = Sql(f"CAST(conv(substring({padded}, 1, 16), 16, -10) AS DECIMAL(19, 0))")
        low = Sql(f"CAST(conv(substring({padded}, 17, 16), 16, 10) AS DECIMAL(20, 0))")
        # Of a negative number the size: its high part times 2^64 alone may have 39 digits.
        size = _sum_of_words(Sql(f"(-1 - {high})"), Sql(f"(18446744073709551616BD - {low})"))
        long = E.case([(Sql(f"{high} < 0"), Sql(f"concat('-', {size})"))], _sum_of_words(high, low))
        short = Sql(f"conv(substring({padded}, 17, 16), 16, -10)")
        return E.case([(Sql(f"length({digits}) <= 16"), short)], long)

    number = let(Sql(f"hex(unbase64({text}))"), unscaled, Sql("digits"))
    is_scale = Sql(f"{scale} BETWEEN -{_MAX_SCALE} AND {_MAX_SCALE}")
    is_read = E.all_of([_matches(text, _BASE64), Sql(f"length({text}) BETWEEN 1 AND 24"), is_scale])
    return E.case([(is_read, let(number, lambda n: _with_point(n, scale), Sql("unscaled")))])


def _sum_of_words(high: Sql, low: Sql) -> Sql:
    """Return the text of two words of 64 bits as one integer; null if it has more than 38 digits."""
    product = Sql(f"try_multiply(CAST({high} AS DECIMAL(19, 0)), 18446744073709551616BD)")
    return Sql(f"CAST(CAST(try_add({product}, {low}) AS DECIMAL(38, 0)) AS STRING)")


def _with_point(unscaled: Sql, scale: Sql) -> Sql:
    """Return the text of an integer, divided by a power of ten."""
    digits = Sql(f"ltrim('-', {unscaled})")
    padded = Sql(f"lpad({digits}, greatest(length({digits}), {scale} + 1), '0')")
    sign = E.case([(Sql(f"startswith({unscaled}, '-')"), Sql("'-'"))], Sql("''"))
    fraction = E.case([(Sql(f"{scale} > 0"), Sql(f"concat('.', right({padded}, {scale}))"))], Sql("''"))
    whole = Sql(f"left({padded}, length({padded}) - {scale})")
    shown = (Sql(f"{scale} >= 0"), Sql(f"concat({sign}, {whole}, {fraction})"))
    zero = (Sql(f"{unscaled} = '0'"), Sql("'0'"))
    return E.case([shown, zero], Sql(f"concat({unscaled}, repeat('0', -({scale})))"))


def _postgres_array(text: Sql) -> Sql:
    """Return the elements of PostgreSQL's text of an array of one dimension, as an array of text."""
    quoted = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
    element = quoted + '|[^,{}"]+'
    found = Sql(f"regexp_extract_all(substr({text}, 2, length({text}) - 2), {E.text_literal(element)}, 0)")
    unquoted = Sql(f"regexp_replace(substr(x, 2, length(x) - 2), {E.text_literal(chr(92) * 2 + '(.)')}, '$1')")
    nothing = (Sql("upper(x) = 'NULL'"), Sql("CAST(NULL AS STRING)"))
    value = E.case([(Sql("startswith(x, '\"')"), unquoted), nothing], Sql("x"))
    is_array = _matches(text, rf"^[{{](?:[^{{}}\"]++|{quoted})*+[}}]$")
    return E.case([(is_array, Sql(f"transform({found}, x -> {value})"))])

"""A wire format as a declaration: how the messages of a source are read (F1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs
from pyspark.sql import DataFrame

from trinitymerge.errors import InvalidMergeError
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.json_text import parsed_json
from trinitymerge.feeds.wire import Decoder, FeedOptions, messages_of
from trinitymerge.feeds.wire_values import WireForms
from trinitymerge.spark.sql_text import Sql

_FORMS = frozenset(field.name for field in attrs.fields(WireForms))


@attrs.frozen(eq=False)
class Format:
    """A wire format. A function of the format calls :meth:`feed` with its arguments.

    Attributes:
        name: of the format, and of its function.
        decode: a function of parsed messages that returns the columns of ``wire.WIRE``, as ``wire.as_wire`` does.
        message: the fields of a JSON message as DDL. ``decode`` gets them as a struct ``m``, beside ``is_corrupt``. Without it,
            ``decode`` gets the DataFrame itself.
        text: the JSON of a message, as SQL over ``value``; None if it is ``value``.
        forms: how messages write values. Arguments of the same names replace these.
        allowed: the values of arguments; others may have any. A mapping says what each value is in ``forms``.

    Example:
        >>> from trinitymerge.feeds.wire import as_wire, event, reject
        >>> def decode(rows, options):
        ...     kinds = [("is_corrupt", reject("unparsable")), ("m.gone = 'true'", event("delete")), ("true", event("upsert"))]
        ...     return as_wire(rows, kinds, {"seq": "m.at", "row": "m.row", "key": "m.row"})
        >>> acme = Format("acme", decode, "at: STRING, gone: STRING, row: MAP<STRING, STRING>")
        >>> messages = spark.createDataFrame([('{"at":"7","row":{"id":1}}',)], "value STRING")
        >>> acme.feed(messages).tables().select("events").collect()
        [Row(events=1)]
    """

    name: str
    decode: Decoder
    message: str | None = None
    text: Sql | None = None
    forms: WireForms = attrs.field(factory=WireForms)
    allowed: Mapping[str, Collection[Any]] = attrs.field(factory=dict)

    def feed(
        self,
        df: DataFrame,
        table: str | None = None,
        *,
        epoch: int = 1,
        sequence: str = "log",
        rename: Mapping[str, str] | None = None,
        **own: Any,
    ) -> Feed:
        """Return the feed of a DataFrame of messages; ``own`` are the arguments that not all formats take.

        Raises:
            InvalidMergeError: an argument has another value.
        """
        call, forms = f"feeds.{self.name}()", {name: value for name, value in own.items() if name in _FORMS}
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= 9999:
            raise InvalidMergeError(f"{call}: epoch takes a number from 0 to 9999, got {epoch!r}.")
        if rename is not None and not isinstance(rename, Mapping):
            raise InvalidMergeError(f"{call}: rename takes a mapping of column names, got {rename!r}.")
        given = {**own, "sequence": sequence}
        for name, known in {"sequence": ("log", "arrival"), **self.allowed}.items():
            value = given.get(name)
            if value not in known:
                raise InvalidMergeError(f"{call}: {name} takes {' or '.join(map(repr, known))}, got {value!r}.")
            if isinstance(known, Mapping):
                forms[name] = known[value]
        written, names = attrs.evolve(self.forms, **forms), dict(rename or {})
        options = FeedOptions(call, epoch, sequence, names, written, {**own, "table": table})
        return Feed(df, self.name, table, options, self._decoded)

    def _decoded(self, frame: DataFrame, options: FeedOptions) -> DataFrame:
        if self.message is None:
            return self.decode(frame, options)
        return self.decode(parsed_json(messages_of(frame, options), self.message, self.text), options)

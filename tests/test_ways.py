"""The ways through the code that docs/architecture.md and docs/internals show are those that calls take.

A way is a tree: below a function stand those that it calls, itself or through others, in the order of their first calls.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import attrs
from tables import fill, frame, new_table
from test_segments import row, segmented

from trinitymerge import TrinityTable

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "trinitymerge"
PAGE = "".join(
    (ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("architecture.md", "internals/compaction.md")
)

LINE = re.compile(r"^( *)([\w.]+)(?: +([\w/]+\.py))?(?:  .*)?$")


@attrs.define(eq=False)
class Call:
    """A function, and what it calls.

    Attributes:
        file: below the package.
        name: with its class, as ``Class.function``.
        below: in order.
    """

    file: str
    name: str
    below: list[Call] = attrs.field(factory=list)

    def __str__(self) -> str:
        return f"{self.name} ({self.file})"

    @property
    def within(self) -> Iterator[Call]:
        """All calls below this one, in the order in which they begin."""
        for call in self.below:
            yield call
            yield from call.within


def shown(heading: str) -> Call:
    """The tree below a heading of the page."""
    block = re.search(
        rf"^##+ {re.escape(heading)}\n((?!^#).)*?^```\n(?P<tree>.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    assert block, f"no way below '{heading}'"
    above, file = [Call("", "")], ""
    for line in block["tree"].splitlines():
        match = LINE.match(line)
        assert match, f"neither a function nor its file: {line}"
        depth, file = len(match[1]) // 2, match[3] or file
        assert depth < len(above), f"stands below nothing: {line}"
        del above[depth + 1 :]
        above[-1].below.append(Call(file, match[2]))
        above.append(above[-1].below[-1])
    return above[0]


def taken(what: Callable[[], object]) -> Call:
    """The calls that something makes within the package, in this thread."""
    root = Call("", "")
    open_calls: dict[int, Call] = {}

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and (file := _file_of(frame.f_code)) is not None:
            above: FrameType | None = frame.f_back
            while above is not None and id(above) not in open_calls:
                above = above.f_back
            call = Call(file, _name_of(frame))
            (root if above is None else open_calls[id(above)]).below.append(call)
            open_calls[id(frame)] = call
        elif event == "return":
            open_calls.pop(id(frame), None)

    sys.setprofile(profile)
    try:
        what()
    finally:
        sys.setprofile(None)
    return root


def _file_of(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def _name_of(frame: FrameType) -> str:
    """The name of a called function, with the class that defines it: of its first argument, ``self`` or ``cls``."""
    code = frame.f_code
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    for kind in (first if isinstance(first, type) else type(first)).__mro__:
        found = vars(kind).get(code.co_name)
        found = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "__func__", None) or found)
        if getattr(found, "__code__", None) is code:
            return f"{kind.__name__}.{code.co_name}"
    return code.co_name


def differences(way: Call, real: Call) -> list[str]:
    """What of a way is not taken within a call."""
    found, calls = [], iter(real.within)
    for step in way.below:
        there = next((c for c in calls if (c.file, c.name) == (step.file, step.name)), None)
        if there is None:
            return [*found, f"{real} does not come to {step}, or not in this order"]
        found += differences(step, there)
    return found


def check(heading: str, what: Callable[[], object]) -> None:
    """Fails unless something takes the way below a heading."""
    assert differences(shown(heading), taken(what)) == []


def test_from_a_merge_to_its_batch(spark, tmp_path):
    table = new_table(spark, tmp_path, "id INT, n INT, ts INT", watermarkKey="ts")
    fill(table, spark, [(i, 0, 1) for i in range(10)])
    source = frame(spark, "id INT, n INT, ts INT", (1, 1, 2), (11, 1, 2))

    def merge() -> None:
        chain = table.alias("t").merge(source.alias("s"), "t.id = s.id")
        add = {"n": "t.n + s.n", "ts": "s.ts"}
        result = chain.whenMatched().updateExpr(add).whenNotMatched().insertAll().execute()
        assert result.strategy == "keyed lookup"

    check("From a merge to its batch", merge)


def test_from_a_batch_to_a_readers_row(spark, tmp_path):
    table = new_table(spark, tmp_path)
    fill(table, spark, [(i, 1, "a", False) for i in range(10)])
    reader = TrinityTable.forPath(spark, table.path)
    reader.toDF()
    fill(table, spark, [(1, 2, "b", False)])
    check("From a batch to a reader's row", reader.toDF)


def test_from_batches_to_a_new_base(spark, tmp_path):
    table = segmented(spark, tmp_path)
    fill(table, spark, [row(i, 2) for i in range(20)])

    def compact() -> None:
        assert table.compact().segmentsKept

    check("From batches to a new base", compact)


def test_a_step_that_is_not_taken_is_told():
    way = Call("", "", [Call("a.py", "A.f", [Call("b.py", "g")]), Call("a.py", "h")])
    real = Call("", "", [Call("a.py", "A.f", [Call("b.py", "x", [Call("b.py", "g")])]), Call("a.py", "h")])
    assert differences(way, real) == []
    assert differences(way, Call("", "", [*reversed(real.below)])) == [
        " () does not come to h (a.py), or not in this order"
    ]
    assert differences(way, Call("", "", [Call("a.py", "A.f"), Call("a.py", "h")])) == [
        "A.f (a.py) does not come to g (b.py), or not in this order"
    ]
    assert differences(way, Call("", "", [Call("a.py", "B.f"), Call("a.py", "h")])) == [
        " () does not come to A.f (a.py), or not in this order"
    ]

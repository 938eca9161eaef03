"""Commands on a terminal: as the files in `tests/data/terminal` show them, at 80 and at 200 columns.

`python tests/commands/test_terminal.py` writes the files of the commands that need no Spark.
"""

from __future__ import annotations

import io
import json
import os
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest
from rich.cells import cell_len

from trinitymerge import Field, TableDefinition, TrinityTable
from trinitymerge.commands.app import run
from trinitymerge.fs.local import LocalFileSystem
from trinitymerge.log.actions import SetDefinition
from trinitymerge.log.log import CommitLog
from trinitymerge.log.model import Commit

DATA = Path(__file__).parents[1] / "data"
WIDTHS = (80, 200)
COMMANDS = {
    "history": ("history", "{}", "-n", "5"),
    "history-of-merges": ("history", "{}", "--operation", "upsert"),
    "batches": ("batches", "{}"),
    "show": ("show", "{}"),
    "health": ("health", "{}"),
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(*arguments: object, width: int, **environment: str) -> str:
    """The command's stdout on a terminal of a width."""
    out = Terminal()
    terminal = {"COLUMNS": str(width), "TERM": "xterm", **environment}
    with mock.patch.dict(os.environ, terminal), redirect_stdout(out), redirect_stderr(io.StringIO()):
        assert run([str(a) for a in arguments]) in (0, 3)  # 3: they differ
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()) if not environment else out.getvalue()


def shown(name: str, table: str, width: int) -> str:
    path = str(DATA / "format-1" / table)
    return on_terminal(*(a.format(path) for a in COMMANDS[name]), width=width).replace(path, table)


def _file(name: str, table: str, width: int) -> Path:
    return DATA / "terminal" / f"{name}-{table}-{width}.txt"


CASES = [(name, table, width) for name in COMMANDS for table in ("orders", "customers") for width in WIDTHS]


@pytest.mark.parametrize(("name", "table", "width"), CASES)
def test_a_command_looks_as_its_file(name, table, width):
    found = shown(name, table, width)
    assert found == _file(name, table, width).read_text("utf-8")
    assert max(map(cell_len, found.splitlines())) <= width


def test_a_question_mark_is_explained_where_one_is_shown(capsys):
    orders = str(DATA / "format-1" / "orders")
    hints = {}
    for width in (60, 200):
        out, err = Terminal(), io.StringIO()
        terminal = mock.patch.dict(os.environ, {"COLUMNS": str(width), "TERM": "xterm", "NO_COLOR": "1"})
        with terminal, redirect_stdout(out), redirect_stderr(err):
            run(["history", orders, "--all"])
        hints[width] = ("?" in out.getvalue(), "?: not counted" in err.getvalue())
    assert hints == {60: (False, False), 200: (True, True)}
    run(["history", orders, "--all"])
    found = capsys.readouterr()
    assert ("?" in found.out, "?: not counted" in found.err) == (False, False), "a pipe has an empty cell"


def test_colors_are_left_out_where_they_are_not_wanted():
    def of(**environment):
        return on_terminal(
            "history", DATA / "format-1" / "orders", width=80, **{"TERM": "xterm-256color", **environment}
        )

    assert "\x1b[3" not in of(NO_COLOR="1")


WORDS = "id INT, lang STRING, ts INT, v STRING"


@pytest.fixture(scope="module")
def words(spark, tmp_path_factory):
    path = f"{tmp_path_factory.mktemp('terminal')}/words"
    table = TrinityTable.create(spark, path, WORDS, primaryKey=["id", "lang"], watermarkKey="ts", history=True)
    for ts, v in ((1, "漢字 " * 30), (2, "a [red]tag[/red]\nand a line"), (3, "x" * 300)):
        table.upsert(spark.createDataFrame([(1, "en", ts, v), (ts + 1, "de", ts, None)], WORDS)).execute()
    return table


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["read", "versions", "changes", "why", "diff"])
def test_rows_of_any_width_fit(command, width, words):
    more = {"changes": ("1",), "why": ("id=1,lang=en",), "diff": (f"{words.path}@1",), "versions": ("--all",)}
    found = on_terminal(command, words.path, *more.get(command, ()), width=width)
    lines = found.splitlines()
    assert max(map(cell_len, lines)) <= width, found
    assert {"id", "lang"} <= set(lines[0].split()), found  # a wide column leaves narrow ones whole
    assert "…" in found


@pytest.mark.parametrize("width", WIDTHS)
def test_text_of_values_is_no_markup(width, words):
    found = on_terminal("read", words.path, "--at", 2, "--where", "id = 1", width=width)
    assert "a [red]tag[/red]\\nand a line" in found


def test_columns_without_room_are_counted(spark, tmp_path, capsys):
    path = f"{tmp_path}/wide"
    names = [f"column_{n}" for n in range(40)]
    table = TrinityTable.create(spark, path, f"id INT, {', '.join(f'{n} STRING' for n in names)}", primaryKey="id")
    table.insert(spark.createDataFrame([(1, *names)], ["id", *names]).selectExpr("CAST(id AS INT)", *names)).execute()
    out = Terminal()
    with mock.patch.dict(os.environ, {"COLUMNS": "80", "TERM": "dumb"}), redirect_stdout(out):
        assert run(["read", path]) == 0
    assert out.getvalue().splitlines()[0].split() == ["id", *names[:7]]
    assert "33 more columns had no room" in capsys.readouterr().err


HOSTILE = "\x1b]0;owned\x07\x9b31mred\u202e\r\n\tend"


def test_control_characters_do_not_reach_the_output(tmp_path, capsys):
    fields = [Field("id", "long"), Field(f"v{HOSTILE}", "string", metadata={"comment": HOSTILE})]
    own = TableDefinition.of(fields, "id", comment=HOSTILE, properties={HOSTILE: HOSTILE})
    log = CommitLog(LocalFileSystem(), str(tmp_path / "t"))
    log.create(Commit(version=0, timestamp_ms=1, operation=HOSTILE, actions=[SetDefinition(own)], user=HOSTILE))
    table = str(tmp_path / "t")
    commands = [("show",), ("show", "--properties"), ("show", "--columns"), ("history",), ("health",)]
    texts = [on_terminal(*command, table, width=200) for command in commands]
    for command in [*commands, *((*c, "--json") for c in commands)]:
        run([*command, table])
    run(["show", f"none{HOSTILE}"])
    captured = capsys.readouterr()
    texts += [captured.out, captured.err]
    assert [text for text in texts if set(text) & {*"\x1b\x07\x9b\u202e\r"}] == []
    assert texts[0].count(r"\x1b]0;owned\x07\x9b31mred\u202e\r") >= 3, (
        "comments of the table and the column, and its name"
    )
    columns = [json.loads(line) for line in captured.out.splitlines() if line.startswith('{"name": "v')]
    assert [column["comment"] for column in columns] == [HOSTILE], "JSON has them as escapes"


if __name__ == "__main__":
    for case in CASES:
        _file(*case).write_text(shown(*case), "utf-8")

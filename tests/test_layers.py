"""The order of imports: folders import from folders below them, and plain data imports no Spark.

``LAYERS`` is that order. `testing` is beside it: it imports schema, errors and clauses, and no other folder imports it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from trinitymerge.spark import system_columns
from trinitymerge.spark.system_columns import DECLARED, SystemColumn

ROOT = Path(__file__).parent.parent
PACKAGE = "trinitymerge"
LAYERS = [
    ["errors", "_format", "_package"],
    ["schema", "fs"],
    ["log", "spark"],
    ["rows", "reporting"],
    ["stores"],
    ["merge.model", "reader"],
    ["history", "interop", "merge.analysis"],
    ["merge.compile"],
    ["merge.execute"],
    ["merge.builder"],
    ["feeds", "maintenance"],
    ["reporting.table"],
    ["_arguments"],
    ["external", "_progress"],
    ["table"],
    ["statements", "ingest"],
    ["commands", "__init__"],
    ["__main__"],
]
"""The folders, and the modules beside them, low to high. Those on one line do not import each other."""
WITHOUT_SPARK = [
    "errors",
    "_format",
    "_package",
    "schema",
    "fs",
    "log",
    "spark.sql_text",
    "spark.system_columns",
    "merge.model.clauses",
    "merge.model.feed_counts",
    "merge.model.result",
    "ingest.config",
    "ingest.report",
    "interop.dialects",
    "stores.directories",
    "maintenance.advice",
    "reporting",
    "commands",
    "__main__",
    "statements.tree",
    "statements.lexer",
    "statements.parser",
    "statements.queries",
    "testing",
]
TESTING_MAY_KNOW = ["errors", "schema", "merge.model.clauses", "testing"]
GATEWAY = ["fs.resolve", "fs.hadoop", "spark.session"]


class Import(NamedTuple):
    """One import statement: what it names, and where it stands."""

    name: str
    line: int
    in_function: bool
    for_types: bool


def module_name(path: Path) -> str:
    """`merge.clauses` for trinitymerge/merge/model/clauses.py, `merge` for its package, `__init__` for the top."""
    parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path): path for path in (ROOT / PACKAGE).rglob("*.py")}
IS_PACKAGE = {module_name(path.parent / "__init__.py") for path in (ROOT / PACKAGE).rglob("*/__init__.py")}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text("utf-8"))


@cache
def imports(module: str) -> list[Import]:
    """Every import of a module, relative ones made absolute."""
    return list(walk(module, tree(module), in_function=False, for_types=False))


def walk(module: str, node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        typed = for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        for name in imported_names(module, child):
            yield Import(name, child.lineno, inside, typed)
        yield from walk(module, child, inside, typed)


def imported_names(module: str, node: ast.AST) -> list[str]:
    """What one statement imports; `from a import b` is `a.b`, which may be a module or a name in one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = f"{PACKAGE}.{module}".split(".")
        up = node.level - (1 if module in IS_PACKAGE else 0)
        base = ".".join([*package[: len(package) - up], *([node.module] if node.module else [])])
    return [f"{base}.{alias.name}" for alias in node.names]


def own(name: str) -> str | None:
    """The module of this package that an imported name belongs to, or None for other packages."""
    if name.split(".")[0] != PACKAGE:
        return None
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in MODULES:
        parts = parts[:-1]
    return ".".join(parts) or "__init__"


def folder(module: str) -> str:
    """The folder of :data:`LAYERS` that a module is in, or the module itself if it stands beside them."""
    parts = module.split(".")
    return next((n for n in (".".join(parts[:2]), parts[0]) if n in KNOWN), module)


KNOWN = {name for line in LAYERS for name in line}


def layer(module: str) -> int:
    return next(n for n, line in enumerate(LAYERS) if folder(module) in line)


def matches(module: str, names: list[str]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in names)


TESTING = sorted(m for m in MODULES if matches(m, ["testing"]))
OTHERS = sorted(set(MODULES) - {*TESTING})


def test_every_module_has_a_layer():
    modules = [m for m in OTHERS if m not in IS_PACKAGE or m == "__init__"]
    assert [m for m in modules if folder(m) not in KNOWN] == [], "give it a layer here"


def upwards(module: str) -> Iterator[str]:
    """The imports of a module from its own level or above, and of the testing tools, which the package does not know."""
    for found in imports(module):
        target = own(found.name)
        if target is None or folder(target) == folder(module):
            continue
        if matches(target, ["testing"]) or (layer(target) >= layer(module) and target not in IS_PACKAGE):
            yield f"{module}, line {found.line}, imports {target}"


def test_imports_point_downwards():
    assert [found for module in OTHERS for found in upwards(module)] == []


def test_testing_knows_semantics_only():
    known = {(module, target) for module in TESTING for f in imports(module) if (target := own(f.name)) is not None}
    assert sorted(pair for pair in known if not matches(pair[1], TESTING_MAY_KNOW)) == []


def test_no_import_of_ours_inside_a_function():
    found = [(module, i.line, i.name) for module in MODULES for i in imports(module) if i.in_function]
    assert [hidden for hidden in found if own(hidden[2])] == []


def way_to_spark(module: str, seen: set[str]) -> list[str]:
    """The modules by which importing this one imports Spark, this one first; none if it does not."""
    seen.add(module)
    for found in (f for f in imports(module) if not f.in_function and not f.for_types):
        if found.name.split(".")[0] in ("pyspark", "py4j"):
            return [module, found.name]
        target = own(found.name)
        if target is not None and target not in seen and (rest := way_to_spark(target, seen)):
            return [module, *rest]
    return []


def test_plain_data_imports_no_spark():
    ways = [way_to_spark(module, set()) for module in sorted(MODULES) if matches(module, WITHOUT_SPARK)]
    assert [" imports ".join(way) for way in ways if way] == []


def test_modules_do_not_import_each_other_in_circles():
    graph = {
        module: {own(found.name) for found in imports(module) if not found.for_types} - {None, module}
        for module in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


PRIVATE = {"_jvm", "_jsc", "_jdf", "_jc", "_jsparkSession", "_sc", "sparkContext", "rdd"}


def test_only_the_filesystem_talks_to_the_JVM():
    others = [module for module in sorted(MODULES) if not matches(module, GATEWAY)]
    nodes = [(m, node) for m in others for node in ast.walk(tree(m)) if isinstance(node, ast.Attribute)]
    assert [f"{m}, line {n.lineno}: {n.attr}" for m, n in nodes if n.attr in PRIVATE] == [], "Spark Connect has none"


# The list in the documentation ----------------------------------------------------------------------------------------


def test_the_page_lists_every_folder_in_the_order_of_imports():
    tree = (ROOT / "docs" / "architecture.md").read_text("utf-8").split("## The folders")[1].split("```")[1]
    listed = [line.replace("/", ".") for line in re.findall(r"^  (\w[\w/]*)/  ", tree, re.MULTILINE)]
    assert {*listed} == {m for m in IS_PACKAGE if m != "__init__" and not m.startswith("testing.")}
    places = [layer("merge.builder" if name == "merge" else name) for name in listed if name != "testing"]
    assert places == sorted(places)


# Columns --------------------------------------------------------------------------------------------------------------


def test_every_column_is_declared_once_and_used():
    declared = {name for name, c in vars(system_columns).items() if isinstance(c, SystemColumn)}
    assert len(declared) == len(DECLARED) == len(set(DECLARED)), "each name is declared once"
    nodes = (node for module in MODULES for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute))
    used = {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "C"}
    assert declared - used == set(), "a column that no module uses"


def makes_up_a_column(node: ast.AST) -> bool:
    return (
        (isinstance(node, ast.BinOp) and isinstance(node.left, ast.Name) and node.left.id == "HIDDEN_PREFIX")
        or (isinstance(node, ast.JoinedStr) and ast.unparse(node).startswith(("f'{HIDDEN_PREFIX}", "f'_tm_")))
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.match(r"`?_tm_\w", node.value)))
    )


def test_only_columns_makes_up_names_of_columns():
    others = [m for m in OTHERS if not matches(m, ["spark.system_columns", "schema.definition"])]
    found = [f"{m}, line {n.lineno}" for m in others for n in ast.walk(tree(m)) if makes_up_a_column(n)]
    assert found == [], "declare it in spark/system_columns.py"


# Size -----------------------------------------------------------------------------------------------------------------

LONGEST_FILE, LONGEST_FUNCTION = 1000, 80
FRONT_DOOR = "table.py"
"""May be longer: most of it is docstrings."""


def too_long(path: Path) -> Iterator[str]:
    """The file or the functions of it that have too many lines below their docstrings."""
    text, where = path.read_text("utf-8"), path.relative_to(ROOT)
    if len(text.splitlines()) > LONGEST_FILE and path.name != FRONT_DOOR:
        yield str(where)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            first = node.body[1] if documented and len(node.body) > 1 else node.body[0]
            if (node.end_lineno or node.lineno) - first.lineno >= LONGEST_FUNCTION:
                yield f"{where}: {node.name}"


def test_files_and_functions_can_be_read_at_once():
    assert [found for path in sorted((ROOT / PACKAGE).rglob("*.py")) for found in too_long(path)] == []


# Tests mirror the package ---------------------------------------------------------------------------------------------


def test_tests_lie_in_a_folder_named_like_that_of_what_they_test():
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")} - {Path()}
    assert [folder for folder in folders if not (ROOT / PACKAGE / folder).is_dir()] == []
    known = (ROOT / "pyproject.toml").read_text("utf-8")
    assert [f for f in folders if f"tests/{f}" not in known] == [], "its helpers cannot be imported"

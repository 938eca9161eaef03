"""The order of imports: folders import from folders below them, and plain data imports no Spark.

``LAYERS`` is that order. `testing` is beside it: it imports schema, errors and clauses, and no other folder imports it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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


MODULES = {module_name(path): ast.parse(path.read_text("utf-8")) for path in (ROOT / PACKAGE).rglob("*.py")}
IS_PACKAGE = {module_name(path.parent / "__init__.py") for path in (ROOT / PACKAGE).rglob("*/__init__.py")}


def imports(module: str) -> list[Import]:
    """Every import of a module, relative ones made absolute."""
    return list(walk(module, MODULES[module], in_function=False, for_types=False))


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


@pytest.mark.parametrize("module", sorted(MODULES))
def test_module_has_a_layer(module):
    is_package = module in IS_PACKAGE and module != "__init__"
    assert is_package or folder(module) in KNOWN or matches(module, ["testing"]), (
        f"{module} has no layer; give it one here"
    )


@pytest.mark.parametrize("module", sorted(m for m in MODULES if not matches(m, ["testing"])))
def test_imports_point_downwards(module):
    for found in imports(module):
        target = own(found.name)
        if target is None:
            continue
        where = f"{module}, line {found.line}, imports {target}"
        assert not matches(target, ["testing"]), f"{where}: the package does not know its testing tools"
        below = layer(target) < layer(module) or folder(target) == folder(module)
        assert below or target in IS_PACKAGE, f"{where}: arrows run downwards only, {LAYERS}"


@pytest.mark.parametrize("module", sorted(m for m in MODULES if matches(m, ["testing"])))
def test_testing_knows_semantics_only(module):
    known = {own(found.name) for found in imports(module)} - {None}
    assert all(matches(target, TESTING_MAY_KNOW) for target in known), f"{module} imports {sorted(known)}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_import_of_ours_inside_a_function(module):
    hidden = [f"line {found.line}: {found.name}" for found in imports(module) if found.in_function and own(found.name)]
    assert not hidden, f"{module} imports inside functions: {hidden}"


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


@pytest.mark.parametrize("module", sorted(m for m in MODULES if matches(m, WITHOUT_SPARK)))
def test_plain_data_imports_no_spark(module):
    way = way_to_spark(module, set())
    assert not way, f"{module} must be importable without Spark: {' imports '.join(way)}"


def test_every_module_that_imports_no_spark_is_to_stay_so():
    free = {m for m in MODULES if m not in IS_PACKAGE and m != "__init__" and not way_to_spark(m, set())}
    unlisted = sorted(m for m in free if not matches(m, WITHOUT_SPARK))
    assert not unlisted, f"{unlisted} can be imported without Spark: list them in WITHOUT_SPARK"


def test_modules_do_not_import_each_other_in_circles():
    graph = {
        module: {own(found.name) for found in imports(module) if not found.for_types} - {None, module}
        for module in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("module", sorted(m for m in MODULES if not matches(m, GATEWAY)))
def test_only_the_filesystem_talks_to_the_JVM(module):
    private = [
        f"line {node.lineno}: {node.attr}"
        for node in ast.walk(MODULES[module])
        if isinstance(node, ast.Attribute)
        and node.attr in ("_jvm", "_jsc", "_jdf", "_jc", "_jsparkSession", "_sc", "sparkContext", "rdd")
    ]
    assert not private, f"{module} must run on Spark Connect too: {private}"


# The list in the documentation ----------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "architecture.md"


def listed() -> list[tuple[str, list[str]]]:
    """The folders in the order in which the page lists them, each with its modules; modules beside the folders have none."""
    tree = PAGE.read_text("utf-8").split("## The folders")[1].split("```")[1]
    lines = [re.match(r"  ([\w./]+)  +(.*?)(?:  |$)", line) for line in tree.splitlines()]
    found = [(line[1].strip("./").replace("/", "."), line[2].split()) for line in lines if line]
    return [(name, modules) for name, modules in found if name != "testing"]


def test_the_page_lists_every_module_once():
    shown = [f"{name}.{module}" if f"{name}.{module}" in MODULES else module for name, ms in listed() for module in ms]
    own_modules = {m for m in MODULES if m not in IS_PACKAGE and not matches(m, ["__init__", "testing"])}
    assert sorted(shown) == sorted(own_modules)


def test_the_page_lists_folders_in_the_order_of_imports():
    lines = [max(layer(f"{name}.{m}".lstrip(".")) for m in modules) for name, modules in listed()]
    assert lines == sorted(lines)


# Columns --------------------------------------------------------------------------------------------------------------


def test_every_column_is_declared_once_and_used():
    declared = {name for name, c in vars(system_columns).items() if isinstance(c, SystemColumn)}
    assert len(declared) == len(DECLARED) == len(set(DECLARED)), "each name is declared once"
    home = f"{PACKAGE}.spark.system_columns."
    used = {i.name.rpartition(".")[2] for m in MODULES for i in imports(m) if i.name.startswith(home)}
    assert declared - used == set(), "a column that no module uses"


def test_only_columns_makes_up_names_of_columns():
    for module in sorted(
        m for m in MODULES if not matches(m, ["spark.system_columns", "schema.definition", "testing"])
    ):
        made_up = [
            f"line {node.lineno}"
            for node in ast.walk(MODULES[module])
            if (isinstance(node, ast.BinOp) and isinstance(node.left, ast.Name) and node.left.id == "HIDDEN_PREFIX")
            or (isinstance(node, ast.JoinedStr) and ast.unparse(node).startswith(("f'{HIDDEN_PREFIX}", "f'_tm_")))
            or (isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"`?_tm_\w", node.value))
        ]
        assert not made_up, f"{module} makes up a column: {made_up}; declare it in spark/system_columns.py"


# Size -----------------------------------------------------------------------------------------------------------------

LONGEST_FILE, LONGEST_FUNCTION = 1000, 80
FRONT_DOOR = "table.py"
"""May be longer: most of it is docstrings."""


@pytest.mark.parametrize("path", sorted((ROOT / PACKAGE).rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_can_be_read_at_once(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= LONGEST_FILE or path.name == FRONT_DOOR
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            first = node.body[1] if documented and len(node.body) > 1 else node.body[0]
            lines = (node.end_lineno or node.lineno) - first.lineno + 1
            assert lines <= LONGEST_FUNCTION, f"{node.name} has {lines} lines below its docstring"


# Tests mirror the package ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=lambda p: p.stem)
def test_tests_lie_in_a_folder_named_like_that_of_what_they_test(path):
    folder = path.parent.relative_to(ROOT / "tests")
    assert (ROOT / PACKAGE / folder).is_dir(), f"there is no folder '{folder}' in the package"
    assert str(folder) == "." or f"tests/{folder}" in (ROOT / "pyproject.toml").read_text("utf-8"), (
        "its helpers cannot be imported"
    )

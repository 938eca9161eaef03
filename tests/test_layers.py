"""The law of the house: arrows run downwards only, and Spark stays out of what is plain data.

The order of the layers is that of ``LAYERS``. Maintenance and merges do not know each other, but for the result of a merge.
`testing` stands beside: it knows the definition, the errors and the clauses; the package does not know it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from trinitymerge import columns
from trinitymerge.technical import DECLARED, TechnicalColumn

ROOT = Path(__file__).parent.parent
PACKAGE = "trinitymerge"
LAYERS = [
    "errors",
    "widening",
    "field",
    "nullability",
    "notebook",
    "constraints",
    "properties",
    "definition",
    "evolving",
    "sqltext",
    "technical",
    "columns",
    "jvm",
    "spark_errors",
    "conditions",
    "sessions",
    "observation",
    "settings",
    "expressions",
    "enforcing",
    "assignment",
    "ddl",
    "tombstones",
    "statistics",
    "keyrange",
    "keyjoin",
    "sending",
    "soughtkeys",
    "foreign",
    "storage",
    "staging",
    "markers",
    "reader",
    "elsewhere",
    "history",
    "merge",
    "maintenance",
    "paying",
    "opening",
    "opened",
    "external",
    "upkeep",
    "lookback",
    "feeding",
    "copying",
    "table",
    "statements",
    "__init__",
]
WITHOUT_SPARK = [
    "errors",
    "widening",
    "field",
    "nullability",
    "notebook",
    "constraints",
    "definition",
    "evolving",
    "sqltext",
    "technical",
    "columns",
    "properties",
    "elsewhere.dialects",
    "elsewhere.query",
    "storage.applying",
    "storage.attempts",
    "storage.batch",
    "storage.clock",
    "storage.directories",
    "storage.entries",
    "storage.envelope",
    "storage.faults",
    "storage.fields",
    "storage.files",
    "storage.filesystem",
    "storage.forgotten",
    "storage.hadoop",
    "storage.local",
    "storage.log",
    "storage.logfiles",
    "storage.protocol",
    "storage.publish",
    "storage.redo",
    "storage.s3",
    "storage.s3api",
    "storage.stagedfiles",
    "storage.storable",
    "storage.telling",
    "storage.transactions",
    "merge.analysis.effects",
    "merge.assigning",
    "merge.clauses",
    "merge.result",
    "statements.altering",
    "statements.changing",
    "statements.cursor",
    "statements.forms",
    "statements.glot",
    "statements.merging",
    "statements.places",
    "statements.queries",
    "statements.reading",
    "statements.refused",
    "statements.wording",
    "testing",
]
TESTING_MAY_KNOW = ["errors", "definition", "merge.clauses", "testing"]
GATEWAY = ["storage.filesystem", "storage.hadoop", "jvm"]


class Import(NamedTuple):
    """One import statement: what it names, and where it stands."""

    name: str
    line: int
    in_function: bool
    for_types: bool


def module_name(path: Path) -> str:
    """`merge.clauses` for trinitymerge/merge/clauses.py, `merge` for its package, `__init__` for the top."""
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


def layer(module: str) -> int:
    return LAYERS.index(module.split(".")[0])


def matches(module: str, names: list[str]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in names)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_module_has_a_layer(module):
    assert module.split(".")[0] in [*LAYERS, "testing"], f"{module} has no layer; give it one here and in the docs"


@pytest.mark.parametrize("module", sorted(m for m in MODULES if not matches(m, ["testing"])))
def test_imports_point_downwards(module):
    for found in imports(module):
        target = own(found.name)
        if target is None:
            continue
        where = f"{module}, line {found.line}, imports {target}"
        assert not matches(target, ["testing"]), f"{where}: the package does not know its testing tools"
        assert layer(target) <= layer(module), f"{where}: arrows run downwards only, {' <- '.join(LAYERS)}"


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


# merge/ ---------------------------------------------------------------------------------------------------------------

MERGE = [
    "assigning",
    "clauses",
    "result",
    "analysis",
    "compile",
    "paths",
    "run",
    "arguments",
    "configured",
    "historyinserts",
    "builder",
    "feeds",
    "companions",
]
"""The order inside merge/: what was asked; what it means; programs and steps; ways to read the target; running it; the chain."""


@pytest.mark.parametrize("module", sorted(m for m in MODULES if m.startswith("merge.")))
def test_imports_point_downwards_inside_merge(module):
    place = MERGE.index(module.split(".")[1])
    for target in {own(found.name) for found in imports(module)} - {None}:
        if target.startswith("merge."):
            assert MERGE.index(target.split(".")[1]) <= place, f"{module} imports {target}: arrows run downwards only"


def test_merge_knows_no_maintenance_and_maintenance_no_merge():
    for module in (m for m in MODULES if m.split(".")[0] in ("merge", "maintenance")):
        other = {"merge": "maintenance", "maintenance": "merge"}[module.split(".")[0]]
        known = {own(found.name) for found in imports(module)} - {None}
        reached = {target for target in known if target.split(".")[0] == other}
        assert reached <= {"merge.result"}, f"{module} imports {sorted(reached)}"


# The list in the documentation ----------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "architecture.md"


def listed_modules() -> list[str]:
    """The modules in the order in which the page lists them; those in a directory are indented below it."""
    found: list[str] = []
    directories: list[tuple[int, str]] = []
    tree = PAGE.read_text("utf-8").split("## The house")[1].split("```")[1]
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        directories = [(depth, name) for depth, name in directories if depth < indent]
        if opened := re.match(r" +(\w+)/", line):
            directories.append((indent, opened[1]))
        found += [".".join([*(name for _, name in directories), file]) for file in re.findall(r"(\w+)\.py\b", line)]
    return found


def test_the_page_lists_every_module_once():
    own_modules = {m for m in MODULES if m not in IS_PACKAGE and not matches(m, ["__init__", "testing"])}
    assert sorted(listed_modules()) == sorted(own_modules)


def test_the_page_lists_modules_in_the_order_in_which_imports_run():
    place = {module: n for n, module in enumerate(listed_modules())}
    for module in place:
        above = [t for f in imports(module) if (t := own(f.name)) in place and place[t] < place[module]]
        assert not above, f"{module} imports {above}, which {PAGE.name} lists above it"


# Columns --------------------------------------------------------------------------------------------------------------


def test_every_column_is_declared_once_and_used():
    declared = {name for name, c in vars(columns).items() if isinstance(c, TechnicalColumn)}
    assert len(declared) == len(DECLARED) == len(set(DECLARED)), "each name is declared once"
    used = {i.name.rpartition(".")[2] for m in MODULES for i in imports(m) if i.name.startswith(f"{PACKAGE}.columns.")}
    assert declared - used == set(), "a column that no module uses"


def test_only_columns_makes_up_names_of_columns():
    for module in sorted(m for m in MODULES if not matches(m, ["columns", "technical", "definition", "testing"])):
        made_up = [
            f"line {node.lineno}"
            for node in ast.walk(MODULES[module])
            if (isinstance(node, ast.BinOp) and isinstance(node.left, ast.Name) and node.left.id == "HIDDEN_PREFIX")
            or (isinstance(node, ast.JoinedStr) and ast.unparse(node).startswith(("f'{HIDDEN_PREFIX}", "f'_tm_")))
            or (isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"`?_tm_\w", node.value))
        ]
        assert not made_up, f"{module} makes up a column: {made_up}; declare it in columns.py"


# Size -----------------------------------------------------------------------------------------------------------------

LONGEST_FILE, LONGEST_FUNCTION = 1000, 80


@pytest.mark.parametrize("path", sorted((ROOT / PACKAGE).rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_can_be_read_at_once(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            first = node.body[1] if documented and len(node.body) > 1 else node.body[0]
            lines = (node.end_lineno or node.lineno) - first.lineno + 1
            assert lines <= LONGEST_FUNCTION, f"{node.name} has {lines} lines below its docstring"

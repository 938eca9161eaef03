"""Public names: camelCase on objects, as in PySpark, and snake_case in `trinitymerge.feeds`. Former names stay for one version."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module

import pytest

import trinitymerge
from trinitymerge import MergePlan, TrinityTable, feeds
from trinitymerge._format import Result
from trinitymerge._package import FORMER_FORMATS
from trinitymerge.external import ExternalTable
from trinitymerge.feeds import Feed, Format, formats
from trinitymerge.history.incremental import Increment
from trinitymerge.log.reporting import Progress
from trinitymerge.maintenance.alter import TableAlteration
from trinitymerge.merge import builder
from trinitymerge.merge.model.feed_counts import FeedCounts

BUILDERS = [kind for _, kind in inspect.getmembers(builder, inspect.isclass) if kind.__module__ == builder.__name__]
OF_THE_ENGINE = {MergePlan: {"rows_on", "with_ends", "reads_on", "sql_on"}}
"""Methods that other modules of the package call."""


def kinds() -> Iterator[type]:
    yield from (TrinityTable, ExternalTable, TableAlteration, MergePlan, Feed, FeedCounts, Increment, Progress)
    yield from (kind for kind in BUILDERS if not issubclass(kind, Exception))
    yield from Result.__subclasses__()


@pytest.mark.parametrize("kind", dict.fromkeys(kinds()), ids=lambda kind: kind.__name__)
def test_what_hangs_on_a_table_a_builder_or_a_result_is_in_camel_case(kind):
    names = {name for name in dir(kind) if not name.startswith("_")} - {"to_dict"} - OF_THE_ENGINE.get(kind, set())
    calls = [getattr(kind, name) for name in names if inspect.isroutine(getattr(kind, name, None))]
    arguments = {name for call in calls for name in inspect.signature(call).parameters}
    assert {name for name in names | arguments if "_" in name.strip("_")} == set()


def test_functions_of_feeds_are_in_snake_case():
    functions = [name for name in feeds.__all__ if inspect.isfunction(getattr(feeds, name))]
    arguments = {name for f in functions for name in inspect.signature(getattr(feeds, f)).parameters}
    assert [name for name in {*functions, *arguments} if not re.fullmatch("[a-z0-9_]+", name)] == []


def test_formats_are_named_as_their_functions_and_restrict_their_arguments():
    modules = [import_module(f"{formats.__name__}.{found.name}") for found in pkgutil.iter_modules(formats.__path__)]
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, Format)]
    assert {found.name for found in declared} == set(feeds.FORMATS)
    for found in declared:
        assert {"df", "epoch", "rename", *found.allowed} <= {*inspect.signature(feeds.FORMATS[found.name]).parameters}


@pytest.mark.parametrize(("former", "name"), FORMER_FORMATS.items())
def test_a_former_name_of_a_format_warns(former, name):
    with pytest.warns(
        DeprecationWarning, match=rf"^trinitymerge\.feeds\.{former} is deprecated: it is called {name}\.$"
    ):
        assert getattr(feeds, former) is getattr(feeds, name)


def test_feeds_has_no_other_names():
    with pytest.raises(AttributeError, match=r"module .trinitymerge\.feeds. has no attribute .debezum."):
        _ = feeds.debezum


def test_a_former_name_of_a_method_warns():
    result = trinitymerge.MergeResult(version=1)
    with pytest.warns(DeprecationWarning, match=r"^to_dict\(\) is deprecated: it is called toDict\(\)\.$"):
        assert result.to_dict() == result.toDict()

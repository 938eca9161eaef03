"""The configuration of `trinitymerge ingest`: what is wrong is named with its key and line."""

from __future__ import annotations

import pytest

from trinitymerge.ingest.config import Config, ConfigError, TableRule, config_of, milliseconds, read_config

FILES = {"source": {"kind": "files", "path": "in"}}


def of(tmp_path, text: str) -> Config:
    path = tmp_path / "shop.toml"
    path.write_text(text)
    return config_of(read_config(str(path)), str(path))


def test_all_sections_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cr3t")
    found = of(
        tmp_path,
        """
        [source]
        kind = "kafka"
        servers = "localhost:9092"
        pattern = 'shop\\.public\\..*'
        [source.options]
        "kafka.sasl.jaas.config" = "password=${SECRET}"
        failOnDataLoss = false
        [feed]
        format = "debezium"
        epoch = 2
        timestamps = { changed = "ms" }
        [target]
        root = "/lake/shop"
        history = ["customers"]
        quarantine = "_rejected"
        [run]
        app = "shop"
        maxRecords = 1000
        maxRejected = 0.01
        [[table]]
        source = "public.notes"
        keys = ["id", "lang"]
        [[table]]
        source = "public.audit_*"
        skip = true
        """,
    )
    assert found.source.options == {"kafka.sasl.jaas.config": "password=s3cr3t", "failOnDataLoss": "false"}
    assert found.feed.options == {"epoch": 2, "timestamps": {"changed": "ms"}}
    assert (found.quarantine, found.checkpoint) == ("/lake/shop/_rejected", "/lake/shop/_checkpoints/shop")
    assert found.rule_of("shop.public.notes").keys == ("id", "lang")
    assert found.rule_of("shop.public.audit_log").skip
    assert found.rule_of("shop.public.orders") == TableRule("shop.public.orders")
    assert found.path_of("shop.public.orders", TableRule()) == "/lake/shop/public/orders"
    assert found.has_history("shop.public.customers", TableRule())
    assert "s3cr3t" not in repr(found)


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("shop.public.orders", "/lake/public/orders"),
        ("shop.orders", "/lake/shop/orders"),
        ("shop.a b$c-d", "/lake/shop/a b$c-d"),
        ("shop.a/b", "/lake/shop/a%2Fb"),
    ],
)
def test_the_path_of_a_table_is_made_of_its_names(source, path):
    config = config_of({**FILES, "target": {"root": "/lake/"}})
    assert config.path_of(source, TableRule()) == path


def test_a_path_stays_below_the_root():
    config = config_of({**FILES, "target": {"root": "/lake", "path": "{database}/{schema}/{table}"}})
    assert config.path_of("...", TableRule(path="t")) == "/lake/t"
    with pytest.raises(ConfigError, match=r"needs \{database\}, and messages name the source table only as 'orders'"):
        config.path_of("orders", TableRule())


def test_paths_are_whole_or_below_the_root():
    config = config_of({**FILES, "target": {"root": "s3a://lake"}})
    assert config.below_root("t") == "s3a://lake/t"
    assert config.below_root("/t") == "/t"
    assert config.below_root("s3://other/t") == "s3://other/t"
    assert config_of(FILES).below_root("t") == "t"
    assert config_of({**FILES, "target": {"root": "/"}}).below_root("t") == "/t"
    assert config_of(FILES).below_root("shop.notes") == "./shop.notes", "a path, not a name"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sources]\n", "[sources] is unknown. Did you mean 'source'?"),
        ('[source]\nkind = "files"\npth = "in"\n', ", line 3: [source] pth is unknown. Did you mean 'path'?"),
        ('[source]\nkind = "file"\n', ", line 2: [source] kind takes files or kafka, got 'file'."),
        ('[source]\nkind = "files"\n', "[source] path is missing"),
        (
            '[source]\nkind = "files"\npath = "in"\n[target]\npath = "{db}/{table}"\n',
            "line 5: [target] path takes {database}, {schema}, {table}, got '{db}/{table}'.",
        ),
        ('[source]\nkind = "kafka"\n', "[source] servers is missing"),
        ('[source]\nkind = "kafka"\nservers = "a:1"\n', "[source] topics takes a list of topics"),
        (
            '[source]\nkind = "kafka"\nservers = "a:1"\ntopics = "a"\n',
            ", line 4: [source] topics takes a list of texts",
        ),
        (
            '[source]\nkind = "files"\npath = "in"\n[run]\ntrigger = "soon"\n',
            ', line 5: [run] trigger takes a time such as "10s"',
        ),
        (
            '[source]\nkind = "files"\npath = "in"\n[run]\nthreads = true\n',
            "line 5: [run] threads takes a whole number, got True",
        ),
        (
            '[source]\nkind = "files"\npath = "in"\n[run]\nthreads = 0\n',
            "line 5: [run] threads takes a number from 1, got 0",
        ),
        (
            '[source]\nkind = "files"\npath = "in"\n[run]\nmaxRejected = 2\n',
            "line 5: [run] maxRejected takes a number from 0",
        ),
        (
            '[source]\nkind = "files"\npath = "in"\n[run]\nonTableError = "quarantine"\n',
            'line 5: [run] onTableError needs [target] quarantine = "a path"',
        ),
        (
            '[source]\nkind = "files"\npath = "${NO_SUCH_NAME}"\n',
            "line 3: [source] path names ${NO_SUCH_NAME}, and the environment has no such variable",
        ),
        (
            '[source]\nkind = "files"\npath = "in"\n[[table]]\nsource = "a"\n[[table]]\nkey = ["id"]\n',
            "line 7: [table] key is unknown. Did you mean 'keys'?",
        ),
        (
            '[source]\nkind = "files"\npath = "in"\n[[table]]\nsource = "a"\n[[table]]\npath = "t"\n',
            "line 6: [table] source is missing, and there are several [[table]]",
        ),
        (
            '[source]\nkind = "files"\npath = "in"\n[[table]]\nsource = "a_*"\npartitions = true\n',
            "line 6: [table] partitions needs source and path",
        ),
        ('[source]\nkind = "files"\npath = "in"\n[table]\nsource = "a"\n', "[table] is a list: write [[table]]"),
        ("[source\n", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(ConfigError) as error:
        of(tmp_path, text)
    assert message in str(error.value)
    assert "shop.toml" in str(error.value)


@pytest.mark.parametrize("section", ["source", "feed", "target", "run"])
def test_sections_are_checked_before_options_of_the_command_replace_their_keys(tmp_path, section):
    (tmp_path / "shop.toml").write_text(f'{section} = "text"\n')
    with pytest.raises(ConfigError, match=rf"\[{section}\] takes keys and values"):
        read_config(str(tmp_path / "shop.toml"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file or directory"):
        read_config(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("text", "found"), [("10s", 10_000), ("500ms", 500), ("1.5m", 90_000), ("2 h", 7_200_000), ("2d", None)]
)
def test_durations(text, found):
    assert milliseconds(text) == found


@pytest.mark.parametrize(("former", "name"), [("deltaCdf", "delta_cdf"), ("icebergChanges", "iceberg_changes")])
def test_a_former_name_of_a_format_is_taken_with_a_warning(former, name, caplog):
    assert config_of({**FILES, "feed": {"format": former}}).feed.format == name
    assert [r.getMessage() for r in caplog.records] == [
        f"[feed] format = '{former}' is deprecated: it is called '{name}'."
    ]
    assert config_of({**FILES, "feed": {"format": name}}).feed.format == name
    assert len(caplog.records) == 1

"""Looking after a table: compaction, vacuum, restore, purge and health (S38-S40).

Of tables in catalogs, those of Iceberg's can be compacted. All else works on managed tables. What changes a table is an ordinary
commit, which concurrent writers survive.
"""

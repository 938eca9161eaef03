"""The commit protocol on a simulated disk, under a scheduler that decides who goes next.

The library's own log, commit loop, minor compaction, compaction, vacuum, restore, purge and alter run here; only what Spark does
with rows is done in plain Python. ``disk.py`` is the storage, ``processes.py`` runs code one call of it at a time, ``table.py``
stands in for Spark, ``programs.py`` has the operations of processes, ``promises.py`` checks each state, ``states.py`` describes it,
``explorer.py`` chooses the next step, ``scenarios.py`` the processes, and ``bugs.py`` breaks the protocol to see whether
any of that notices.
"""

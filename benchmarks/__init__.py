"""Speed, measured side by side with peers in one run: `make bench`, or `python -m benchmarks`.

Every section of :mod:`benchmarks.sections` measures one bar of the performance table (P1-P11) and leaves a JSON file;
:mod:`benchmarks.report` and :mod:`benchmarks.charts` turn those files into `RESULTS.md` and the charts beside it, so
that a section can be run again alone.
"""

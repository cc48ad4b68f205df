# Every target makes what it needs: on a fresh machine `make demo` and `make test` want Python, make and the package
# registries, nothing else.

PYTHON ?= python3
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

VENV := .venv
BENCH_VENV := .venv-bench-jvm
MIDDLE_VENV := .venv-spark-4.1
BIN := $(VENV)/bin
SOURCES := connector spark_jobs benchmarks tests
# The stamp carries what the environment was made from: another lock or another Python makes it anew.
stamp = $(1)/made-from-$(shell cat requirements/$(2).txt requirements/java.txt | cksum | cut -d' ' -f1)-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV_STAMP := $(call stamp,$(VENV),test)
BENCH_VENV_STAMP := $(call stamp,$(BENCH_VENV),bench-jvm)
MIDDLE_VENV_STAMP := $(call stamp,$(MIDDLE_VENV),spark-4.1)
# --universal: one lock for all supported Pythons and systems.  No address of an index gets into a lock.
LOCK = PYTHONPATH=$(RESOLVER) $(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --python-version 3.10 \
	--no-header --no-emit-index-url --no-emit-find-links

# Most of a test's time is waiting. A file's tests stay together, so each process starts its brokers and its Spark once.
# xdist would hand out the files with the fewest tests last, which are the slow ones; tests/conftest.py puts them first.
TWO_FILES := -n 2 --dist loadfile --no-loadscope-reorder
# With Spark and brokers two processes leave two cores idle for half of the time: they wait for each other's answers. Unit tests
# wait for servers that are silent on purpose. Four are no faster than three.
THREE_FILES := -n 3 --dist loadfile --no-loadscope-reorder
# Three beside each other for Spark, and one that has what only computes, from the end of the order, while those wait.
BOTH_ENDS := -n 4 --dist loadfile --no-loadscope-reorder --from-both-ends

SEED_IS_GIVEN := $(filter command line environment,$(origin SEED))
# The order of the files in `make test-shuffled`: a new one in every second.
SEED ?= $(shell date +%s)

# Tests start hundreds of processes; where this is set, each of them would compile the package anew, for 0.2 s.
unexport PYTHONDONTWRITEBYTECODE

# compat: a plain path.  Spark looks for packages named pyspark_* with pkgutil, which sees nothing of setuptools' other forms.
define make_venv
	rm -rf $(1)
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes -r requirements/$(2).txt
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	$(1)/bin/python -m embedded_kafka.real >/dev/null 2>&1 \
		|| $(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/java.txt
	touch $(3)
endef

GROUPS := every day,before a merge,nightly,pages,now and then
.PHONY: help
help: ## every day | this list
	@awk -F ':.*## | [|] ' -v groups="$(GROUPS)" \
		'/^[a-z-]+:.*## / { lines[$$2] = lines[$$2] sprintf("  make %-18s %s\n", $$1, $$3) } \
		END { count = split(groups, names, ","); for (n = 1; n <= count; n++) printf "%s\n%s", names[n], lines[names[n]] }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(VENV_STAMP) ## every day | the environment .venv from the lock, for an editor; every target makes it by itself

$(VENV_STAMP):
	$(call make_venv,$(VENV),test,$@)

.PHONY: venv-bench
venv-bench: $(BENCH_VENV_STAMP) ## now and then | the environment with pyspark 4.0.0, for `bench`, `parity` and `versions`

$(BENCH_VENV_STAMP):
	$(call make_venv,$(BENCH_VENV),bench-jvm,$@)

$(MIDDLE_VENV_STAMP):
	$(call make_venv,$(MIDDLE_VENV),spark-4.1,$@)

.PHONY: lint
lint: $(VENV_STAMP) ## every day | layout, lint, types, import floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports >/dev/null || $(BIN)/lint-imports

.PHONY: check
check: lint ## every day | lint, and the unit tests; a minute and a half, before every commit
	$(BIN)/pytest -q $(THREE_FILES) -m "not kafka and not spark and not simulation and not processes and not slow and not clusters and not long and not chaos"

# Much of what a test with Spark costs is Java loading Spark's classes and Python compiling PySpark, so both are kept in each
# environment as they are then. Without the file the tests are the same and slower.
SPARK_CLASSES := $(VENV)/spark-classes.jsa
BENCH_SPARK_CLASSES := $(BENCH_VENV)/spark-classes.jsa
MIDDLE_SPARK_CLASSES := $(MIDDLE_VENV)/spark-classes.jsa

$(SPARK_CLASSES): $(VENV_STAMP)
$(BENCH_SPARK_CLASSES): $(BENCH_VENV_STAMP)
$(MIDDLE_SPARK_CLASSES): $(MIDDLE_VENV_STAMP)
%/spark-classes.jsa:
	$*/bin/python -m tests.support.quick_start

IN_TEST := not simulation and not chaos and not parity and not long and not judged and not clusters

.PHONY: test
test: $(VENV_STAMP) $(SPARK_CLASSES) ## every day | the tests with Spark, on the embedded broker; 13 minutes on 2 cores, before every merge
	$(BIN)/pytest $(BOTH_ENDS) -m "$(IN_TEST)"

.PHONY: test-simulation
test-simulation: $(VENV_STAMP) ## before a merge | the tests in virtual time: defects that were found, bugs planted on purpose, storms
	$(BIN)/pytest $(TWO_FILES) -m "simulation and not long"

.PHONY: test-shuffled
test-shuffled: $(VENV_STAMP) $(SPARK_CLASSES) ## before a merge | `test` with the files in another order; SEED=... repeats one
	$(BIN)/pytest $(TWO_FILES) -m "$(IN_TEST)" --shuffle-files $(SEED)

.PHONY: versions
versions: $(BENCH_SPARK_CLASSES) $(MIDDLE_SPARK_CLASSES) ## before a merge | the same tests on pyspark 4.0.0 and 4.1
	# That environment has neither rich nor typer nor Prometheus, which these tests are about; none of them is of `versions`.
	$(BENCH_VENV)/bin/python -m tests.support.wheel $(THREE_FILES) -q -m versions tests/pyspark_kafka_eos/spark --ignore tests/pyspark_kafka_eos/spark/test_listener.py \
		--ignore tests/pyspark_kafka_eos/spark/metrics --ignore tests/pyspark_kafka_eos/spark/source/test_ledger_source.py
	$(MIDDLE_VENV)/bin/python -m tests.support.wheel $(THREE_FILES) -q -m versions tests/pyspark_kafka_eos/spark --ignore tests/pyspark_kafka_eos/spark/metrics

.PHONY: parity
parity: $(SPARK_CLASSES) $(BENCH_SPARK_CLASSES) ## nightly | `judged` with all our own tests
	$(BIN)/python -m tests.parity --write
	$(BIN)/pytest $(THREE_FILES) -m "(kafka or long) and not chaos and not parity and not clusters" --brokers real
	$(BIN)/pytest $(THREE_FILES) -m "(judged and not embedded) or (long and embedded)"

# Of our own tests those of the client, the slots and the commit. Those with Spark are the ones that `versions` plays, here on the
# newest pyspark, from the wheel: what the wheel lacks, an editable install finds in the sources beside it.
JUDGED := $(addprefix tests/,pyspark_kafka_eos/client pyspark_kafka_eos/commit pyspark_kafka_eos/operations pyspark_kafka_eos/records \
	pyspark_kafka_eos/slot pyspark_kafka_eos/spark embedded_kafka/producer_ids incidents)
.PHONY: judged
judged: $(SPARK_CLASSES) $(BENCH_SPARK_CLASSES) ## before a merge | Apache Kafka as the judge: foreign clients, raw requests, our tests of client, slots, commit, and the wheel in Spark
	$(BIN)/python -m tests.parity --write
	$(BIN)/python -m tests.support.wheel $(THREE_FILES) -q -m versions tests/pyspark_kafka_eos/spark --brokers real
	$(BIN)/pytest $(THREE_FILES) $(JUDGED) --brokers real \
		-m "kafka and not spark and not long and not chaos and not parity and not clusters"

.PHONY: rules
rules: $(VENV_STAMP) ## nightly | break every rule of docs/rules.md and every mend of docs/design/findings.md: the tests have to fail
	$(BIN)/python -m tests.rules --write

# Which rows depends on the commit alone, so a failure can be seen again; without git it is always the same ones.
.PHONY: rules-sample
rules-sample: $(VENV_STAMP) ## before a merge | `rules` with ten rules, chosen by the commit
	$(BIN)/python -m tests.rules --sample 10 --seed "$$(git rev-parse HEAD 2>/dev/null || echo no-commit)"

# One seed is one history: `make simulate SEED=7` plays it again and shows what happened.
SEEDS ?= 500
.PHONY: simulate
simulate: $(VENV_STAMP) ## now and then | SEEDS=500 histories in virtual time from FIRST=0, or one again by SEED=n
	$(BIN)/python -m tests.simulation $(if $(SEED_IS_GIVEN),--seed $(SEED),--seeds $(SEEDS) --first $(or $(FIRST),0))

# Seeds that nobody has played before, and the same ones for the same commit.
WITHIN ?= 600
.PHONY: simulate-fresh
simulate-fresh: $(VENV_STAMP) ## before a merge | 500 histories chosen by the commit's hash; fails after WITHIN=600 seconds
	$(BIN)/python -m tests.simulation --campaign random --profile plain --seeds 500 --jobs 2 --within $(WITHIN) \
		--fresh "$$(git rev-parse HEAD 2>/dev/null || echo no-commit)"

.PHONY: simulate-campaign
simulate-campaign: $(VENV_STAMP) ## pages | SEEDS=500 histories of every campaign, and their page in evidence/; hours
	$(BIN)/python -m tests.simulation --campaign random points steps pairs corpus rows --jobs 2 --write \
		--seeds $(SEEDS) --first $(or $(FIRST),0)

.PHONY: model
model: $(VENV_STAMP) ## pages | the TLA+ models, every rule taken away once, and the table in docs/design/model.md; minutes
	$(BIN)/python -m tools.model

.PHONY: planted
planted: $(VENV_STAMP) ## pages | a history for each bug of tests/simulation/planted that has none, and their page in evidence/; minutes
	$(BIN)/python -m tests.simulation.planted
	$(BIN)/python -m tests.simulation.planted --write

.PHONY: mistakes
mistakes: $(VENV_STAMP) $(SPARK_CLASSES) ## pages | the mistakes of new users, and what each is told, into evidence/mistakes.md; minutes
	$(BIN)/python -m tests.mistakes --write

.PHONY: rights
rights: $(VENV_STAMP) ## pages | every API asked with every kind of right, beside Apache Kafka, into evidence/rights.md; minutes
	$(BIN)/python -m tests.authorization --write

.PHONY: demo
demo: $(VENV_STAMP) ## every day | the main job on 336,776 flights, killed in the middle, then the proof of exactly once
	$(BIN)/python -m spark_jobs.demo

.PHONY: bench
bench: $(VENV_STAMP) $(BENCH_VENV_STAMP) ## pages | throughput beside Spark's own Kafka sink, into benchmarks/results.json
	$(BIN)/python -m benchmarks

.PHONY: chaos
chaos: $(VENV_STAMP) ## nightly | SIGKILL at every named point and at 50 random moments, on every rung
	$(BIN)/pytest -q -m chaos --brokers real
	$(BIN)/python -m tests.chaos --write
	$(BIN)/python -m tests.chaos.mending --write

# Each of two brokers has MINUTES. The classes are made first: with them pyspark.zip is changed, in which the workers of a Spark that
# runs would no longer find their modules.
MINUTES ?= 60
.PHONY: soak
soak: $(VENV_STAMP) $(SPARK_CLASSES) ## nightly | an hour (MINUTES=60) of small batches with a fault every 20 s on each of two brokers; nothing may grow
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --write

# One cluster at a time: each has up to eight processes.
.PHONY: clusters
clusters: $(VENV_STAMP) $(SPARK_CLASSES) ## nightly | docs/deploying.md on real clusters: Spark standalone, YARN, checkpoints on HDFS and S3, with kills
	$(BIN)/pytest -q -m clusters tests/clusters --write-page

# Four JVMs of 320 MB, a Spark, Java's producer and four queries.
.PHONY: cluster
cluster: $(VENV_STAMP) $(BENCH_VENV_STAMP) ## nightly | three real brokers killed, frozen, cut, rolled, upgraded, beside Java's producer and Spark's own sink
	$(BIN)/python -m tests.cluster --spark --write

# Beside the environment: what draws pages and pictures is not what the tests run on.
define install_beside
	rm -rf build/$(1)-* && $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --target $@.draft -r requirements/$(2).txt
	mv $@.draft $@
endef

PDOC := build/pdoc-$(shell cksum requirements/docs.txt | cut -d' ' -f1)

$(PDOC): $(VENV_STAMP)
	$(call install_beside,pdoc,docs)

.PHONY: docs
docs: $(VENV_STAMP) $(PDOC) ## nightly | the API reference of the docstrings, into build/api; its names and links are checked
	PYTHONPATH=$(PDOC) $(BIN)/python -m tools.api_reference build/api

CURVES := build/curves-$(shell cksum requirements/curves.txt | cut -d' ' -f1)

$(CURVES): $(VENV_STAMP)
	$(call install_beside,curves,curves)

# What is made of the code, of docstrings and of what the benchmarks wrote; a second run changes nothing. What a run of hours writes (evidence/)
# is written by the target that runs it.
PAGES := tools.file_map tools.draw_machines tests.pyspark_kafka_eos.options.tables tests.docs.figures tests.docs.printed tests.notebooks.cells
.PHONY: pages
pages: $(VENV_STAMP) $(CURVES) ## pages | write anew what is made: file map, machines, options, figures, printed output, notebook, curves
	for page in $(PAGES); do $(BIN)/python -m $$page; done
	PYTHONPATH=$(CURVES) $(BIN)/python -m benchmarks.curves

# Spark and three kinds of brokers, one of them at a time.
.PHONY: security
security: $(VENV_STAMP) $(SPARK_CLASSES) ## nightly | every way to log in, through source, sinks, df.write and doctor
	$(BIN)/python -m tests.security --write

# In Spark it is also played by `judged`, on Apache Kafka, and by `versions`.
.PHONY: test-wheel
test-wheel: $(VENV_STAMP) $(SPARK_CLASSES) ## before a merge | what the wheel has, in a bare environment and in a foreign repository
	$(BIN)/pytest $(TWO_FILES) -q tests/packaging --ignore tests/packaging/test_first_steps.py

# The packages of a row are installed while the row before it runs.
.PHONY: matrix
matrix: $(VENV_STAMP) ## nightly | Python x pyspark x Apache Kafka x classic or Connect, each pair, with the wheel
	$(BIN)/python -m tests.matrix --write

# Ten minutes of cases that nobody has played before; the same ones as ever, for a minute, are tests of `test`.
.PHONY: fuzz
fuzz: $(VENV_STAMP) ## nightly | bytes and texts made at random, to everything that reads what others may have written
	$(BIN)/python -m tests.fuzz --write

.PHONY: changes
changes: $(VENV_STAMP) ## nightly | a change of clusters, topics, settings, versions or clocks in every moment of a batch
	$(BIN)/python -m tests.changes --write
	$(BIN)/python -m tests.simulation.witnesses --write
	$(BIN)/python -m tests.simulation.lies --every 3 --write

.PHONY: nightly
nightly: parity chaos rules clusters security fuzz matrix changes docs audit soak cluster ## nightly | all that takes too long for every merge: the targets of this group

.PHONY: format
format: $(VENV_STAMP) ## every day | put the layout and the order of imports right
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

RESOLVER := build/resolver-$(shell cksum requirements/lock.txt | cut -d' ' -f1)

$(RESOLVER): $(VENV_STAMP)
	$(call install_beside,resolver,lock)

# The product's own are those of the tests: what was tested is what the bill of materials names.
EXTRAS := spark connect cli pkcs12 oauth msk azure gcp prometheus
.PHONY: lock
lock: $(VENV_STAMP) $(RESOLVER) ## now and then | resolve all versions anew into requirements/*.txt
	$(LOCK) --upgrade setup.cfg --all-extras --no-emit-package gssapi -o requirements/test.txt
	$(LOCK) --upgrade setup.cfg $(addprefix --extra ,$(EXTRAS)) -c requirements/test.txt -o requirements/product.txt
	$(LOCK) --upgrade setup.cfg requirements/bench-jvm.in -o requirements/bench-jvm.txt
	$(LOCK) --upgrade setup.cfg requirements/spark-4.1.in --extra test --extra prometheus -o requirements/spark-4.1.txt
	$(LOCK) --upgrade setup.cfg requirements/spark-4.2.in --extra test --extra prometheus -o requirements/spark-4.2.txt
	$(LOCK) --upgrade requirements/java.in -o requirements/java.txt
	$(LOCK) --upgrade requirements/clusters.in -o requirements/clusters.txt
	$(LOCK) --upgrade requirements/docs.in -o requirements/docs.txt
	$(LOCK) --upgrade requirements/curves.in -o requirements/curves.txt
	$(LOCK) --upgrade requirements/audit.in -o requirements/audit.txt
	$(LOCK) --upgrade requirements/lock.in -o requirements/lock.txt
	! grep -nE '://|--(extra-)?index-url|--find-links' requirements/*.txt

.PHONY: dist
dist: $(VENV_STAMP) ## now and then | what is handed out, into dist/: source archive, wheel, bill of materials, their hashes
	$(BIN)/python -m tools.release dist

AUDIT := build/audit-$(shell cksum requirements/audit.txt | cut -d' ' -f1)

$(AUDIT): $(VENV_STAMP)
	$(call install_beside,audit,audit)

.PHONY: audit
audit: $(VENV_STAMP) $(AUDIT) ## nightly | whether a pin has a known weakness, where the list of them can be had; else it is said
	PYTHONPATH=$(AUDIT) $(BIN)/python -m tools.audit requirements/product.txt requirements/test.txt

.PHONY: clean
clean: ## now and then | remove the environments and what the tools left; the user's cache stays
	rm -rf $(VENV) $(BENCH_VENV) $(MIDDLE_VENV) build dist connector/*.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: screenshots
screenshots: $(VENV_STAMP) ## pages | the pictures in docs/images, of real runs on the embedded broker
	$(BIN)/python -m tools.screenshots docs/images
	$(BIN)/python -m tools.progress_picture docs/images/progress.svg

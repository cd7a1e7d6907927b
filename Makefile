# Everything bootstraps itself: Python 3.11 or later and Java 17 are all that must be there.
#   make demo    see the main job done on a real Cassandra and a real Spark
#   make test    check, and test every claim on real servers
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Images of containers often set this. Every process of the tests would then compile all modules again: libraries too.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
DRIVER ?= cassandra
SPARK  ?= spark
VENV   ?= .venv
UV     := .uv/bin/uv
RUN    := $(VENV)/bin
# Which driver, Spark and Python the environment holds; installing another one takes the place of the one before.
STAMP  := $(VENV)/.installed-$(DRIVER)-$(patsubst %,%-,$(filter-out spark,$(SPARK)))$(shell $(PYTHON) -c 'import platform; print(platform.python_version())')

TESTS = $(if $(ARGS),$(RUN)/pytest $(1) $(ARGS),$(RUN)/python -m tests.lanes $(1))

.PHONY: help demo test test-all environment check verify mutate bench format zip clean

help: ## Say what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(UV):
	$(PYTHON) -m venv .uv
	.uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.13,<0.14'

$(STAMP): pyproject.toml uv.lock | $(UV)
	UV_PROJECT_ENVIRONMENT=$(VENV) $(UV) sync --quiet --locked --python $(PYTHON) --extra $(DRIVER) --extra $(SPARK) --extra queue --extra pulsar --extra serve --extra delivery
	@rm -f $(VENV)/.installed-* && touch $@

demo: $(STAMP) ## Write mail, break it, find it, mend it, prove it, undo and redo it
	$(RUN)/mailmend demo

test: check ## Check, then every claim, in three lanes (on a real Cassandra, Spark, RabbitMQ and S3)
	$(call TESTS)

test-all: check ## The same, whole: long runs, more examples, then with ScyllaDB's driver and with Spark 4: before a release
	$(if $(ARGS),,@$(MAKE) --no-print-directory DRIVER=scylla VENV=$(VENV)-scylla environment)
	$(if $(ARGS),,@$(MAKE) --no-print-directory SPARK=spark4 VENV=$(VENV)-spark4 environment)
	$(call TESTS,--all)

environment: $(STAMP)

check: $(STAMP) verify ## Lint, folded code, types, layers and doors; seconds
	$(RUN)/ruff format --check
	$(RUN)/ruff check
	$(RUN)/python -m tests.ratchet
	$(RUN)/mypy
	$(RUN)/lint-imports

verify: $(STAMP) ## What is generated is up to date
	$(UV) lock --check --quiet
	$(RUN)/python -m mailmend.cql.export --check
	$(RUN)/python -m mailmend.admin.schema.lint_page --check
	$(RUN)/python -m mailmend.admin.reference --check
	$(RUN)/python -m mailmend.admin.metrics.reference --check
	$(RUN)/python -m mailmend.admin.http_reference --check
	$(RUN)/python -m mailmend.delivery.policy.file.schema --check
	$(RUN)/mailmend schema lint --fail-on note cql/schema.cql
	$(RUN)/mailmend schema lint --fail-on note cql/migrations
	$(RUN)/mailmend schema export --check --dir docs --only page --only drawing --keyspace apache_james

mutate: $(STAMP) ## Change the pure core place by place; do the tests notice? make mutate ARGS=mailmend.mailqueue.rules.starts
	$(RUN)/python -m tests.mutants $(ARGS)

bench: $(STAMP) ## Measure side by side in one run: make bench MESSAGES=100000
	$(RUN)/python -m tests.bench $(if $(MESSAGES),--messages $(MESSAGES)) $(ARGS)

zip: $(STAMP) ## The packages as dist/mailmend.zip, for spark-submit --py-files
	$(UV) build --quiet --wheel --out-dir dist
	cp dist/mailmend-*.whl dist/mailmend.zip

format: $(STAMP) ## Put the source into its one form
	$(RUN)/ruff check --fix
	$(RUN)/ruff format

clean: ## Remove what was built
	rm -rf $(VENV) $(VENV)-scylla $(VENV)-spark4 .uv dist build bench-results .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

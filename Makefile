# Everything bootstraps itself: Python 3.11 or later and Java 17 are all that must be there.
#   make demo    see the main job done on a real Cassandra
#   make test    check, and the tests on real servers; make test-all has those that it leaves out
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
BIN    := $(VENV)/bin
# Which driver, Spark and Python the environment holds; installing another one takes the place of the one before.
STAMP  := $(VENV)/.installed-$(DRIVER)-$(patsubst %,%-,$(filter-out spark,$(SPARK)))$(shell $(PYTHON) -c 'import platform; print(platform.python_version())')

# Tests of rules that touch neither disk nor network, and of pages: seconds.
PURE  := $(addprefix tests/unit/,model cql/schema cql/statements mailqueue/rules delivery/policy delivery/mail)
PAGES := $(addprefix tests/unit/,test_architecture_page.py test_design_page.py test_adr_index.py test_pages.py test_pictures.py admin/test_runbook.py)

# What fills docs/api from the docstrings, and puts long signatures on several lines.
API_PAGES := mkdocstrings==1.0.8 mkdocstrings-python==2.0.11 ruff==0.17.6

TESTS = $(if $(ARGS),$(BIN)/pytest $(1) $(ARGS),$(BIN)/python -m tests.lanes $(1) $(if $(LANES),--lanes '$(LANES)'))

.PHONY: help demo test test-all test-of quick pages pictures docs environment wheel-environment check verify man mutate bench format zip release-check clean

help: ## Say what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(UV):
	$(PYTHON) -m venv .uv
	.uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.13,<0.14'

$(STAMP): pyproject.toml uv.lock | $(UV)
	UV_PROJECT_ENVIRONMENT=$(VENV) $(UV) sync --quiet --locked --python $(PYTHON) --extra $(DRIVER) --extra $(SPARK) --extra queue --extra pulsar --extra serve --extra delivery
	@rm -f $(VENV)/.installed-* && touch $@

demo: $(STAMP) ## Write mail, break it, find it, mend it, prove it, undo and redo it
	$(BIN)/mailmend demo

test: check ## Check, then the tests in three lanes (on a real Cassandra, Spark, RabbitMQ, Pulsar and S3)
	$(call TESTS)

test-all: check ## The same, whole: long runs, more examples, then the wheel with ScyllaDB's driver, and Spark 4: before a release
	$(if $(ARGS),,@$(MAKE) --no-print-directory DRIVER=scylla VENV=$(VENV)-scylla wheel-environment)
	$(if $(ARGS),,@$(MAKE) --no-print-directory SPARK=spark4 VENV=$(VENV)-spark4 environment)
	$(call TESTS,--all)

test-of: $(STAMP) ## Which tests import a file, nearest first: make test-of FILE=model/ids.py; RUN=1 runs the nearest
	@$(BIN)/python -m tests.tests_of $(FILE) $(if $(WITHIN),--within $(WITHIN)) $(if $(RUN),--run $(ARGS))

quick: check ## Check, then the tests of pure rules and of pages: no server, two minutes
	$(BIN)/pytest -q $(PURE) $(PAGES)

pages: $(STAMP) ## Pages name only files, sections and commands that are there
	$(BIN)/pytest -q $(PAGES)

pictures: $(STAMP) ## Draw docs/pictures anew from packages and from runs in memory; the report's head needs Chromium
	$(BIN)/python -m tests.pictures

docs: | $(UV) ## The pages as a site in build/site, with a search that needs no server; a link that leads nowhere fails
	rm -rf build/pages && mkdir -p build/pages/tests
	cp -r README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE docs runbooks build/pages
	cp tests/README.md build/pages/tests
	$(UV) tool run --quiet --python $(PYTHON) --from 'zensical==0.0.73' $(API_PAGES:%=--with '%') zensical build --clean --strict

environment: $(STAMP)

wheel-environment: $(STAMP) # The package is the wheel, not this folder
	rm -rf build/wheel
	$(UV) build --quiet --wheel --out-dir build/wheel
	$(UV) pip install --quiet --python $(VENV) --no-deps --reinstall build/wheel/*.whl

check: $(STAMP) verify ## Lint, folded code, hard words, types, layers, doors and sizes; seconds
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python -m tests.ratchet
	$(BIN)/python -m tests.plain_words
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -qq -p no:cacheprovider tests/unit/test_packaging.py

verify: $(STAMP) ## What is generated is up to date
	$(UV) lock --check --quiet
	$(BIN)/python -m mailmend.cql.export --check
	$(BIN)/python -m mailmend.admin.schema.lint_page --check
	$(BIN)/python -m mailmend.admin.reference --check
	$(BIN)/python -m mailmend.admin.metrics.reference --check
	$(BIN)/python -m mailmend.admin.http_reference --check
	$(BIN)/python -m mailmend.delivery.policy.file.schema --check
	$(BIN)/python -m mailmend.admin.projections.pages --check
	$(BIN)/python -m tests.pictures --check
	$(BIN)/mailmend schema lint --fail-on note cql/schema.cql
	$(BIN)/mailmend schema lint --fail-on note cql/migrations
	$(BIN)/mailmend schema export --check --dir docs --only page --only drawing --keyspace apache_james

man: $(STAMP) ## Man pages of all commands in build/man; a wheel that is built afterwards installs them
	$(BIN)/python -m tests.man_pages

mutate: $(STAMP) ## Change the pure core place by place; do the tests notice? make mutate ARGS=mailmend.mailqueue.rules.slices
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(STAMP) ## Measure side by side in one run: make bench MESSAGES=100000
	$(BIN)/python -m tests.bench $(if $(MESSAGES),--messages $(MESSAGES)) $(ARGS)

zip: $(STAMP) ## The packages as dist/mailmend.zip, for spark-submit --py-files
	$(UV) build --quiet --wheel --out-dir dist
	cp dist/mailmend-*.whl dist/mailmend.zip

format: $(STAMP) ## Put the source into its one form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

release-check: check man ## What a release has to pass without network: same bytes twice, absolute links, a changelog, an SBOM
	$(BIN)/python -m tests.release_check

clean: ## Remove what was built
	rm -rf $(VENV) $(VENV)-scylla $(VENV)-spark4 .uv dist build bench-results .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

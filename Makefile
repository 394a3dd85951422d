# `make help` lists what there is. `make test` and `make demo` do all the set-up themselves.
PYTHON ?= python3
JOBS ?= $(shell nproc)
DEMO_ARGS ?=
BENCH_ARGS ?=
TORTURE_ARGS ?=
COVERAGE_ARGS ?=
WHEEL_ARGS ?=
export JOBS
VENV_PYTHON = .venv/bin/python
# The programs of .venv first, for whatever a target starts.
WITH_VENV = PATH="$(CURDIR)/.venv/bin:$$PATH"

.DEFAULT_GOAL := help
.PHONY: help setup build package wheel check-wheel deb check-deb check-aarch64 demo docs bench bench-window bench-gpu bench-micro test frameworks fuzz torture coverage lint format clang-tidy debug asan tsan clean distclean

help: ## this list
	@sed -n 's/^\([a-z -]*\):.*## /\1\t/p' Makefile | expand -t 18

setup: ## system packages (apt, if missing and allowed) and .venv
	@$(PYTHON) tools/setup.py

build: setup ## compile the core and its tests in build/release, install the wheel into .venv
	@$(PYTHON) tools/build.py

package: setup ## compile the package alone, without tests and benchmarks, and install it into .venv
	@$(PYTHON) tools/build.py package

wheel: setup ## self-contained wheels and the source archive, in dist/ (WHEEL_ARGS="python3.11": that one alone)
	@$(PYTHON) tools/wheel.py $(WHEEL_ARGS)

check-wheel: ## install the wheels of dist/ in bare Debian roots and train there, as root (WHEEL_ARGS=bookworm)
	@$(PYTHON) tools/check_wheel.py $(WHEEL_ARGS)

deb: ## Debian packages of program and C++ library, in build/deb (the first time as root)
	@$(PYTHON) tools/deb.py

check-deb: ## install the packages of build/deb in a bare Debian root, and use them there, as root
	@$(PYTHON) tools/check_deb.py

check-aarch64: ## compile the core for aarch64, and run its tests under qemu (the first time as root)
	@$(PYTHON) tools/check_aarch64.py

demo: package ## train, kill, resume, compare; prints what it measured (DEMO_ARGS=--full for all)
	@echo "demo: training begins; importing torch takes some seconds"
	@$(WITH_VENV) $(VENV_PYTHON) -m examples.demo $(DEMO_ARGS)

docs: ## the documentation as a site, in build/site; links are checked, nothing is compiled
	@$(PYTHON) tools/docs.py

bench: build ## everything beside every peer, in build/bench (QUICK=1: minutes, in build/bench-quick)
	@$(PYTHON) lab/environment.py $(if $(QUICK),,--all)
	@build/bench-venv/bin/python -m lab.experiments.everything $(if $(QUICK),--quick) $(BENCH_ARGS)

bench-window: build ## compare ways to save beside a training (BENCH_ARGS="--smoke": seconds)
	@$(PYTHON) lab/environment.py
	@build/bench-venv/bin/python -m lab.experiments.window --directory build $(BENCH_ARGS)

bench-gpu: build ## checkpoints on one NVIDIA GPU, 40 minutes (BENCH_ARGS="--device cpu --quick": does it work?)
	@$(PYTHON) lab/environment.py
	@build/bench-venv/bin/python -m lab.experiments.gpu $(BENCH_ARGS)

bench-micro: build ## each part of the core by itself (BENCH_ARGS="--benchmark_filter=plan/")
	@build/release/lab/micro/deepfreeze_micro $(BENCH_ARGS)

test: setup ## lint, C++ tests, Python tests, C++ tests under asan and tsan, other frameworks
	@$(PYTHON) tools/run_tests.py

frameworks: build ## the tests of all frameworks but torch, in build/frameworks-venv
	@$(PYTHON) tools/run_tests.py frameworks

fuzz: setup ## hostile bytes for every parser, under libFuzzer (FUZZ_SECONDS=60 for each target)
	@$(PYTHON) tests/fuzz/run.py

torture: build ## the long runs, hours: tests/torture.md (TORTURE_ARGS="--only crash power")
	@$(PYTHON) tools/build.py asan tsan
	@cmake --build build/tsan --target corruption_test
	@$(VENV_PYTHON) tools/torture.py $(TORTURE_ARGS)

coverage: ## lines of json, format, manifest, storage and restore that no test executes (COVERAGE_ARGS=--uncovered)
	@$(PYTHON) tools/coverage.py $(COVERAGE_ARGS)

lint: setup ## tidy, clang-format, ruff, mypy: checks only
	@$(PYTHON) tools/lint.py

format: setup ## rewrite the sources as clang-format and ruff want them
	@$(PYTHON) tools/lint.py --fix

clang-tidy: build ## slower checks, not part of `make test` (apt install clang-tidy-19)
	@run-clang-tidy-19 -quiet -j $(JOBS) -p build/release '/(src|python/src|tests)/.*\.cc$$'

debug asan tsan: setup ## C++ tests of one preset of CMakePresets.json
	@$(PYTHON) tools/build.py $@
	@ctest --preset $@ --no-tests=error -j $(JOBS)

clean: ## remove build/
	rm -rf build

distclean: clean ## and .venv and the tools' caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache

# The developer's commands. Users need packaging/latprof only.

PYTHON ?= /usr/bin/python3
KERNELS ?= 6.1 6.12
# Debian's, of this machine and of arm64, also those that are refused.
MATRIX := 5.10 6.1 6.12 6.18 7.3 arm64:6.1 arm64:6.12 arm64:7.3
SECONDS ?= 300

# Of tests that measure no time: a file each on all CPUs at once.
AT_ONCE := --numprocesses=4 --dist=loadfile --no-loadscope-reorder

VENV := .venv
BUILD := build/dev
LOCK := packaging/lock
# meson-python wants its tools on PATH.
IN_VENV := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

C_SOURCES := $(shell find bpf agent tests -name '*.[ch]')
NATIVE_SOURCES := $(filter %.c,$(filter agent/%,$(C_SOURCES)))
SCRIPTS := packaging/latprof packaging/packages.sh packaging/sources.sh \
	packaging/minimal_debian.sh \
	packaging/build-wheel packaging/make-release packaging/write-lock .ci/run \
	packaging/make-packages packaging/make-image packaging/image/start \
	packaging/write-daemonset $(wildcard packaging/nfpm/p*) \
	$(shell find tests -name '*.sh')
BPF_ARCH := $(if $(filter aarch64,$(shell uname -m)),arm64,x86)
BPF_FLAGS := -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCH) \
	-I/usr/include/$(shell gcc -print-multiarch 2>/dev/null)

.DELETE_ON_ERROR:
.PHONY: help build test lint docs pages schemas lock format fuzz soak bench test-vm test-matrix release clean
.PHONY: lint-python lint-c lint-scripts lint-spelling

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

$(VENV)/ready: $(LOCK)/backend.txt $(LOCK)/build.txt $(LOCK)/dev.txt
	$(PYTHON) -Im venv $(VENV)
	for wanted in $^; do \
		$(VENV)/bin/pip install --quiet --disable-pip-version-check \
			--require-hashes --no-build-isolation --no-deps -r $$wanted || exit; \
	done
	touch $@

# What clang-tidy reads.
$(BUILD)/compile_commands.json: $(VENV)/ready $(shell find bpf agent tests meson.build -name meson.build)
	rm -rf $(BUILD)
	$(IN_VENV) meson setup $(BUILD) >/dev/null

build: $(VENV)/ready ## compile, and install into .venv for development
	$(IN_VENV) pip install --quiet --no-build-isolation --no-deps \
		--config-settings=build-dir=build/editable --editable .

test: build ## run the tests; those that need root are skipped without it
	$(VENV)/bin/python -m pytest $(AT_ONCE) -m 'not timed'
	$(VENV)/bin/python -m pytest -m timed

lint: lint-python lint-c lint-scripts lint-spelling ## check format, style, types, C and spelling

lint-python: $(VENV)/ready
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy tests/types

lint-c: $(BUILD)/compile_commands.json
	$(VENV)/bin/clang-format --dry-run --Werror $(C_SOURCES)
	$(VENV)/bin/clang-tidy --quiet -p $(BUILD) $(NATIVE_SOURCES)
	$(VENV)/bin/clang-tidy --quiet bpf/latprof.bpf.c -- $(BPF_FLAGS)

lint-scripts:
	shellcheck $(SCRIPTS)

lint-spelling: $(VENV)/ready
	$(VENV)/bin/codespell bpf agent analysis tests packaging $(wildcard *.md)

docs: $(VENV)/ready ## write the library's pages to build/docs
	$(VENV)/bin/sphinx-build -q -W --keep-going -d build/doctrees analysis/docs build/docs

pages: $(VENV)/ready ## write into the pages what they have of the code
	$(VENV)/bin/python packaging/write_pages.py

schemas: $(VENV)/ready ## write the JSON Schemas of what commands print
	$(VENV)/bin/python packaging/write_schemas.py

lock: $(VENV)/ready ## name what pyproject.toml wants, by hash; RENEW=1: the newest
	$(IN_VENV) packaging/write-lock $(if $(RENEW),--upgrade)

format: $(VENV)/ready ## rewrite Python and C in the project's format
	$(VENV)/bin/ruff check --fix --exit-zero --quiet
	$(VENV)/bin/ruff format
	$(VENV)/bin/clang-format -i $(C_SOURCES)

fuzz: build ## fuzz what reads files of others, e.g. SECONDS=3600
	$(VENV)/bin/python tests/fuzz $(SECONDS)

soak: build ## watch churn for half an hour (as root): exact counts, flat memory
	$(AS_ROOT) env LATPROF_SOAK_SECONDS=$(if $(filter 300,$(SECONDS)),1800,$(SECONDS)) \
		$(VENV)/bin/python -m pytest --timeout=0 tests/kernel/test_soak.py

bench: ## measure the speed of an installed latprof (as root)
	$(AS_ROOT) packaging/latprof install
	$(AS_ROOT) /opt/latprof/bin/python3 tests/bench

test-vm: ## run it under other kernels, e.g. KERNELS="6.1 arm64:6.12" (as root)
	$(AS_ROOT) env LATPROF_VM=1 LATPROF_VM_PATHS=1 LATPROF_VM_KERNELS="$(KERNELS)" \
		packaging/latprof test tests/vm

test-matrix: ## the same under every kernel of the matrix: hours (as root)
	$(MAKE) test-vm KERNELS="$(MATRIX)"

release: ## make in dist/ what users install, of the last commit, or PARTS of it (as root)
	$(AS_ROOT) packaging/make-release dist $(PARTS)

clean: ## remove what was built, kernels and .venv too
	rm -rf build dist analysis/docs/api $(VENV)

# nearcall: one command for each thing one does here. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
ARGS ?=
VERSIONS ?=
COMPATIBILITY ?=
COMMITS ?= HEAD~100
WORKERS ?= 4
FUZZ_SECONDS ?= 30
SOAK_SECONDS ?= 1200
HOSTILE_SECONDS ?= 5

VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
STAMPS := $(VENV)/stamps
export VIRTUAL_ENV := $(VENV)
export PYO3_PYTHON := $(PY)
unexport PYTHONHOME
# The tests start hundreds of interpreters: each would compile again all that it imports.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(PATH):$(HOME)/.cargo/bin

RUST_MINIMUM := $(shell sed -n 's/^rust-version = "\(.*\)".*/\1/p' Cargo.toml)
RUST_SOURCES := Cargo.toml $(wildcard Cargo.lock) $(shell find crates -name '*.rs' -o -name Cargo.toml)
PYTHON_CODE := python lab tests examples tools
PAGES := README.md docs
TYPED_CODE := python/nearcall $(wildcard examples tests/typing tests/programs)
# The binding's own crate is tested from Python: alone it would have no interpreter to link to.
# `make loom` runs the models: they need an optimised build.
RUST_TESTED := --workspace --exclude nearcall-python --exclude nearcall-models
# What may differ from one version of Python to the next, without the minutes of tests/survival and the lab.
SHORT_TESTS := tests/unit tests/e2e tests/test_docs.py tests/test_protocol.py

# For `make locks`: the files in which locks are taken with others held, chosen so that together they take
# nearly all pairs of locks that all tests take (`test_stop.py`: many calls that wait).
LOCKS_TESTS := $(addprefix tests/e2e/test_,$(addsuffix .py,aio backpressure buffers compress concurrency early_ends \
  grpc_client grpc_health grpc_server http1_pool introspection lifecycle loops places references references_refused \
  references_waiting route_aio sessions started streams stuck task_turns topics)) tests/survival/test_stop.py tests/hostile/test_topics.py

.PHONY: help setup profiled wheel dist try-dist rmr demo test test-rust test-python test-transports test-versions test-builds test-short lint fmt bench instructions readme docs check-adapters browser ssh-server nats-server web-peers audit loom locks miri fuzz h2spec interop conformance conformance-built survival sandbox hostile soak push clean tools-present

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMPS)/build $(STAMPS)/lab $(STAMPS)/dev  ## make .venv with nearcall (release build), nearcall-lab, its peers and all tools

profiled: $(STAMPS)/profiled $(STAMPS)/lab $(STAMPS)/dev  ## the same with nearcall built as it is published: the compiler knows what usual work runs

wheel: $(STAMPS)/tools  ## build the wheel as it is published; in dist/
	@$(PY) tools/profiled_build.py dist

# Programs that were linked with RMR's own library ask for the second name.
rmr: tools-present  ## build librmr_si.so, with which programs for RMR run; in target/rmr/ (docs/rmr.md)
	@cargo build -q --release -p nearcall-rmr
	@mkdir -p target/rmr && cp target/release/librmr_si.so target/rmr/ && ln -sf librmr_si.so target/rmr/librmr_si.so.4
	@echo "rmr: target/rmr/librmr_si.so, crates/rmr/include/rmr.h"

# The tests of the wheels need no nearcall here: they install it from each wheel.
dist: $(STAMPS)/dist  ## make what is published, for each promised Python that is here, and try each wheel without a compiler; in dist/
	@$(PY) tools/distribution.py $(if $(VERSIONS),--versions $(VERSIONS)) $(if $(COMPATIBILITY),--compatibility $(COMPATIBILITY)) $(ARGS)
	@$(MAKE) --no-print-directory try-dist

try-dist: $(STAMPS)/dist  ## try what is in dist/: each wheel in a fresh environment, without a compiler
	@NEARCALL_DIST=dist $(PY) -m pytest -q tests/wheels

# Without the tools that only tests and lint need: the first numbers are to be there soon. It says which build it measured.
demo: $(STAMPS)/build $(STAMPS)/lab  ## call one typed service over every local transport, beside its peers; results in out/
	@$(PY) -m nearcall_lab demo $(ARGS)

test: test-rust test-python  ## run all tests, Rust and Python

test-rust: tools-present  ## run the Rust tests
	@cargo test -q $(RUST_TESTED)

# Files take turns in WORKERS processes; a process that a test has ended is not started again to end once more.
test-python: setup conformance-built  ## run the Python tests, WORKERS (4) files at a time (ARGS="-k name" chooses); what fails runs once more, alone
	@$(PY) tools/run_tests.py $(WORKERS) $(ARGS)

test-transports: setup  ## run the slow tests over each transport and in full, not over two of them in turn
	@NEARCALL_TRANSPORTS=all $(PY) -m pytest -m slow --numprocesses $(WORKERS) --dist loadfile $(ARGS)

test-versions: tools-present  ## run the short tests on every Python that is promised and here (VERSIONS="3.10 3.13" chooses)
	@$(PYTHON) tools/try_versions.py $(VERSIONS)

test-builds: setup  ## call older builds of nearcall with this one, and the other way round (COMMITS="1a2b3c4 HEAD~50" says which)
	@$(PY) tools/try_builds.py $(COMMITS) $(ARGS)

# Of one version, whose environment is named with VENV=.
test-short: $(STAMPS)/build $(STAMPS)/dev
	@$(PY) -m pytest -q $(or $(ARGS),$(SHORT_TESTS))

lint: setup  ## check format, lint rules, types, floors, the compiled module's stub and what it asks of each Python
	@$(PY) tools/check_floors.py
	@$(PY) tools/check_symbols.py
	@$(VENV)/bin/ruff format --check $(wildcard $(PYTHON_CODE)) $(PAGES)
	@$(VENV)/bin/ruff check $(wildcard $(PYTHON_CODE))
	@$(VENV)/bin/mypy $(TYPED_CODE)
	@cd lab && $(VENV)/bin/mypy    # a package of its own, with its own settings
	@$(VENV)/bin/pyright --warnings $(TYPED_CODE)
	@$(PY) -m mypy.stubtest nearcall._core --mypy-config-file pyproject.toml
	@cargo fmt --all --check
	@cargo clippy -q --workspace --all-targets -- -D warnings
	@echo "lint: all clean"

fmt: setup  ## format all code and apply the safe fixes
	@$(VENV)/bin/ruff check -q --fix-only $(wildcard $(PYTHON_CODE))
	@$(VENV)/bin/ruff format $(wildcard $(PYTHON_CODE)) $(PAGES)
	@cargo fmt --all

bench: profiled  ## measure nearcall against its targets, beside the ring alone; results in out/
	@cargo build -q --release -p nearcall-ring --example ring_floor
	@$(PY) -m nearcall_lab runtime --floor-binary target/release/examples/ring_floor $(ARGS)

instructions: setup  ## count what a call costs in instructions and misses of the caches (valgrind); the same on a noisy machine
	@if command -v valgrind >/dev/null; then $(PY) tools/count_instructions.py $(ARGS); \
	else echo "instructions: skipped, valgrind is missing"; fi

readme: setup  ## put the numbers of the last demo and bench into the README
	@$(PY) tools/update_readme.py $(ARGS)

docs: setup  ## build the documentation site, with the reference of both languages, in out/docs/; fails at a warning or a lost link
	@rm -rf out/docs && mkdir -p out/docs
	@RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc -q --workspace --no-deps --document-private-items
	@cp -r target/doc out/docs/rust
	@$(PY) tools/make_site.py out/docs
	@echo "docs: out/docs/index.html"

check-adapters: $(STAMPS)/build $(STAMPS)/lab  ## check the lab's adapters, on a machine without other work; keeps which passed (ARGS="nearcall-*" chooses)
	@$(PY) -m nearcall_lab check --ship $(or $(ARGS),'*')

audit: tools-present  ## check licences, sources and known vulnerabilities of the Rust dependencies
	@if ! cargo deny --version >/dev/null 2>&1; then \
	  echo "audit: skipped, cargo-deny is missing (three minutes, once: cargo install cargo-deny --locked)"; exit 0; fi; \
	cargo deny --locked check bans licenses sources; \
	if cargo deny fetch db >/dev/null 2>&1; then cargo deny --locked check advisories; \
	else echo "audit: vulnerabilities not checked, the advisory database cannot be fetched"; fi

loom: tools-present  ## try the ring, the locks and who waits for whom under every interleaving (loom)
	@CARGO_TARGET_DIR=target/loom CARGO_PROFILE_RELEASE_LTO=false RUSTFLAGS="--cfg loom" \
	  cargo test -q -p nearcall-ring --release --test models $(ARGS)
	@CARGO_TARGET_DIR=target/loom CARGO_PROFILE_RELEASE_LTO=false \
	  cargo test -q -p nearcall-models --release models:: $(ARGS)

locks: setup  ## run the tests of what waits in a debug build, which sees locks held where the interpreter is waited for
	@rm -rf target/locks/wheels target/locks-venv
	@$(VENV)/bin/maturin build -q --profile dev --target-dir target/locks --out target/locks/wheels
	@$(PY) -m venv --without-pip target/locks-venv
	@site="$$(echo target/locks-venv/lib/python*/site-packages)"; ls -d $(VENV)/lib/python*/site-packages > "$$site/tools.pth"; \
	  $(PY) -m zipfile -e target/locks/wheels/*.whl "$$site"
	@target/locks-venv/bin/python -P -m pytest -q -p no:cacheprovider -n $(WORKERS) --dist loadfile $(or $(ARGS),$(LOCKS_TESTS))

miri: tools-present  ## run the ring's tests in miri, which sees undefined behaviour
	@if cargo +nightly miri --version >/dev/null 2>&1; then \
	  MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test -q -p nearcall-ring --test lane $(ARGS); \
	else echo "miri: skipped, the component is missing (rustup component add --toolchain nightly miri rust-src)"; fi

fuzz: tools-present  ## fuzz the decoders, each for FUZZ_SECONDS (30)
	@if ! cargo +nightly fuzz --version >/dev/null 2>&1; then \
	  echo "fuzz: skipped, cargo-fuzz on a nightly toolchain is missing (cargo install cargo-fuzz --locked)"; \
	else for target in $$(cargo +nightly fuzz list); do \
	  echo "fuzz: $$target, $(FUZZ_SECONDS) s"; \
	  mkdir -p "fuzz/target/corpus/$$target"; \
	  cargo +nightly fuzz run "$$target" "fuzz/target/corpus/$$target" "fuzz/corpus/$$target" -- -max_total_time=$(FUZZ_SECONDS) -verbosity=0 -print_final_stats=1; done; fi

push: setup  ## count what subscribers of a topic cost a server: threads, memory, processor time
	@$(PY) tools/push_cost.py $(ARGS)

h2spec: tools-present  ## ask h2spec whether crates/http speaks HTTP/2 (go install github.com/summerwind/h2spec/cmd/h2spec@latest)
	@cargo build -q --release -p nearcall-http --example echo
	@$(PYTHON) tools/run_h2spec.py target/release/examples/echo $(ARGS)

interop: setup  ## try gRPC's interoperability cases and the examples in other languages; needs Go, Rust, Node, Java with Maven (each may lack)
	@NEARCALL_INTEROP=all $(PY) -m pytest tests/interop tests/test_docs.py -k "interop or commands_print" --timeout 1800 -o faulthandler_timeout=0 $(ARGS)

# The runner of Connect's conformance suite. Where it cannot be had its tests are skipped, and say why.
conformance-built: $(STAMPS)/build
	@$(PY) -m tests.conformance.building || true

conformance: setup  ## run all cases of Connect's conformance suite at our server and our client: gRPC, gRPC-Web, Connect; needs Go
	@$(PY) -m tests.conformance.building
	@NEARCALL_CONFORMANCE=all $(PY) -m pytest -q tests/conformance --timeout 1800 -o faulthandler_timeout=0 -s $(ARGS)

survival: setup  ## kill either side at every system call, over every transport; says how soon it was noticed
	@NEARCALL_SURVIVAL=all NEARCALL_TRANSPORTS=all $(PY) -m pytest tests/survival --timeout 1800 -o faulthandler_timeout=0 $(ARGS)

sandbox: setup  ## try to escape from the sandbox, each attempt as every user
	@NEARCALL_SANDBOX=all $(PY) -m pytest tests/sandbox $(ARGS)

hostile: setup  ## attack servers and clients, HOSTILE_SECONDS (5) and much data each; says what an honest client saw
	@NEARCALL_HOSTILE_SECONDS=$(HOSTILE_SECONDS) NEARCALL_TRANSPORTS=all $(PY) -m pytest tests/hostile --timeout 900 -o faulthandler_timeout=0 $(ARGS)

soak: setup  ## run the long tests, SOAK_SECONDS (1200) each
	@NEARCALL_SOAK_SECONDS=$(SOAK_SECONDS) $(PY) -m pytest -m soak --timeout $$(($(SOAK_SECONDS) + 180)) -o faulthandler_timeout=0 $(ARGS)

browser:  ## install Chromium, which tests of the lab's page look through (Debian, as root; without it they skip)
	@if command -v chromium >/dev/null; then echo "browser: $$(command -v chromium) is there"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1 \
	    && echo "browser: installed" || echo "browser: skipped, apt-get cannot install chromium"; \
	else echo "browser: skipped, it needs root and apt-get; elsewhere set NEARCALL_LAB_BROWSER to a Chromium"; fi

ssh-server:  ## install OpenSSH's server, which tests of the lab's other machines connect to (Debian, as root; without it they skip)
	@if [ -x /usr/sbin/sshd ]; then echo "ssh-server: /usr/sbin/sshd is there"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends openssh-server openssh-client; } >/dev/null 2>&1 \
	    && echo "ssh-server: installed" || echo "ssh-server: skipped, apt-get cannot install openssh-server"; \
	else echo "ssh-server: skipped, it needs root and apt-get; elsewhere set NEARCALL_LAB_SSHD to an sshd"; fi

nats-server:  ## install nats-server, for tests of nats:// and the lab's row of NATS (Debian, as root; without it they say so)
	@if command -v nats-server >/dev/null || [ -x /usr/sbin/nats-server ]; then echo "nats-server: it is there"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends nats-server; } >/dev/null 2>&1 \
	    && echo "nats-server: installed" || echo "nats-server: skipped, apt-get cannot install nats-server"; \
	else echo "nats-server: skipped, it needs root and apt-get; elsewhere put nats-server on the PATH"; fi

web-peers: setup  ## install other implementations of Connect (npm, Go, PyPI; each may lack), and test both ways with them
	@if command -v npm >/dev/null; then (cd tests/web && npm ci --silent --no-audit --no-fund); \
	else echo "web-peers: connect-node is left out, it needs Node and npm"; fi
	@if command -v go >/dev/null; then (cd tests/web/go && go build -o ../../../target/web/connect-go .); \
	else echo "web-peers: connect-go is left out, it needs Go"; fi
	@$(PIP) install -r tests/web/python/requirements.txt \
	  || echo "web-peers: connectrpc is left out, it cannot be installed here"
	@$(PY) -m pytest -q tests/e2e/test_web_peers.py $(ARGS)

clean:  ## remove everything that was built, .venv included
	@rm -rf .venv target fuzz/target out dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find python lab tests examples tools -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	@rm -f python/nearcall/_core*.so

# What the machine has to bring. Each missing thing is said in one line.
tools-present:
	@command -v cargo >/dev/null || { echo "nearcall needs Rust $(RUST_MINIMUM) or newer, and there is no cargo: install it from rustup.rs" >&2; exit 1; }
	@have=$$(rustc --version | cut -d' ' -f2); \
	  [ "$$(printf '%s\n' "$(RUST_MINIMUM)" "$$have" | sort -V | head -1)" = "$(RUST_MINIMUM)" ] \
	  || { echo "nearcall needs Rust $(RUST_MINIMUM) or newer, this is $$have: run rustup update" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "nearcall needs a C compiler, and there is no cc: install gcc or clang" >&2; exit 1; }

# The steps of `make setup`. Each leaves a stamp and runs again only when what it was made from has changed.
$(STAMPS)/venv: | tools-present
	@command -v $(PYTHON) >/dev/null \
	  || { echo "nearcall needs Python 3.10 or newer, and there is no $(PYTHON): name another with PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "nearcall needs Python 3.10 or newer, $(PYTHON) is $$($(PYTHON) --version): name another with PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "$(PYTHON) cannot make virtual environments: install its venv package (python3-venv on Debian)" >&2; exit 1; }
	@echo "setup: $(VENV:$(CURDIR)/%=%) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@mkdir -p $(STAMPS) && touch $@

# What builds; and what tests and lints, which a demo does without.
$(STAMPS)/tools: pyproject.toml $(STAMPS)/venv
	@$(PIP) install --group build
	@touch $@

$(STAMPS)/dev: pyproject.toml $(STAMPS)/tools
	@echo "setup: tools for tests and lint"
	@$(PIP) install --group dev
	@touch $@

# What makes and tries the distributions.
$(STAMPS)/dist: pyproject.toml $(STAMPS)/tools
	@$(PIP) install --group dist
	@touch $@

# In a terminal Cargo shows how far it is.
$(STAMPS)/build: $(RUST_SOURCES) pyproject.toml $(STAMPS)/tools
	@echo "setup: building nearcall (the first time some minutes)"
	@$(if $(shell [ -t 2 ] && echo yes),,CARGO_TERM_QUIET=true) PIP_QUIET=1 $(VENV)/bin/maturin develop -q --release --group build
	@touch $@

# Touches the other stamp, too: what it was made from is in place, and is not to be built once more.
$(STAMPS)/profiled: $(RUST_SOURCES) pyproject.toml tools/profiled_build.py tools/usual_work.py $(STAMPS)/tools
	@$(PY) tools/profiled_build.py
	@touch $(STAMPS)/build $@

# A peer without a wheel for this Python must not stop the others: the lab reports the ones it cannot import.
$(STAMPS)/lab: lab/pyproject.toml $(STAMPS)/tools | $(STAMPS)/build
	@echo "setup: nearcall-lab and its peers"
	@$(PIP) install -e './lab[peers]' \
	  || { echo "setup: not every peer can be installed here; the lab leaves those out" >&2; $(PY) tools/install_peers.py; }
	@touch $@

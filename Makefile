# Everything that the project needs is set up by these targets: Python 3.11 or later and make are enough. Without make,
# `python -m tests.run` does what most of them do, in an environment with the `dev` extra (docs/platforms.md).
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PORT ?= 8080
WORKERS ?= 3
CASES ?= 20000
MINUTES ?= 30
SECONDS ?= 3000
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# With it, each of the hundreds of commands that the tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-fast test-long fuzz attacks soak shake interop interop-matrix conformance tck proxies console operate bench cost docs release check format peers clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/installed ## Serve examples/demo.toml on 127.0.0.1: an MCP server as an agent, and that as MCP (PORT=8080)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mcp-a2a serve --port "$(PORT)" examples/demo.toml

test: .venv/developing ## Run the whole test suite, side by side (WORKERS=3)
	@$(BIN)/python -m tests.run test --workers $(WORKERS)

test-fast: .venv/developing ## Run the tests that need no process and no socket (WORKERS=3)
	@$(BIN)/python -m tests.run test-fast --workers $(WORKERS)

test-long: .venv/developing ## Run the tests that take seconds each, most of them with many processes (WORKERS=3)
	@$(BIN)/python -m tests.run test-long --workers $(WORKERS)

.PHONY: like-windows
like-windows: .venv/developing peers ## Run what reads pipes, starts processes and hears signals on a loop that refuses what Windows' one refuses
	$(BIN)/python -m pytest tests/mcp tests/process tests/cli tests/agents_as_tools tests/tools_as_agent -n $(WORKERS) --dist worksteal --like-windows

fuzz: .venv/developing ## Attack every parser with hostile input (CASES=20000), other cases each time
	$(BIN)/python -m pytest tests -n $(WORKERS) --dist worksteal -m hypothesis --hypothesis-profile fuzz
	$(BIN)/python -m tests.hostile --cases $(CASES)

attacks: .venv/developing ## Attack a bridge in every known way beside an honest caller, and say what that costs (4 minutes)
	@$(BIN)/python -m tests.hostile.attacks

soak: .venv/developing ## Load one bridge with good and hostile callers, and see that it stays flat (MINUTES=30)
	@$(BIN)/python -m tests.hostile.soak --minutes $(MINUTES)

shake: .venv/developing ## Kill, pause, crash and cut off replicas of one PostgreSQL, and check all they told (SECONDS=3000)
	@$(BIN)/python -m tests.shake --seconds $(SECONDS)

interop: .venv/developing ## Run the tests that take minutes: a thousand kills, long runs, real peers both ways
	@$(BIN)/python -m tests.run interop

interop-matrix: .venv/developing ## Run the frameworks of docs/interop.md both ways (makes an environment for each, in .peers/matrix)
	@$(BIN)/python -m tests.matrix

conformance: .venv/developing peers ## Run the official MCP suite and our A2A checks, and with TCK=path the A2A TCK (3 minutes)
	@$(BIN)/python -m tests.conformance
	@test -z "$(TCK)" || $(BIN)/python -m tests.conformance.tck "$(TCK)"

tck: .venv/developing ## Run the MUST tests of the official A2A TCK against the bridge (TCK=path of a checkout; 2 minutes)
	@$(BIN)/python -m tests.conformance.tck "$(TCK)"

proxies: .venv/developing ## Run the bridge behind nginx and Caddy, as docs/guides says (installs them with apt, as root)
	@$(BIN)/python -m tests.proxies

console: has-chromium .venv/browsing peers ## See the console in Chromium: every page, two people, axe-core (apt: chromium; 2 minutes; PICTURES=1: makes the pictures of docs/console.md)
	@PICTURES="$(PICTURES)" $(BIN)/python -m pytest tests/console_browser/journeys.py

.PHONY: has-chromium
has-chromium:
	@test -n "$${CHROMIUM:-$$(command -v chromium || command -v chromium-browser)}" || { \
	  echo "There is no Chromium: apt-get install chromium, or name it: make console CHROMIUM=/path/to/chromium" >&2; exit 2; }

operate: .venv/operating peers ## See the alerts and the dashboard before a real Prometheus (apt fetches it; 2 minutes)
	@$(BIN)/python -m tests.operate.installed
	@$(BIN)/python -m pytest tests/operate -m "not slow" -n $(WORKERS) --dist worksteal

bench: .venv/benching ## Measure the bridge beside an earlier commit, the MCP SDK and a2a-sdk, and write docs/benchmarks.md (BEFORE=COMMIT; 7 minutes)
	@$(BIN)/python -m tests.benchmarks.page $(if $(BEFORE),--before "$(BEFORE)")

cost: .venv/developing ## Measure the CPU time of a call beside another checkout (BEFORE=its folder; 6 minutes)
	@$(BIN)/python -m tests.benchmarks.cost "$(BEFORE)"

docs: .venv/documenting ## Make a site of docs/ in .run/site, and check every link and anchor
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

release: .venv/releasing .venv/documenting peers ## Play a release, its newcomer, its site and its README in a new folder of .run: nothing is published (6 minutes)
	@mkdir -p .run && $(BIN)/python -m tests.release all "$$(mktemp -d .run/release.XXXXXX)"

check: .venv/developing ## Check format, lint, types and layers
	@$(BIN)/python -m tests.run check

format: .venv/developing ## Format the code and mend what can be mended
	@$(BIN)/python -m tests.run format

peers: .venv/developing ## Install the MCP servers and SDKs that the tests talk to (npm, into .peers)
	@$(BIN)/python -m tests.run peers

clean: ## Remove what the other targets made
	rm -rf .venv .run .peers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed; name one: make PYTHON=/path/to/python3.12")'
	@echo "Making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	@echo "Installing mcp-a2a and what it needs into .venv: pip works in silence, for a minute or so"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/developing: pyproject.toml | .venv/bin/python
	@echo "Installing mcp-a2a and what its development needs into .venv: pip works in silence, for a minute or two"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ .venv/installed

.venv/benching: .venv/developing
	@echo "Installing what the benchmarks need into .venv: pip works in silence"
	@$(BIN)/python -m pip install --quiet --editable '.[dev,bench]'
	@touch $@

.venv/browsing: .venv/developing
	@echo "Installing what drives the browser into .venv: pip works in silence"
	@$(BIN)/python -m pip install --quiet --editable '.[dev,browser]'
	@touch $@

.venv/documenting: .venv/developing
	@echo "Installing what makes the site into .venv: pip works in silence"
	@$(BIN)/python -m pip install --quiet --editable '.[dev,site]'
	@touch $@

.venv/releasing: .venv/developing
	@echo "Installing what builds a release into .venv: pip works in silence"
	@$(BIN)/python -m pip install --quiet --editable '.[dev,release]'
	@touch $@

.venv/operating: .venv/developing
	@echo "Installing what judges the dashboard into .venv: pip works in silence"
	@$(BIN)/python -m pip install --quiet --editable '.[dev,operate]'
	@touch $@

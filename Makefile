# `make demo` and `make test` are the two commands to know; `make help` lists the rest.
# Each makes .venv first if need be; a second call starts at once.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
INSTALLED := $(VENV)/.stamp-install $(VENV)/.stamp-native
NATIVE := $(shell find pyspark_log -name '*.pyx' -o -name '*.pxd' -o -name '*.h') $(wildcard pyspark_log/warm_python/*.c)

# Spark starts Python by these names, on the driver and in its workers. Without them it takes the
# python3 of the PATH, which has none of our packages.
export PYSPARK_PYTHON := $(BIN)/pylog-python
export PYSPARK_DRIVER_PYTHON := $(BIN)/pylog-python
# The demo and the tests start hundreds of Pythons. Where this is set, each compiles again all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# Four processes on two cores, as half of their time is spent in waiting. One that hung and was ended is not replaced:
# the next one would begin with the same test. The slowest tests are listed at the end.
SPREAD := -n 4 --no-loadscope-reorder --max-worker-restart 0 --durations=50 --durations-min=1
# A few crash points and generated examples: the same ones in each run of a commit.
FEW := CRASH_POINTS=$${CRASH_POINTS:-few} PYLOG_TEST_EXAMPLES=$${PYLOG_TEST_EXAMPLES:-50}
# Else the files of tests are in memory where there is room (tests/conftest.py).
ON_DISK := PYTEST_DEBUG_TEMPROOT=$${PYTEST_DEBUG_TEMPROOT:-$${TMPDIR:-/tmp}}

.PHONY: help
help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

.PHONY: demo
demo: java $(VENV)/.stamp-demo $(VENV)/.stamp-native  ## 336,776 flights through a store: load, stream, check, look; STORE=s3://...: there
	@"$(BIN)/python" examples/flights_demo.py $(if $(STORE),"$(STORE)")

.PHONY: test
test: java-note $(INSTALLED)  ## The fast tests: four minutes on two cores
	$(FEW) "$(BIN)/python" -m pytest $(SPREAD) -m "not slow" --budget tests/budget.toml

# All that CI runs, in one run: the fast tests, and the slow ones but the long. What fails by luck is run again, and named.
.PHONY: test-ci
test-ci: kafka-note clients-note archives
	$(FEW) "$(BIN)/python" -m tests.again $(SPREAD) -m "not long"

.PHONY: test-slow
test-slow: java-note $(INSTALLED)  ## The slow tests, and all points and examples of which `make test` tries some
	$(ON_DISK) "$(BIN)/python" -m pytest $(SPREAD) -m "slow or sampled"

.PHONY: often
often: java kafka-jars client-programs object-servers archives  ## Tests that start processes, 30 times, four side by side: nine hours
	$(FEW) "$(BIN)/python" -m tests.often --runs $(or $(RUNS),30)

# The connector must work with each PySpark from the oldest that setup allows.
OTHER_PYSPARK ?= 4.0.2
OF_OTHER = PYTHONPATH="$(CURDIR)/.pyspark/$(OTHER_PYSPARK)"
.pyspark/$(OTHER_PYSPARK): $(INSTALLED)
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$@" "pyspark==$(OTHER_PYSPARK)"

# PySpark 4.0 leaves a connection open with each read.
.PHONY: test-pyspark
test-pyspark: java .pyspark/$(OTHER_PYSPARK)  ## The fast tests of the connector with another PySpark: OTHER_PYSPARK=4.0.2
	$(OF_OTHER) "$(BIN)/python" -m pytest -m "not slow" -W ignore::pytest.PytestUnraisableExceptionWarning \
		tests/spark tests/unit/connector

.PHONY: test-all
test-all: java-note $(INSTALLED)  ## Every test
	"$(BIN)/python" -m pytest $(SPREAD)

.PHONY: audit
audit: $(INSTALLED)  ## Known weaknesses of all packages that are installed here, by pip-audit
	"$(PYTHON)" -m venv .audit
	.audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	"$(BIN)/python" -m pip freeze --exclude-editable > .audit/packages
	.audit/bin/pip-audit --strict --no-deps --disable-pip -r .audit/packages

# One after the other. docs/internals/testing.md describes each, and when it was run last.
.PHONY: test-long
test-long:  ## What takes many hours: test-all with its files on a disk, model, fuzz, programs, campaigns, crash
	$(ON_DISK) $(MAKE) test-all
	$(MAKE) model
	$(MAKE) fuzz
	$(MAKE) programs
	$(MAKE) campaign
	$(MAKE) server-campaign
	$(MAKE) transaction-campaign
	$(MAKE) cluster-campaign
	$(MAKE) object-campaign
	$(MAKE) group-campaign
	$(MAKE) table-campaign
	$(MAKE) real-time-campaign
	$(MAKE) schema-campaign
	$(MAKE) simulation
	$(MAKE) crash

.PHONY: model
model: $(INSTALLED)  ## The model of the protocol, in full, and each of its rules: a quarter of an hour
	"$(BIN)/python" -m tests.model --size full

.PHONY: campaign
campaign: java $(INSTALLED)  ## Streaming queries whose processes are killed 200 times: an hour and a half
	"$(BIN)/python" -m tests.campaigns queries --kills 200

.PHONY: server-campaign
server-campaign: java kafka-jars archives  ## A server, its clients, a publisher and Spark, killed 200 times: a quarter of an hour
	"$(BIN)/python" -m tests.campaigns server --kills 200

.PHONY: transaction-campaign
transaction-campaign: java kafka-jars archives object-servers  ## Transactions of clients, which are killed with their servers or cluster, 820 times: an hour and a half
	"$(BIN)/python" -m tests.campaigns transactions --kills 100
	"$(BIN)/python" -m tests.campaigns transactions --kills 200 --cluster folder --spark
	"$(BIN)/python" -m tests.campaigns transactions --kills 200 --cluster objects --spark
	"$(BIN)/python" -m tests.campaigns transactions --kills 200 --cluster moto
	"$(BIN)/python" -m tests.campaigns transactions --kills 60 --cluster ours
	"$(BIN)/python" -m tests.campaigns transactions --kills 60 --cluster mixed

# In namespaces of the network, so it wants root.
.PHONY: cluster-campaign
cluster-campaign: kafka-jars archives  ## Clusters of nodes, and of nodes and Kafka: kills, partitions of the network, full disks, 100 each: half an hour
	"$(BIN)/python" -m tests.campaigns cluster --members ours,ours,ours --kills 100
	"$(BIN)/python" -m tests.campaigns cluster --members kafka,kafka39,ours --kills 100

.PHONY: table-campaign
table-campaign: java .pyspark/$(OTHER_PYSPARK)  ## Tables of Delta and Iceberg: the samples, and queries whose driver is killed 30 times each: a quarter of an hour
	PYLOG_REQUIRE=tables $(OF_OTHER) "$(BIN)/python" -m pytest tests/campaigns/test_tables_page.py
	$(OF_OTHER) "$(BIN)/python" -m tests.campaigns tables --kind delta --kills 30
	$(OF_OTHER) "$(BIN)/python" -m tests.campaigns tables --kind iceberg --kills 30

.PHONY: real-time-campaign
real-time-campaign: java kafka-jars  ## A query in Spark's real-time mode and its server, killed 100 times; at Kafka 30 times: half an hour
	"$(BIN)/python" -m tests.campaigns real-time --kills 100
	"$(BIN)/python" -m tests.campaigns real-time --kills 30 --system kafka

.PHONY: schema-campaign
schema-campaign: kafka-jars  ## Values of 30,000 schemas, and 20,000 pairs of schemas, beside Java's classes: four minutes
	PYLOG_REQUIRE=kafka SCHEMA_CASES=100 "$(BIN)/python" -m pytest -o timeout=0 tests/kafka/test_values_of_schemas.py

.PHONY: group-campaign
group-campaign: $(INSTALLED)  ## Members of a group without a server, that join, leave, die and sleep, 500 times: ten minutes
	"$(BIN)/python" -m tests.campaigns groups --kills 250
	"$(BIN)/python" -m tests.campaigns groups --kills 250 --assignor range

.PHONY: simulation
simulation: $(INSTALLED)  ## Servers of an object store and their clients in one thread, on a clock of their own, for 200 hours: a quarter of an hour
	"$(BIN)/python" -m tests.simulation --hours 200

.PHONY: object-campaign
object-campaign: object-servers $(INSTALLED)  ## A store in an object store: its processes and its server, killed 40 times: three minutes
	"$(BIN)/python" -m tests.campaigns objects --kills 40 --stops 10

.PHONY: recordings
recordings: $(INSTALLED) .kafka/.stamp client-programs  ## Records the sessions of clients at Kafka that tests/recordings repeats: three minutes
	"$(BIN)/python" -m tests.recordings.make

.PHONY: fuzz
fuzz: $(INSTALLED)  ## Damaged bytes to every reader of files and messages: ten million inputs, two hours on two cores
	"$(BIN)/python" tests/fuzz/fuzz.py --inputs 1000000

.PHONY: programs
programs: $(INSTALLED)  ## Random programs of several processes against a model in memory: 100,000 calls, half an hour
	"$(BIN)/python" -m tests.programs --operations 100000

.PHONY: crash
crash: $(INSTALLED)  ## Stops, power losses and faults at every change to files, not at a sample of them: many hours
	CRASH_POINTS=$${CRASH_POINTS:-all} "$(BIN)/python" -m pytest -o faulthandler_timeout=0 --durations=50 tests/crash

# How strong the tests are. MUTANTS="--tests COMMIT" tries the same changes with the tests of another commit.
.PHONY: mutants
mutants: $(INSTALLED)  ## Small changes of the product, and which ones the fast tests find: some hours on two cores
	"$(BIN)/python" -m tests.mutants --seed $${SEED:-45} --count 300 $(MUTANTS)

.PHONY: lint
lint: $(INSTALLED)  ## Style, types and import directions
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check --quiet .
	"$(BIN)/mypy"
	"$(BIN)/lint-imports" --no-logo

.PHONY: bench
bench: java $(INSTALLED)  ## The figures of benchmarks/results, measured on this machine
	@for script in $$(grep -l __main__ benchmarks/*.py); do echo "== $$script"; "$(BIN)/python" "$$script"; done

.PHONY: bench-check
bench-check: $(INSTALLED)  ## Fails if the engine has become slower beside what the machine can do: two minutes
	@"$(BIN)/python" benchmarks/check.py

.PHONY: docs
docs: $(VENV)/.stamp-docs  ## The documentation as a site in build/site, strictly: a dead link ends it
	@"$(BIN)/python" docs/build.py

.PHONY: wheel
wheel: $(INSTALLED)  ## A wheel for this Python and machine, in dist/
	"$(BIN)/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

# With a container engine, for all Pythons: what [tool.cibuildwheel] of pyproject.toml says.
.PHONY: wheels
wheels:  ## Wheels for all Pythons from 3.11 on that run on most of Linux, in dist/ (needs docker or podman)
	"$(PYTHON)" -m pip install --quiet --disable-pip-version-check --target .cibuildwheel cibuildwheel
	PYTHONPATH="$(CURDIR)/.cibuildwheel" "$(PYTHON)" -m cibuildwheel --platform linux --output-dir dist

# --- the environment -------------------------------------------------------------------------------

# What the demo, the tutorial and move-job need, and what tests and lint need besides.
DEMO_EXTRAS := spark,examples,ui,objects,move
ALL_EXTRAS := $(DEMO_EXTRAS),server,test,dev
# uv takes a third of pip's time. Both show how far they are.
INSTALL = $$([ -x "$(BIN)/uv" ] && echo "$(BIN)/uv pip install --python $(BIN)/python" || \
	echo "$(BIN)/python -m pip install --disable-pip-version-check")

$(VENV)/.stamp-venv:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "pyspark-log needs Python 3.11 or later as $(PYTHON); name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	@command -v $${CC:-cc} >/dev/null || { \
		echo "Building pyspark-log needs a C compiler (Debian, Ubuntu: apt install build-essential; macOS: xcode-select --install)." >&2; \
		exit 1; }
	@echo "1 of 3  Making .venv."
	@"$(PYTHON)" -m venv "$(VENV)"
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check uv || echo "uv cannot be had here: pip takes its place."
	@$(INSTALL) --quiet 'Cython>=3.1' 'setuptools>=77'
	@touch "$@"

# The compiled kernels, again when their source has changed.
$(VENV)/.stamp-native: $(VENV)/.stamp-venv setup.py $(NATIVE)
	@echo "2 of 3  Compiling the kernels (half a minute)."
	@"$(BIN)/python" setup.py --quiet build_ext --inplace
	@install -m 755 build/pylog-python "$(BIN)/"
	@touch "$@"

$(VENV)/.stamp-demo: pyproject.toml | $(VENV)/.stamp-native
	@echo "3 of 3  Installing Spark and what the examples need (half a minute; 0.9 GB)."
	@$(INSTALL) --no-build-isolation --editable '.[$(DEMO_EXTRAS)]'
	@touch "$@"

$(VENV)/.stamp-install: pyproject.toml | $(VENV)/.stamp-native
	@echo "3 of 3  Installing Spark and what the tests need (a minute; 2 GB)."
	@$(INSTALL) --no-build-isolation --editable '.[$(ALL_EXTRAS)]'
	@touch "$@" "$(VENV)/.stamp-demo"

$(VENV)/.stamp-docs: pyproject.toml | $(VENV)/.stamp-native
	@$(INSTALL) --quiet --no-build-isolation --editable '.[docs]'
	@touch "$@"

NO_JAVA := Spark needs Java 17 or later, and none was found by JAVA_HOME or PATH. Get one (Debian, Ubuntu: \
sudo apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME to one you have.

# The number before the first dot; empty without Java, 1 for Java 8 and older.
JAVA_MAJOR = $$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' || true)

# Of Java's classes, with which each Spark and Kafka of the tests starts in half of the time.
.PHONY: archives
archives: $(INSTALLED)
	@"$(BIN)/python" -m tests.java_archives

test: archives

.PHONY: java java-note
java:
	@major="$(JAVA_MAJOR)"; [ "$${major:-0}" -ge 17 ] || { echo "$(NO_JAVA)" >&2; exit 1; }

java-note:
	@major="$(JAVA_MAJOR)"; [ "$${major:-0}" -ge 17 ] || echo "$(NO_JAVA) The tests with Spark are skipped." >&2

# --- Kafka, which tests/kafka runs ------------------------------------------------------------------

COPY_JARS := mvn -q -B dependency:copy-dependencies -DincludeScope=runtime

.PHONY: kafka-jars
kafka-jars: .kafka/.stamp .kafka/.stamp-3.9.1 .kafka/.stamp-schemas  ## Kafka's own classes for the tests in tests/kafka, by Maven

.kafka/.stamp: tests/kafka/pom.xml tests/kafka/streams-pom.xml tests/kafka/spark-pom.xml
	@command -v mvn >/dev/null || { \
		echo "Fetching Kafka needs Maven (Debian, Ubuntu: apt install maven; macOS: brew install maven)." >&2; exit 1; }
	@echo "Fetching Kafka's classes (once; 170 MB)."
	@rm -rf .kafka
	@$(COPY_JARS) -f tests/kafka/pom.xml "-DoutputDirectory=$(CURDIR)/.kafka/jars"
	@$(COPY_JARS) -f tests/kafka/streams-pom.xml "-DoutputDirectory=$(CURDIR)/.kafka/streams-jars"
	@$(COPY_JARS) -f tests/kafka/spark-pom.xml "-DoutputDirectory=$(CURDIR)/.kafka/spark-jars" || \
		echo "Spark's connector to Kafka could not be fetched: the tests that compare ours with it are skipped." >&2
	@touch "$@"

# Clusters of tests have nodes of it beside the newest.
.kafka/.stamp-3.9.1: tests/kafka/kafka39-pom.xml .kafka/.stamp
	@echo "Fetching an older Kafka (once; 45 MB)."
	@rm -rf .kafka/jars-3.9*
	@$(COPY_JARS) -f $< "-DoutputDirectory=$(CURDIR)/.kafka/jars-3.9"
	@touch "$@"

.kafka/.stamp-schemas: tests/kafka/schemas-pom.xml .kafka/.stamp
	@echo "Fetching Java's classes of Avro and Protobuf (once; 8 MB)."
	@rm -rf .kafka/schemas-jars
	@$(COPY_JARS) -f $< "-DoutputDirectory=$(CURDIR)/.kafka/schemas-jars"
	@touch "$@"

# Without Maven, or offline, all the other tests run.
.PHONY: kafka-note
kafka-note:
	@$(MAKE) -s --no-print-directory kafka-jars || echo "The tests with Kafka are skipped." >&2

# --- programs over clients of other languages, which tests/clients runs ------------------------------

CLIENTS := .clients
# Compiled in two thirds of the time: tests do not need fast programs.
GO_QUICKLY := '-gcflags=all=-N -l' -ldflags=-w
CLIENT_SOURCES = $(shell find tests/clients/$(1) -type f)

.PHONY: client-programs
client-programs: $(addprefix $(CLIENTS)/.stamp-,go js rust)  ## Kafka's clients of other languages for the tests in tests/clients

$(CLIENTS)/.stamp-go: $(call CLIENT_SOURCES,go)
	@if command -v go >/dev/null; then \
		echo "Building the programs in Go."; \
		mkdir -p "$(CLIENTS)/go" && go build -C tests/clients/go $(GO_QUICKLY) -o "$(CURDIR)/$(CLIENTS)/go/" ./... && touch "$@"; \
	else \
		echo "There is no Go here: its clients are left out (Debian, Ubuntu: apt install golang)." >&2; \
	fi

# Node is one of the packages, as not every library runs with an older one. node-rdkafka is compiled for it, by a C++
# compiler with the headers of zlib.
$(CLIENTS)/.stamp-npm: tests/clients/js/package.json tests/clients/js/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "Fetching the clients of JavaScript (once; takes minutes)."; \
		mkdir -p "$(CLIENTS)/js" && cp $^ "$(CLIENTS)/js/" && cd "$(CLIENTS)/js" && \
		npm ci --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null && \
		node=$$(realpath node_modules/.bin/node) && \
		PATH="$${node%/*}:$$PATH" npm rebuild node-rdkafka "--nodedir=$${node%/bin/node}" --loglevel error >/dev/null && \
		touch "$(CURDIR)/$@"; \
	else \
		echo "There is no npm here: the clients of JavaScript are left out (Debian, Ubuntu: apt install npm)." >&2; \
	fi

# Node looks for packages beside the programs.
$(CLIENTS)/.stamp-js: $(CLIENTS)/.stamp-npm $(wildcard tests/clients/js/*.js)
	@if [ -e "$<" ]; then cp tests/clients/js/*.js "$(CLIENTS)/js/" && touch "$@"; fi

# librdkafka is compiled with it.
$(CLIENTS)/.stamp-rust: $(call CLIENT_SOURCES,rust)
	@if command -v cargo >/dev/null; then \
		echo "Building the programs in Rust (once; takes minutes)."; \
		cargo build --quiet --locked --manifest-path tests/clients/rust/Cargo.toml \
			--target-dir "$(CLIENTS)/rust" && touch "$@"; \
	else \
		echo "There is no Cargo here: the clients of Rust are left out (Debian, Ubuntu: apt install cargo)." >&2; \
	fi

# versitygw keeps objects in files, so it can be killed. 1.7.0 does not keep the condition of put-if-absent in races: no
# store may be created there, as one of the long tests shows.
VERSITYGW := 1.8.0
OLD_VERSITYGW := 1.7.0
AZURITE := 3.37.0

.PHONY: object-servers
object-servers: $(patsubst %,$(CLIENTS)/object-servers/.stamp-%,$(VERSITYGW) azurite)  ## Servers of objects for tests: two minutes

$(CLIENTS)/object-servers/.stamp-azurite:
	@if command -v npm >/dev/null; then \
		echo "Fetching Azurite (once)."; \
		npm install --prefix "$(CLIENTS)/object-servers/azurite" --ignore-scripts --no-audit --no-fund --loglevel error \
			azurite@$(AZURITE) >/dev/null && touch "$@"; \
	else \
		echo "There is no npm here: the tests with Azurite are skipped (Debian, Ubuntu: apt install npm)." >&2; \
	fi

$(CLIENTS)/object-servers/.stamp-%:
	@if command -v go >/dev/null; then \
		echo "Building versitygw $* (once; takes minutes)."; \
		mkdir -p "$(CLIENTS)/object-servers/$*" && \
		GOBIN="$(CURDIR)/$(CLIENTS)/object-servers/$*" go install $(GO_QUICKLY) github.com/versity/versitygw/cmd/versitygw@v$* && touch "$@"; \
	else \
		echo "There is no Go here: the tests with versitygw are skipped (Debian, Ubuntu: apt install golang)." >&2; \
	fi

# Its objects are files, and their attributes others beside them, as not every file system has some.
OBJECT_SERVER := $(CURDIR)/.object-server
.PHONY: object-server
object-server: $(CLIENTS)/object-servers/.stamp-$(firstword $(VERSITYGW))  ## An object store on this machine, for trying: s3://bucket, until Ctrl-C
	@mkdir -p $(OBJECT_SERVER)/objects/bucket $(OBJECT_SERVER)/attributes
	@echo "An object store with the bucket \"bucket\", in $(OBJECT_SERVER). Elsewhere:"
	@echo "export AWS_ENDPOINT=http://127.0.0.1:7070 AWS_ACCESS_KEY_ID=me AWS_SECRET_ACCESS_KEY=secret AWS_REGION=us-east-1 AWS_ALLOW_HTTP=true"
	@exec $(CLIENTS)/object-servers/$(firstword $(VERSITYGW))/versitygw --port 127.0.0.1:7070 --access me --secret secret --quiet posix \
		--sidecar $(OBJECT_SERVER)/attributes $(OBJECT_SERVER)/objects

.PHONY: browser
browser:  ## Chromium for the tests of the page, where Debian's packages can be installed
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" -eq 0 ]; then \
		echo "Installing Chromium (once)."; \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends \
			chromium chromium-driver fonts-dejavu-core >/dev/null; \
	else \
		echo "There is no Chromium here: the tests with it are skipped (Debian: sudo apt install chromium chromium-driver)." >&2; \
	fi

.PHONY: clients-note
clients-note:
	@$(MAKE) -s -k -j2 --no-print-directory client-programs object-servers $(BESIDES) || echo "The tests with clients that are missing are skipped." >&2

test-slow test-all: BESIDES := $(CLIENTS)/object-servers/.stamp-$(OLD_VERSITYGW)
test-slow test-all: kafka-note clients-note archives

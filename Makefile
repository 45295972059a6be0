# What a machine with Go, git and make needs to build, test and measure lockproxy. make help says what
# there is: it shows what stands behind "##".

GO ?= go
MAKEFLAGS += --no-print-directory

# The server that tests run with: the one that is installed, or REDIS, the path of a redis-server or
# valkey-server, or of its folder.
REDIS =
SERVER := $(shell sh internal/test/testredis/server.sh $(REDIS) || echo none)
$(if $(filter none,$(SERVER)),$(error REDIS is the path of no server))
export PATH := $(if $(SERVER),$(SERVER):)$(PATH)

.PHONY: help build test test-pages test-faults test-clients test-admin test-memory test-lockbench lint \
	long release deb man clean deps format compile test-race test-norace

build: ## 1 min: the program, ./lockproxy
	$(GO) build -o lockproxy ./cmd/lockproxy

help: ## this list; times are those of two cores that have compiled everything before
	@echo 'make TARGET'
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1|\2/p' Makefile | awk -F'|' '{ printf "  %-20s %s\n", $$1, $$2 }'
	@echo 'make long SUITE="NAME NAME", or SUITE=all'
	@sed -nE 's/^long-([a-z-]+):[^#]*## (.*)/\1|\2/p' $(LONG) | awk -F'|' '{ printf "  %-20s %s\n", $$1, $$2 }'

# Installs what tests need and is missing, with Debian's package manager; deps-clients, say, what those
# of clients need as well.
deps:
	@sh internal/test/testredis/install.sh

INSTALL-clients = bash test/clients/testdata/install.sh
INSTALL-faults = sh internal/test/faults/install.sh
INSTALL-admin = sh internal/admin/install.sh
INSTALL-packaging = sh deploy/install.sh
INSTALL-model = sh internal/test/model/install.sh
deps-%: deps
	@$(INSTALL-$*)

# For the tests and for the programs that they build, in a clone too, so that nothing is compiled
# twice. What only debuggers need takes much of the time of compilers and linkers. The race detector
# leaves out cryptographic primitives: they share nothing with lockproxy, and the buffers that they are
# given are watched by crypto/tls. Each program with the race detector would sleep for a second before
# it ends.
FLAGS = -trimpath -gcflags=all=-dwarf=false \
	"-gcflags=crypto/internal/fips140/...=-dwarf=false -race=false" "-ldflags=-s -w"
RACE = GORACE=atexit_sleep_ms=0 GOFLAGS='-race $(FLAGS)'

# Files that begin with "//go:build !race" are tested without the race detector: tests in virtual
# time, see internal/test/virtualtest, and tests that only compare or compute, which take three to ten
# times as long with it. The other targets share what has been compiled for these.
NORACE = GOFLAGS='$(FLAGS)'
NORACE_FILES := $(shell grep -rlE --include='*_test.go' '^//go:build .*!race' .)
NORACE_PACKAGES := $(sort $(dir $(NORACE_FILES)))

# They begin first, so that none is left to run alone.
LONGEST = ./test/locks/real ./test/cluster ./test/sharing ./test/relay ./cmd/lockproxy ./lockcmd

# Tests wait more than they compute, so the parts run at the same time. make lint does the vetting.
TIMEOUT = 20m
test: deps format compile ## 5 min: all packages, against real servers and in virtual time
	@$(MAKE) --jobs=2 --keep-going test-race test-norace

test-race:
	@built=$$(mktemp -d); trap 'rm -rf "$$built"' EXIT; \
	$(RACE) $(GO) build -o "$$built" ./cmd/lockproxy || exit 1; \
	LOCKPROXY_TEST_BINARY="$$built/lockproxy" $(RACE) $(GO) test -vet=off -count=1 \
		-timeout $(TIMEOUT) -p 4 -parallel 3 $(LONGEST) ./...

test-norace:
	@tests=$$(sed -nE 's/^func ((Test|Fuzz)[A-Z][A-Za-z0-9_]*)\(.*/\1/p' $(NORACE_FILES) | paste -sd '|' -); \
	GOGC=400 $(NORACE) $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) -p 3 -parallel 3 \
		-run "^($$tests)$$" $(NORACE_PACKAGES)

# Compiles what the tests need, and links nothing. GOGC lets compilers finish sooner.
compile:
	@$(RACE) GOGC=400 $(GO) list -export -deps -test ./... >/dev/null
	@$(NORACE) GOGC=400 $(GO) list -export -deps -test $(NORACE_PACKAGES) >/dev/null

# The pauses of the shell are those of people who read, and some steps count on them.
test-pages: deps ## 1 min: what README and docs show is typed into a shell, and prints what they say
	$(RACE) $(GO) test -tags pages -vet=off -count=1 -timeout 10m -parallel 5 \
		-run '^TestPages$$' ./cmd/lockproxy

# Each line of docs/guarantees.md, and the histories that show what is not promised.
test-faults: deps-faults ## 3 min: what docs/guarantees.md promises, with faults injected into processes
	GORACE=atexit_sleep_ms=0 $(NORACE) $(GO) test -tags faults -vet=off -count=1 -parallel 6 -timeout 10m -p 2 \
		-run '^(TestFault|TestPromised|TestNotPromised|TestOverload)' ./test/faults ./test/locks/real

test-clients: deps-clients ## 3 min: client libraries in nine languages, the helpers, adapters and recipes
	$(NORACE) $(GO) test -tags clients -vet=off -count=1 -timeout 10m \
		-parallel 6 -run 'TestClients|TestHelper|TestAdapter|TestRecipe' -v ./test/clients

test-admin: deps-admin ## 2 min: the live page in Chromium, dashboard and alerts in a real Prometheus
	$(NORACE) $(GO) test -tags admin -vet=off -count=1 -timeout 5m -run 'TestAlert|TestPrometheus' ./internal/admin
	$(NORACE) $(GO) -C test/browser test -vet=off -count=1 -timeout 10m -parallel 4 .

# Of 10,000 clients, too, whose connections to Redis are counted.
test-memory: deps ## 2 min: memory and processor time under hostile and slow clients
	$(NORACE) $(GO) test -tags memory -vet=off -count=1 -timeout 10m \
		-run 'Hostile|SlowReader|MemoryOf|PipelineWritten|EndlessLine' ./test/relay

# lockbench is a module of its own: what it measures with is no dependency of lockproxy.
test-lockbench: deps ## 1 min: the benchmark's own tests
	$(RACE) $(GO) -C cmd/lockbench test -vet=off -count=1 -timeout 5m ./...

format:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi

CHECKS = staticcheck govulncheck
lint: format ## 5 min: gofmt, go vet and CHECKS (staticcheck, govulncheck), of tests with any build tag too
	$(NORACE) GO="$(GO)" sh internal/test/lint.sh 'admin clients faults memory pages' $(CHECKS)
	$(RACE) $(GO) -C cmd/lockbench vet ./...
	$(NORACE) $(GO) -C test/browser vet .
	$(NORACE) $(GO) -C clients/go vet .

LONG = internal/test/long.mk
include $(LONG)

# A suite that fails does not stop the others.
long: ## tests that take longer, and benchmarks, by name; all of them pass before a release
	@[ -n "$(SUITE)" ] || { $(MAKE) help; exit 2; }
	@failed=; for suite in $(if $(filter all,$(SUITE)),$(shell sed -nE 's/^long-([a-z-]+):[^#]*##.*/\1/p' $(LONG)),$(SUITE)); \
	do $(MAKE) long-$$suite || failed="$$failed $$suite"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

release: ## 3 min: archives, Debian packages, bills of materials and checksums, in dist
	deploy/release.sh dist $(VERSION)

# It takes longer when it builds nfpm for the first time.
deb: ## 1 min: the Debian package for this machine, in dist, in place of older ones
	ONLY=deb deploy/release.sh ./dist "$(VERSION)" linux/$$($(GO) env GOARCH)

man: ## the manual page, after flags have changed
	$(GO) test -count=1 -run TestManualPage ./cmd/lockproxy -args -update-man

clean: ## removes what the targets above have made
	rm -rf dist lockproxy lockbench locktools bench.md bench.csv

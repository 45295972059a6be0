# What a machine with Go, git and make needs to build, test and measure lockproxy.

GO ?= go
FUZZTIME ?= 10m

.PHONY: all build test test-race test-norace test-memory test-pages test-stress test-lockbench format compile test-dedicated test-transports test-packaging test-darwin release deb man test-clients test-rights test-torture test-older test-libraries test-deadlocks test-clients-cluster test-cluster test-failovers test-versions test-redis-suite test-redis-suite-cluster test-admin fuzz test-faults soak model model-quick bench deps deps-clients deps-faults deps-admin deps-packaging deps-model deps-ci vet mutate clean

all: build

build:
	$(GO) build -o lockproxy ./cmd/lockproxy

# Installs what the tests need and is missing, with Debian's package manager.
deps:
	@sh internal/test/testredis/install.sh

deps-clients: deps
	@bash test/clients/testdata/install.sh

deps-faults:
	@sh internal/test/faults/install.sh

deps-admin:
	@sh internal/admin/install.sh

deps-packaging:
	@sh deploy/install.sh

deps-model:
	@sh lockcmd/model/install.sh

# One after the other, since the package manager doesn't run twice.
deps-ci:
	@for part in clients faults admin; do $(MAKE) --no-print-directory deps-$$part || exit 1; done

# For the tests and for the programs that they build, in a clone too, so that nothing is compiled
# twice. What only debuggers need takes much of the time of compilers and linkers. Each program with
# the race detector would sleep for a second before it ends.
RACE = GORACE=atexit_sleep_ms=0 GOFLAGS='-race -trimpath -gcflags=all=-dwarf=false "-ldflags=-s -w"'

# Files that begin with "//go:build !race" are tested without the race detector: tests in virtual
# time, see internal/test/virtualtest, and tests that only compare or compute, which take three to ten
# times as long with it. The other targets share what has been compiled for these.
NORACE = GOFLAGS='-trimpath -gcflags=all=-dwarf=false "-ldflags=-s -w"'
NORACE_FILES := $(shell grep -rlE --include='*_test.go' '^//go:build .*!race' .)
NORACE_PACKAGES := $(sort $(dir $(NORACE_FILES)))

# They begin first, so that none is left to run alone.
LONGEST = ./test/locks/real ./test/cluster ./test/sharing ./test/relay ./cmd/lockproxy ./lockcmd

# Tests wait more than they compute, so the parts run at the same time. make vet does the vetting.
TIMEOUT = 20m
test: deps format compile
	@$(MAKE) --no-print-directory --jobs=2 --keep-going test-race test-norace

test-race:
	@built=$$(mktemp -d); trap 'rm -rf "$$built"' EXIT; \
	$(RACE) $(GO) build -o "$$built" ./cmd/lockproxy || exit 1; \
	LOCKPROXY_TEST_BINARY="$$built/lockproxy" $(RACE) $(GO) test -vet=off -count=1 \
		-timeout $(TIMEOUT) -p 4 -parallel 3 $(LONGEST) ./...

test-norace:
	@tests=$$(sed -nE 's/^func ((Test|Fuzz)[A-Z][A-Za-z0-9_]*)\(.*/\1/p' $(NORACE_FILES) | paste -sd '|' -); \
	GOGC=400 $(NORACE) $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) -p 3 -parallel 3 \
		-run "^($$tests)$$" $(NORACE_PACKAGES)

# make test, or PACKAGES only, while other programs take all cores and sync the disk, and redis-servers
# stop for up to 2 s now and then. What fails there only judges the machine.
test-stress: deps format compile
	$(GO) run ./internal/test/stress -- \
		$(if $(PACKAGES),$(RACE) $(GO) test -vet=off -count=1 -timeout 60m $(PACKAGES),$(MAKE) test TIMEOUT=60m)

# Compiles what the tests need, and links nothing. GOGC lets compilers finish sooner.
compile:
	@$(RACE) GOGC=400 $(GO) list -export -deps -test ./... >/dev/null
	@$(NORACE) GOGC=400 $(GO) list -export -deps -test $(NORACE_PACKAGES) >/dev/null

# Memory and processor time under hostile and slow clients, and of 10,000 clients, whose connections
# to Redis are counted, without the race detector.
test-memory: deps
	$(NORACE) $(GO) test -tags memory -vet=off -count=1 -timeout 10m \
		-run 'Hostile|SlowReader|MemoryOf|PipelineWritten|EndlessLine' ./test/relay

# What the README and docs show is typed into a shell, and prints what they say. Its pauses are those
# of people who read, and some steps count on them.
test-pages: deps
	$(RACE) $(GO) test -tags pages -vet=off -count=1 -timeout 10m -run '^TestPages$$' ./cmd/lockproxy

format:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi

# lockbench is a separate module: what it measures with is no dependency of lockproxy.
test-lockbench: deps
	$(RACE) $(GO) -C cmd/lockbench test -vet=off -count=1 -timeout 5m ./...

# The tests that compare the proxy with Redis, and those that attack it, once more with an upstream connection for each client.
DIFFERENTIAL = ^TestDifferential(StateAfterErrors)?$$
test-dedicated: deps
	LOCKPROXY_TEST_UPSTREAM_MODE=dedicated $(GO) test -tags memory -race -count=1 -timeout 8m -run 'Differential|Upstream|Hostile|Attack|Limits|Leak' \
		./test/relay ./test/sharing ./test/locks/real
	LOCKPROXY_TEST_UPSTREAM_MODE=dedicated $(NORACE) $(GO) test -vet=off -count=1 -timeout 8m \
		-run '$(DIFFERENTIAL)' ./test/relay

# The tests of whole proxies by each transport, of upstreams before the slash and of clients behind it. make test chooses
# one for each server and proxy, by a seed that it prints if it fails: LOCKPROXY_TEST_TRANSPORT can be that seed, too.
TRANSPORTS = tcp/tcp tls/unix unix/tls
test-transports: deps
	for by in $(TRANSPORTS); do export LOCKPROXY_TEST_TRANSPORT=$$by; \
		$(RACE) $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) -p 2 -parallel 3 \
			./test/locks/real ./test/cluster ./test/sharing ./test/relay && \
		$(NORACE) $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) -run '$(DIFFERENTIAL)' ./test/relay || \
		exit 1; done

# Everything, with the tests that have a build tag.
vet: format
	$(NORACE) $(GO) vet -tags 'admin clients faults memory pages' ./...
	$(RACE) $(GO) -C cmd/lockbench vet ./...

# Real client libraries in nine languages through the proxy, the helpers, adapters and recipes;
# installs them first.
test-clients: deps-clients
	$(NORACE) $(GO) test -tags clients -vet=off -count=1 -timeout 10m \
		-parallel 4 -run 'TestClients|TestHelper|TestAdapter|TestRecipe' -v ./test/clients
	$(NORACE) $(GO) test -vet=off -count=1 ./examples/clients/go

# What each client may do, known by its logins alone, is compared with what it can do: STEPS requests in front of a cluster and of one Redis, while
# connections are closed and slots move, with and without shared connections. SEED is one that it has printed.
test-rights: STEPS = 100000
test-rights: deps
	for mode in shared dedicated; do LOCKPROXY_TEST_UPSTREAM_MODE=$$mode LOCKPROXY_TEST_RIGHTS=$(STEPS) LOCKPROXY_TEST_SEED=$(SEED) \
		$(GO) test -race -count=1 -timeout 0 -run '^TestRights$$' -v ./test/cluster || exit 1; done

# The five older locks next to LOCK, in two minutes.
test-older: deps-clients
	$(GO) test -tags clients -count=1 -timeout 10m -run TestOlder -v ./test/clients

# Clients whose connections, upstream ones too, are closed all the time, and clients that leave their
# connections to others in all ways, each knowing its replies, for REQUESTS requests; then foreign
# pushes to all connections.
test-torture: REQUESTS = 200000
test-torture: deps
	LOCKPROXY_TEST_TORTURE=$(REQUESTS) $(GO) test -tags faults -race -count=1 -timeout 0 -run 'Torture|NoSilence' -v \
		./test/sharing ./test/relay

# Owners that take locks in random orders, for DURATION of virtual time: every deadlock is found in time, and nothing else.
test-deadlocks: DURATION = 10m
test-deadlocks: deps
	LOCKPROXY_TEST_DEADLOCKS=$(DURATION) $(NORACE) $(GO) test -vet=off -count=1 -timeout 0 -run TestDeadlocksOfRandomLockOrders -v ./test/locks/virtual

# The locks of other libraries next to LOCK WAIT, with and without --park, 5,000 times each.
test-libraries: deps-clients
	$(GO) test -tags clients -count=1 -timeout 15m -run TestLockLibraries -parallel 4 -v ./test/clients

# The same client libraries, with data and locks, through lockproxy in front of a Redis Cluster of six nodes.
test-clients-cluster: deps-clients
	$(GO) test -tags clients -count=1 -timeout 10m -run TestClusterClients -v ./test/clients

# Locks and data on a Redis Cluster of six nodes while masters die, stop, are replaced, and slots and nodes move, in about seven minutes;
# prints what was counted. See docs/cluster-locks.md and docs/cluster.md. CLUSTER=TestClusterLocksGoOn is half a minute of it.
CLUSTER ?= TestClusterLockFault|TestClusterLocksGoOn|TestClusterRandomFaults|TestClusterFaults|TestClusterSilentNode|TestIsolation.*|TestLocksOfServersFarAway
test-cluster: deps
	$(GO) test -tags faults -race -count=1 -timeout 15m -run '^($(CLUSTER))$$' -v ./test/faults ./test/cluster

# Random faults of a group with Sentinels and of a cluster, FAULTS of each, under clients that are
# judged; see docs/cluster-locks.md. SEED is one that it has printed.
test-failovers: FAULTS = 250
test-failovers: deps
	LOCKPROXY_TEST_FAILOVERS=$(FAULTS) LOCKPROXY_TEST_SEED=$(SEED) $(GO) test -tags faults -race -count=1 -timeout 0 \
		-run '^(TestSentinelRandomFaults|TestClusterRandomFaults)$$' -v ./test/faults

# The live page in a headless Chromium, the dashboard and the alerts in a real Prometheus; installs both first.
test-admin: deps deps-admin
	$(NORACE) $(GO) test -tags admin -vet=off -count=1 -timeout 5m -parallel 4 \
		-run 'TestPage|TestAlert|TestPrometheus' ./internal/admin

# The lock tests on servers of other versions, which it fetches but doesn't install; see docs/versions.md.
test-versions: deps
	sh internal/test/testredis/test-versions.sh

# Redis's own test suite through lockproxy, in shared and in dedicated mode, in about 15 minutes; fetches it first. UNITS="unit/pubsub unit/multi"
# names units, ROUNDS=3 runs all three times. TRANSPORT=tls or TRANSPORT=unix is how lockproxy reaches Redis.
test-redis-suite: deps
	GO="$(GO)" bash internal/test/testredis/redis-suite.sh

# The same in cluster mode, in front of three masters.
test-redis-suite-cluster: deps
	CLUSTER=yes GO="$(GO)" bash internal/test/testredis/redis-suite.sh

# Feeds each parser what nobody thought of, for FUZZTIME each; then the properties, with many more cases than make test.
fuzz:
	$(GO) test -run '^$$' -fuzz '^FuzzFramer$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./internal/resp
	$(GO) test -run '^$$' -fuzz '^FuzzScanner$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./internal/resp
	$(GO) test -run '^$$' -fuzz '^FuzzOptions$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./lockcmd
	$(GO) test -run '^$$' -fuzz '^FuzzRoute$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./internal/cluster
	$(GO) test -count=1 -run 'Property|AgainstModel' ./internal/resp ./passthrough ./lockcmd -rapid.checks=20000

# Everything that lockbench measures, next to HAProxy, twemproxy and other locks (installed if missing), in about half an hour; prints the
# tables, and writes them and every figure to bench.md and bench.csv. SUITES are some of its suites, BENCH is for its flags: BENCH=--quick
# takes about 6 minutes.
SUITES = all
bench: deps
	$(GO) -C cmd/lockbench build -o ../../lockbench .
	./lockbench $(SUITES) -o bench.md $(BENCH)

# Archives, Debian packages, bills of materials and checksums in dist; see deploy/release.sh.
release:
	deploy/release.sh dist $(VERSION)

# The Debian package for this machine, in dist, in place of older ones. It takes some minutes when it builds nfpm for the first time.
deb:
	ONLY=deb deploy/release.sh ./dist "$(VERSION)" linux/$$($(GO) env GOARCH)

# What packages, image and manifests say is looked at, a release is built for all platforms, and a package twice and compared; it is
# installed, used and purged in an overlay of this system, which stays as it is. As root.
test-packaging: deps deps-packaging
	nice -n 19 bash deploy/test.sh

# That it compiles for macOS, with tests; they are run on Linux only.
test-darwin:
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./cmd/lockproxy

# The manual page, after flags have changed.
man:
	$(GO) test -count=1 -run TestManualPage ./cmd/lockproxy -args -update-man

# What docs/guarantees.md says, each line of it: faults injected into real processes, and the histories that show what is not promised.
test-faults: deps deps-faults
	GORACE=atexit_sleep_ms=0 $(NORACE) $(GO) test -tags faults -vet=off -count=1 -parallel 6 -timeout 10m -p 2 \
		-run '^(TestFault|TestPromised|TestNotPromised|TestOverload)' ./test/faults ./test/locks/real

# Random faults for DURATION, which follow from SEED; it prints the one it has chosen. FAR=100ms puts one of the three proxies so far from
# Redis, in each direction: make soak DURATION=30m FAR=100ms. It needs root and iproute2, for a machine that vanishes; SOAK is for its flags:
# SOAK=--no-machine leaves that out.
DURATION ?= 10m
SEED ?= 0
FAR ?= 0s
soak: deps deps-faults
	$(GO) build -o locksoak ./cmd/locksoak
	./locksoak --duration $(DURATION) --seed $(SEED) --far $(FAR) $(SOAK)

# Every order of steps that the lock protocol allows, see lockcmd/model/README.md: about 15 minutes of one core and 1.1 GB, or of both cores half that
# time and twice the memory. MODEL is for its flags.
model: deps-model
	nice -n 10 $(GO) run ./lockcmd/model $(MODEL)

# The smaller searches, and every broken rule: less than a minute.
model-quick: deps-model
	nice -n 10 $(GO) run ./lockcmd/model -quick $(MODEL)

# COUNT changes at each of PLACES (all if empty), drawn by SEED, one at a time: which do all tests that
# reach them let live? See CONTRIBUTING.md. ONLY names one change.
mutate: COUNT = 15
mutate: PLACES =
mutate: deps
	@$(NORACE) GOGC=400 nice -n 10 $(GO) run ./cmd/lockmutate -seed $(SEED) -count $(COUNT) -places '$(PLACES)' -only '$(ONLY)'

clean:
	rm -f locksoak
	rm -rf dist
	rm -f lockproxy lockbench bench.md bench.csv

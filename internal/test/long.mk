# The suites of make long: what takes longer than a change can wait for. They are not listed in .PHONY
# one by one, since no file has their names.

SEED ?= 0

# A signal reaches the tool: go run would end alone.
LOCKTOOLS = $(GO) build -o locktools ./cmd/locktools && exec $(NICE) ./locktools
long-model long-mutate: NICE = nice -n 10

# PACKAGES instead of make test. What fails here only judges the machine.
long-stress: deps format compile ## 20 min: make test under processor and disk pressure, with random stalls
	$(LOCKTOOLS) stress -- \
		$(if $(PACKAGES),env $(RACE) $(GO) test -vet=off -count=1 -timeout 60m $(PACKAGES),$(MAKE) test TIMEOUT=60m)

# Clients whose connections, upstream ones too, are closed all the time, and clients that leave their
# connections to others in all ways, each knowing its replies; then foreign pushes to all connections.
long-torture: REQUESTS = 200000
long-torture: deps ## 10 min: each client gets its own replies, for REQUESTS requests, whatever is closed
	LOCKPROXY_TEST_TORTURE=$(REQUESTS) $(GO) test -tags faults -race -count=1 -timeout 0 -run 'Torture|NoSilence' -v \
		./test/sharing ./test/relay

# In front of a cluster and of one Redis, with and without shared connections, while connections are
# closed and slots move.
long-rights: STEPS = 100000
long-rights: deps ## 5 min: each client can do exactly what its login allows, for STEPS requests, by SEED
	for mode in shared dedicated; do LOCKPROXY_TEST_UPSTREAM_MODE=$$mode LOCKPROXY_TEST_RIGHTS=$(STEPS) LOCKPROXY_TEST_SEED=$(SEED) \
		$(GO) test -race -count=1 -timeout 0 -run '^TestRights$$' -v ./test/cluster || exit 1; done

# Those that compare the proxy with Redis, and those that attack it.
DIFFERENTIAL = ^Test(Differential(StateAfterErrors|Cluster)?|Introspection.*)$$
long-dedicated: deps ## 8 min: the tests of the relay with a connection to Redis for each client
	LOCKPROXY_TEST_UPSTREAM_MODE=dedicated $(GO) test -tags memory -race -count=1 -timeout 0 -run 'Differential|Upstream|Hostile|Attack|Limits|Leak' \
		./test/relay ./test/sharing ./test/locks/real
	LOCKPROXY_TEST_UPSTREAM_MODE=dedicated $(NORACE) $(GO) test -vet=off -count=1 -timeout 0 \
		-run '$(DIFFERENTIAL)' ./test/relay

# Of upstreams before the slash, of clients behind it. make test chooses one for each server and proxy,
# by a seed that it prints if it fails: LOCKPROXY_TEST_TRANSPORT can be that seed, too.
TRANSPORTS = tcp/tcp tls/unix unix/tls
long-transports: deps ## 15 min: the tests of whole proxies by TCP, TLS and Unix sockets
	for by in $(TRANSPORTS); do export LOCKPROXY_TEST_TRANSPORT=$$by; \
		$(RACE) $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) -p 2 -parallel 3 \
			./test/locks/real ./test/cluster ./test/sharing ./test/relay && \
		$(NORACE) $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) -run '$(DIFFERENTIAL)' ./test/relay || \
		exit 1; done

# UNITS="unit/pubsub unit/multi" names units, ROUNDS=3 runs all three times. TRANSPORT=tls or unix is how
# lockproxy reaches Redis. It fetches the suite first.
long-redis-suite: deps ## 15 min: Redis's own test suite through lockproxy
	GO="$(GO)" bash internal/test/testredis/redis-suite.sh

long-redis-suite-cluster: deps ## 15 min: the same in front of a cluster of three masters
	CLUSTER=yes GO="$(GO)" bash internal/test/testredis/redis-suite.sh

# See docs/compatibility.md. VERSIONS="trixie/redis-server" names servers, PACKAGES=./test/relay packages.
long-versions: deps ## 40 min: all tests that start servers, with each Redis and Valkey of Debian; a table
	$(NORACE) GO="$(GO)" PACKAGES="$(PACKAGES)" bash internal/test/testredis/versions.sh $(VERSIONS)

# Masters die, stop and are replaced, and slots and nodes move. It prints what was counted; see
# docs/cluster.md. CLUSTER=TestClusterLocksGoOn is half a minute of it.
CLUSTER ?= TestClusterLockFault|TestClusterLocksGoOn|TestClusterRandomFaults|TestClusterFaults|TestClusterSilentNode|TestIsolation.*|TestLocksOfServersFarAway
long-cluster: deps ## 7 min: faults injected into a Redis Cluster of six nodes
	$(GO) test -tags faults -race -count=1 -timeout 15m -run '^($(CLUSTER))$$' -v ./test/faults ./test/cluster

# See docs/cluster.md. SEED is one that it has printed.
long-failovers: FAULTS = 250
long-failovers: deps ## 20 min: FAULTS random faults of a group with Sentinels, and of a cluster, by SEED
	LOCKPROXY_TEST_FAILOVERS=$(FAULTS) LOCKPROXY_TEST_SEED=$(SEED) $(GO) test -tags faults -race -count=1 -timeout 0 \
		-run '^(TestSentinelRandomFaults|TestClusterRandomFaults)$$' -v ./test/faults

# FAR=100ms puts one of the three proxies so far from Redis, in each direction. It needs root and
# iproute2, for a machine that vanishes; SOAK is for its flags: SOAK=--no-machine leaves that out.
DURATION ?= 10m
FAR ?= 0s
long-soak: deps-faults ## DURATION: random faults under clients that are judged, by SEED
	$(LOCKTOOLS) soak --duration $(DURATION) --seed $(SEED) --far $(FAR) $(SOAK)

long-deadlocks: DURATION = 10m
long-deadlocks: deps ## 5 min: every deadlock of random lock orders is found, for DURATION of virtual time
	LOCKPROXY_TEST_DEADLOCKS=$(DURATION) $(NORACE) $(GO) test -vet=off -count=1 -timeout 0 -run TestDeadlocksOfRandomLockOrders -v ./test/locks/virtual

long-libraries: deps-clients ## 10 min: the locks of other libraries next to LOCK … WAIT, with and without --park
	$(GO) test -tags clients -count=1 -timeout 15m -run TestLockLibraries -parallel 4 -v ./test/clients

long-older: deps-clients ## 2 min: the five older locks next to LOCK
	$(GO) test -tags clients -count=1 -timeout 10m -run TestOlder -v ./test/clients

# With the crates of Debian's unstable packages.
long-rust: deps-clients ## 5 min: the Rust crate, for threads and for tokio, by the list of make test-clients
	crates=$$(sh test/clients/testdata/crates.sh /var/tmp/lockproxy-crates) && \
	LOCKPROXY_TEST_CRATES=$$crates $(GO) test -tags clients -count=1 -timeout 30m -run TestRustConformance \
		-v ./test/clients

long-ruby: deps-clients ## 1 min: the Ruby gem with redis-rb 5, by the list of make test-clients
	gems=$$(sh test/clients/testdata/gems.sh /var/tmp/lockproxy-gems trixie) && \
	LOCKPROXY_TEST_GEMS=$$gems $(GO) test -tags clients -count=1 -timeout 30m -run TestNewerRubyConformance \
		-v ./test/clients

long-clients-cluster: deps-clients ## 4 min: the programs of make test-clients in front of a cluster
	$(GO) test -tags clients -count=1 -timeout 10m -run TestClusterClients -v ./test/clients

# See internal/test/model/README.md; 1.1 GB, or of both cores half that time and twice the memory. MODEL is
# for its flags: MODEL=-quick takes less than a minute.
long-model: deps-model ## 15 min: every order of steps of the lock protocol
	$(LOCKTOOLS) model $(MODEL)

# COUNT changes at each of PLACES (all if empty), drawn by SEED, one at a time: which do all tests that
# reach them let live? See CONTRIBUTING.md. ONLY names one change.
COUNT = 15
long-mutate: deps ## 3 h: COUNT changes of the product at each of PLACES, by SEED, that no test notices
	@export GOGC=400 $(NORACE); $(LOCKTOOLS) mutate -seed $(SEED) -count $(COUNT) -places '$(PLACES)' -only '$(ONLY)'

# Then the properties, with many more cases than in make test.
FUZZTIME ?= 10m
long-fuzz: ## 45 min: everything that parses, for FUZZTIME each
	$(GO) test -run '^$$' -fuzz '^FuzzFramer$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./internal/resp
	$(GO) test -run '^$$' -fuzz '^FuzzScanner$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./internal/resp
	$(GO) test -run '^$$' -fuzz '^FuzzOptions$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./lockcmd
	$(GO) test -run '^$$' -fuzz '^FuzzRoute$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./internal/cluster
	$(GO) test -count=1 -run 'Property|AgainstModel' ./internal/resp ./passthrough ./lockcmd -rapid.checks=20000

# It is installed, used and purged in an overlay of this system, which stays as it is. As root.
long-packaging: deps-packaging ## 10 min: a release for all platforms; a package built twice, compared and installed
	nice -n 19 bash deploy/test.sh

long-darwin: ## 2 min: it compiles for macOS; tests are run on Linux only
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./cmd/lockproxy

# Next to HAProxy, twemproxy and other locks, which are installed if they are missing. It writes
# bench.md, and bench.csv with every figure. SUITES are some of lockbench's suites, BENCH is for its
# flags: BENCH=--quick takes 6 minutes, BENCH="--page docs/bench.md" writes that page.
SUITES = all
long-bench: deps ## 30 min: what lockproxy costs, next to direct Redis, other proxies and other locks
	$(GO) -C cmd/lockbench build -o ../../lockbench .
	./lockbench $(SUITES) -o bench.md $(BENCH)

#!/bin/sh
# Runs the lock tests on servers of other versions than the one that is installed; see docs/versions.md.
set -eu
cd "$(dirname "$0")/../../.."
cache=${LOCKPROXY_TEST_VERSIONS:-${TMPDIR:-/tmp}/lockproxy-versions}
tests='Lock|Wait|Attack|Session|Owner|Fence|Token|Takeover|Contention|Settle|Replicas|Fsync|Script|Sentinel|FailoverHold|ThreeProxies|Cluster'
# What these compare is not locks: a command's exact words, or its table.
skip='Differential|Introspection|TestRedisCLI'
# RESET, CLIENT INFO, channels in ACLs and passwords between Sentinels came with 6.2, COMMAND DOCS, sharded channels and CLUSTER SHARDS with 7.0. From
# 7.0 on a script's writes too are refused for want of replicas.
before62="$skip|TestBusyScriptLane|TestFenceWithoutUnwatch|TestFenceWithUnknownCommand|WaitCoversWritesByLanes|TestClusterWakes|TestClusterAwareClients|TestLockIsOfTheClientsDatabaseAndUser|TestWaitersOfDifferentUsers|TestSentinelLogin|TestFence\$|TestLockKeyIsMoved|TestLocksOfManyClientsAndRights|TestLockBatch|TestSessionLockEndedByARelayedCommand|TestLockTopAndLogByUser|TestForeignLocksAreSeen|TestWaitersWithoutNotifications|TestIsolationInACluster|TestADeadlockInACluster|RequireFsyncLock|TestSessionLockIsReleasedAfterARefusal"
mkdir -p "$cache.tests"
go test -c -o "$cache.tests/" ./test/locks/real ./test/cluster
trap 'rm -rf "$cache.tests"' EXIT
failed=0
try() {
	bin=$(sh internal/test/testredis/version.sh "$cache" "$1" "$2" "$3")
	echo "$("$bin/redis-server" --version)"
	for part in locks/real cluster; do
		(cd "test/$part" && PATH=$bin:$PATH "$cache.tests/$(basename "$part").test" -test.timeout 10m -test.run "$tests" -test.skip "$4") || failed=1
	done
}
try bullseye redis-server redis-server "$before62"
try trixie redis-server redis-server "$skip"
try trixie valkey-server valkey-server "$skip"
exit $failed

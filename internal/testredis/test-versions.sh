#!/bin/sh
# Runs the lock tests on servers of other versions than the one that is installed; see docs/versions.md.
set -eu
cd "$(dirname "$0")/../.."
cache=${LOCKPROXY_VERSIONS:-${TMPDIR:-/tmp}/lockproxy-versions}
tests='Lock|Wait|Attack|Session|Owner|Fence|Token|Takeover|Contention|Settle|Replicas|Script|Sentinel|FailoverHold|ThreeProxies|Cluster'
# What these compare is not locks: a command's exact words, or its table.
skip='Differential|Introspection|TestRedisCLI'
# RESET, CLIENT INFO, channels in ACLs and passwords between Sentinels came with 6.2, COMMAND DOCS, sharded channels and CLUSTER SHARDS with 7.0.
before62="$skip|TestBusyScriptLane|TestFenceWithoutUnwatch|TestFenceWithUnknownCommand|TestWaitCoversWhatWentByLanes|TestClusterWakes|TestClusterAwareClients|TestLockIsOfTheClientsDatabaseAndUser|TestWaitersOfDifferentUsers|TestSentinelLogin|TestFence\$"
go test -c -o "$cache.test" .
trap 'rm -f "$cache.test"' EXIT
failed=0
try() {
	bin=$(sh internal/testredis/version.sh "$cache" "$1" "$2" "$3")
	echo "$("$bin/redis-server" --version)"
	PATH=$bin:$PATH "$cache.test" -test.timeout 10m -test.run "$tests" -test.skip "$4" || failed=1
}
try bullseye redis-server redis-server "$before62"
try trixie redis-server redis-server "$skip"
try trixie valkey-server valkey-server "$skip"
exit $failed

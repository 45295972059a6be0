#!/bin/bash
# Redis's own test suite, of the version that is installed, in external mode: unit by unit, directly
# and through lockproxy in shared and in dedicated mode. A unit that passes directly must pass through
# the proxy; one that has not ended after 150 s has failed. UNITS names units, all are the default;
# ROUNDS is how often everything is run.
#
# The suite comes from Debian's source package, which is fetched but not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${LOCKPROXY_SUITE:-${TMPDIR:-/tmp}/lockproxy-redis-suite}
bound=150

# fetch unpacks the source package below $cache and prints where its tests are.
fetch() {
	local version upstream apt
	version=$(dpkg-query -W -f '${source:Version}' redis-server)
	upstream=${version#*:}
	upstream=${upstream%%-*}
	if [ ! -x "$cache/redis-$upstream/runtest" ]; then
		mkdir -p "$cache/sources" "$cache/lists/partial"
		sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$cache/sources/debian.sources"
		apt=(-qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$cache/sources" -o Dir::State::lists="$cache/lists")
		(
			cd "$cache"
			apt-get "${apt[@]}" update
			apt-get "${apt[@]}" source --download-only "redis=$version"
			tar xf "redis_$upstream.orig.tar.gz"
		) >"$cache/log" 2>&1 || {
			echo "the source package of redis $version could not be fetched: $(tail -n 1 "$cache/log")" >&2
			exit 1
		}
	fi
	echo "$cache/redis-$upstream"
}

# free prints a port of 127.0.0.1 on which nothing listens.
free() {
	local port
	while port=$((20000 + RANDOM % 10000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
	echo "$port"
}

# listens waits until something listens on a port.
listens() {
	local i
	for ((i = 0; i < 100; i++)); do
		(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
		sleep 0.1
	done
	echo "nothing listens on port $1" >&2
	return 1
}

# try runs a unit in a mode and reports whether it passes. Its output is in $work/out.
try() {
	local mode=$1 unit=$2 server proxy='' port behind status=0
	behind=$(free)
	mkdir -p "$work/data"
	redis-server --port "$behind" --dir "$work/data" --save '' --enable-debug-command yes \
		--enable-protected-configs yes --enable-module-command yes >"$work/redis.log" 2>&1 &
	server=$!
	listens "$behind"
	port=$behind
	if [ "$mode" != direct ]; then
		port=$(free)
		"$work/lockproxy" --upstream "redis://127.0.0.1:$behind" --listen "127.0.0.1:$port" \
			--upstream-mode "$mode" >"$work/proxy.log" 2>&1 &
		proxy=$!
		listens "$port"
	fi
	(cd "$suite" && timeout "$bound" ./runtest --host 127.0.0.1 --port "$port" \
		--tags '-slow -needs:debug -large-memory' --single "$unit") >"$work/out" 2>&1 || status=$?
	kill $server $proxy 2>/dev/null || true
	wait $server $proxy 2>/dev/null || true
	rm -rf "$work/data"
	return $status
}

command -v tclsh >/dev/null || {
	echo "tclsh is missing: install Debian's package tcl" >&2
	exit 1
}
suite=$(fetch)
for tool in redis-server redis-cli redis-benchmark; do
	ln -sf "$(command -v $tool)" "$suite/src/$tool"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${GO:-go}" build -o "$work/lockproxy" ./cmd/lockproxy
# integration/ starts its own servers, as does unit/tls and unit/cluster/: none of that is asked through the proxy.
units=${UNITS:-$(cd "$suite" && ./runtest --list-tests | grep '^unit/' | grep -v 'unit/tls\|unit/cluster/')}
passed=0 failed=0
for ((round = 0; round < ${ROUNDS:-1}; round++)); do
	for unit in $units; do
		if ! try direct "$unit"; then
			echo "skipped  $unit: it does not pass directly"
			continue
		fi
		for mode in shared dedicated; do
			if try "$mode" "$unit"; then
				passed=$((passed + 1))
				continue
			fi
			failed=$((failed + 1))
			echo "FAILED   $unit, $mode:"
			grep -a '\[err\]\|exception' "$work/out" | head -n 5 || tail -n 5 "$work/out"
		done
	done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

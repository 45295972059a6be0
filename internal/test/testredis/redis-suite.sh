#!/bin/bash
# Redis's own test suite, of the version that is installed, in external mode: unit by unit, directly
# and through lockproxy in shared and in dedicated mode. A unit that passes directly must pass through
# the proxy; one that has not ended after 150 s has failed. UNITS names units, all are the default;
# MODES names modes, both are; ROUNDS is how often everything is run.
#
# With CLUSTER=yes it is in cluster mode: directly on a cluster of one node, and through lockproxy
# in front of three masters.
#
# TRANSPORT=tls or TRANSPORT=unix is how lockproxy reaches the servers; the suite itself knows TCP
# only. Certificates need openssl. A cluster has no Unix sockets.
#
# redis-suite-shared.txt, redis-suite-tls.txt and redis-suite-cluster.txt name the tests that are left
# out through lockproxy, and why.
#
# The suite comes from Debian's source package, which is fetched but not installed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
cache=${LOCKPROXY_SUITE:-${TMPDIR:-/tmp}/lockproxy-redis-suite}
unset LOCKPROXY_SUITE # lockproxy refuses a LOCKPROXY_ variable that names no flag
bound=150
cluster=${CLUSTER:-}
transport=${TRANSPORT:-tcp}
case $transport${cluster:+ cluster} in
tcp | tls | unix | 'tcp cluster' | 'tls cluster') ;;
*)
	echo "TRANSPORT is tcp, tls or, without CLUSTER, unix" >&2
	exit 1
	;;
esac

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

# free prints a port of 127.0.0.1 on which nothing listens, nor 10000 above it, where a cluster's
# nodes listen too. Neither is one that the kernel gives to clients.
free() {
	local port
	while
		port=$((11000 + RANDOM % 10000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || (exec 3<>"/dev/tcp/127.0.0.1/$((port + 10000))") 2>/dev/null
	do :; done
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

# certify makes a certificate for 127.0.0.1 that is its own authority.
certify() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost \
		-addext subjectAltName=IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" 2>"$work/log" || {
		cat "$work/log" >&2
		return 1
	}
}

# serve starts a redis-server with these options. Its port is in $behind, and in $ports with those of
# all others, how lockproxy reaches it in $upstream, its process in $processes. The nodes of a cluster
# know it by the port that is in $peers.
serve() {
	local also=() peer
	behind=$(free)
	mkdir -p "$work/data/$behind"
	upstream="redis${cluster:++cluster}://127.0.0.1:$behind" peer=$behind
	case $transport in
	tls)
		peer=$(free)
		upstream="rediss${cluster:++cluster}://127.0.0.1:$peer"
		also=(--tls-port "$peer" --tls-cert-file "$work/cert.pem" --tls-key-file "$work/key.pem" \
			--tls-ca-cert-file "$work/cert.pem" --tls-auth-clients no ${cluster:+--tls-cluster yes --tls-replication yes})
		;;
	unix)
		upstream="unix://$work/data/$behind/socket"
		also=(--unixsocket "$work/data/$behind/socket")
		;;
	esac
	redis-server --port "$behind" --dir "$work/data/$behind" --save '' --enable-debug-command yes \
		--enable-protected-configs yes --enable-module-command yes "${also[@]}" "$@" >"$work/redis.log" 2>&1 &
	processes+=($!)
	ports+=("$behind")
	peers+=("$peer")
	listens "$behind"
}

# form makes a cluster of all servers.
form() {
	local i port n=${#ports[@]}
	for ((i = 0; i < n; i++)); do
		redis-cli -p "${ports[i]}" cluster set-config-epoch $((i + 1))
		redis-cli -p "${ports[i]}" cluster addslotsrange $((i * 16384 / n)) $(((i + 1) * 16384 / n - 1))
		redis-cli -p "${ports[i]}" cluster meet 127.0.0.1 "${peers[0]}"
	done >/dev/null 2>&1
	for port in "${ports[@]}"; do
		for ((i = 0; i < 300; i++)); do
			[ "$(redis-cli -p "$port" cluster info 2>/dev/null | grep -c "^cluster_state:ok\|^cluster_size:$n.\$")" = 2 ] && break
			sleep 0.1
		done
	done
}

# leave_out adds to $options what a list names of the $unit.
leave_out() {
	local test
	while IFS='|' read -r _ test _; do
		options+=(--skiptest "$test")
	done < <(grep "^$unit|" "$here/redis-suite-$1.txt" || true)
}

# try runs a unit in a mode and reports whether it passes. Its output is in $work/out.
try() {
	local mode=$1 unit=$2 port behind status=0 upstream trust=()
	local processes=() ports=() peers=() options=() tags='-slow -needs:debug -large-memory'
	if [ -z "$cluster" ]; then
		serve
		[ "$mode" != shared ] || leave_out shared
		[ "$transport,$mode" != tls,shared ] || leave_out tls
	else
		serve --cluster-enabled yes
		if [ "$mode" != direct ]; then
			serve --cluster-enabled yes
			serve --cluster-enabled yes
			tags+=' -needs:repl' # a replication stream is one node's
			leave_out cluster
		fi
		form
		options+=(--cluster-mode --singledb)
	fi
	port=$behind
	if [ "$mode" != direct ]; then
		port=$(free)
		[ "$transport" != tls ] || trust=(--upstream-tls-ca "$work/cert.pem")
		"$work/lockproxy" --upstream "$upstream" "${trust[@]}" --listen "127.0.0.1:$port" \
			--upstream-mode "$mode" >"$work/proxy.log" 2>&1 &
		processes+=($!)
		listens "$port"
	fi
	# The suite listens 32 below its base port, and doesn't notice that somebody does already.
	(cd "$suite" && timeout "$bound" ./runtest --host 127.0.0.1 --port "$port" "${options[@]}" --baseport "$(($(free) + 32))" \
		--tags "$tags" --single "$unit") >"$work/out" 2>&1 || status=$?
	kill -9 "${processes[@]}" 2>/dev/null || true # a server that runs a script heeds nothing else
	wait "${processes[@]}" 2>/dev/null || true
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
[ "$transport" != tls ] || certify
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
		for mode in ${MODES:-shared dedicated}; do
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

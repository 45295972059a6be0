#!/bin/bash
# Runs the tests that start servers with servers of several versions, one after the other, and prints
# a table. It fetches what is not installed, and keeps it, but installs nothing.
#
#	versions.sh [SERVER ...]
#
# A SERVER is the path of a redis-server or valkey-server, "installed", a Debian release and a package
# as in trixie/valkey-server, or "another": Valkey 9 if Redis 7 or older is installed, and otherwise
# Redis 7. Without SERVER, it is the installed server and each that Debian has. PACKAGES are the
# packages to be tested.
#
# A server that can't be had is named in the table, and fails nothing. The tests run without the race
# detector. Where they fail, their output is kept.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=internal/test/testredis
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/lockproxy
mkdir -p "$cache"
servers=("$@")
[ $# != 0 ] || servers=(installed bookworm/redis-server trixie/redis-server
	forky/redis-server experimental/redis-server bookworm-backports/valkey-server
	trixie/valkey-server forky/valkey-server)
packages=${PACKAGES:-$(grep -rl --include='*_test.go' '"lockproxy/internal/test/testredis"' . |
	xargs -n 1 dirname | sort -u)}
go=${GO:-go}
# Without those whose tests all need a build tag.
packages=$($go list -e -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' $packages |
	sed "s#^$PWD#.#")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# folder prints the folder of a server, for the front of PATH.
folder() {
	case $1 in
	installed) echo /dev/null ;;
	another)
		case $(redis-server --version) in
		Redis*' v=7.'* | Redis*' v=6.'*) folder forky/valkey-server ;;
		*) folder bookworm/redis-server ;;
		esac
		;;
	/*) sh $here/server.sh "$1" ;;
	*) sh $here/version.sh "$cache" "${1%/*}" "${1#*/}" ;;
	esac
}

# run tests a package with the server that is first in PATH. The results are added to $log.
run() {
	local name=${1#./}
	(cd "$1" && "$work/${name//\//_}.test" -test.v -test.timeout 20m -test.parallel 3) \
		>"$work/out" 2>&1 || echo "--- FAIL: the tests of $1" >>"$log"
	cat "$work/out" >>"$log"
}

$go build -o "$work" ./cmd/lockproxy
for package in $packages; do
	name=${package#./}
	$go test -vet=off -c -o "$work/${name//\//_}.test" "$package"
done
export LOCKPROXY_TEST_BINARY=$work/lockproxy

passed=0 failed=0 missing=0 tested=
echo '| server | passed | failed | seconds |'
echo '|---|---|---|---|'
for server in "${servers[@]}"; do
	if ! bin=$(folder "$server" 2>"$work/why"); then
		missing=$((missing + 1))
		echo "| $server | NOT RUN: $(tail -n 1 "$work/why") | | |"
		continue
	fi
	version=$(PATH=$bin:$PATH redis-server --version | sed 's/ server v=\([^ ]*\).*/ \1/')
	case $tested in *"|$version|"*) continue ;; esac # Debian's is installed
	tested+="|$version|"
	log=$cache/test-${version// /-}.log
	: >"$log"
	since=$SECONDS
	for package in $packages; do
		PATH=$bin:$PATH run "$package"
	done
	good=$(grep -ac '^--- PASS' "$log" || true) bad=$(grep -ac '^--- FAIL' "$log" || true)
	passed=$((passed + good)) failed=$((failed + bad))
	echo "| $version | $good | $bad | $((SECONDS - since)) |"
	if [ "$bad" = 0 ]; then rm "$log"; else
		grep -a '^--- FAIL' "$log"
		echo "see $log"
	fi
done
[ "$missing" = 0 ] || echo "WARNING: $missing of ${#servers[@]} servers could not be had: nothing was tested with them"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

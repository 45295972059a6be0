#!/bin/sh
# Installs a server for the tests and its command line client from Debian's packages if either is
# missing; one clear line if that can't be done. Redis and Valkey are both good: see server.sh.
set -u
has() { command -v "redis-$1" >/dev/null || command -v "valkey-$1" >/dev/null; }
has server && has cli && exit 0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
get() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$1-server" "$1-tools"; }
install() { apt-get update && { get redis || get valkey; }; }
if ! command -v apt-get >/dev/null || ! install >"$log" 2>&1; then
	echo "redis-server is missing and could not be installed ($(tail -n 1 "$log")): install Redis 6 or later, or Valkey, and try again" >&2
	exit 1
fi

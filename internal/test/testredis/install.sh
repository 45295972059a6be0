#!/bin/sh
# Installs redis-server and redis-cli from Debian's packages if either is missing; one clear line if that can't be done.
set -u
command -v redis-server >/dev/null && command -v redis-cli >/dev/null && exit 0
log=$(mktemp)
install() { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server redis-tools; }
if ! command -v apt-get >/dev/null || ! install >"$log" 2>&1; then
	echo "redis-server is missing and could not be installed ($(tail -n 1 "$log")): install Redis 6 or later and try again" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"

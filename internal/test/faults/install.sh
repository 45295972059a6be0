#!/bin/sh
# Installs libfaketime, with which the clock of a redis-server is stepped, and iproute2, which makes a machine that vanishes, from Debian's
# packages if they are missing.
set -u
ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 && command -v ip >/dev/null && exit 0
log=$(mktemp)
install() { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends libfaketime iproute2; }
if ! command -v apt-get >/dev/null || ! install >"$log" 2>&1; then
	echo "libfaketime or iproute2 is missing and could not be installed ($(tail -n 1 "$log")): install them and try again" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"

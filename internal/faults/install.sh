#!/bin/sh
# Installs libfaketime, with which the clock of a redis-server is stepped, from Debian's package if it is missing.
set -u
ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 && exit 0
log=$(mktemp)
install() { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends libfaketime; }
if ! command -v apt-get >/dev/null || ! install >"$log" 2>&1; then
	echo "libfaketime is missing and could not be installed ($(tail -n 1 "$log")): install it and try again" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"

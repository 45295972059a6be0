#!/bin/sh
# Installs spin and a C compiler from Debian's packages if either is missing; one clear line if that can't be done.
set -u
command -v spin >/dev/null && command -v gcc >/dev/null && exit 0
log=$(mktemp)
install() { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends spin gcc libc6-dev; }
if ! command -v apt-get >/dev/null || ! install >"$log" 2>&1; then
	echo "spin or gcc is missing and could not be installed ($(tail -n 1 "$log")): install Spin 6.5 and gcc and try again" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"

#!/bin/sh
# Installs what make test-packaging looks with, from Debian's packages: man and systemd-analyze. Nothing is started.
set -u
command -v man >/dev/null && command -v systemd-analyze >/dev/null && command -v dpkg-deb >/dev/null && exit 0
log=$(mktemp)
install() { apt-get update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends man-db systemd dpkg; }
if ! command -v apt-get >/dev/null || ! install >"$log" 2>&1; then
	echo "man, systemd-analyze or dpkg-deb is missing and could not be installed ($(tail -n 1 "$log")): install them and try again" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"

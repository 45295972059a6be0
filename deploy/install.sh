#!/bin/sh
# Installs what make long SUITE=packaging looks with, from Debian's packages. Nothing is started.
set -u
missing=
for tool in man systemd-analyze dpkg-deb lintian zsh fish ip; do command -v $tool >/dev/null || missing=yes; done
[ "$missing" ] || exit 0
log=$(mktemp)
install() { apt-get update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends man-db systemd dpkg lintian zsh fish iproute2; }
if ! command -v apt-get >/dev/null || ! install >"$log" 2>&1; then
	echo "man, systemd-analyze, dpkg-deb, lintian, zsh, fish or ip is missing and could not be installed ($(tail -n 1 "$log")): install them and try again" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"

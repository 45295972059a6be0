#!/bin/sh
# Installs HAProxy and twemproxy from Debian's packages if either is missing; one clear line if that can't be done.
set -u
PATH=$PATH:/usr/sbin:/sbin
command -v haproxy >/dev/null && command -v nutcracker >/dev/null && exit 0
log=$(mktemp)
install() { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends haproxy nutcracker; }
if ! command -v apt-get >/dev/null || ! install >"$log" 2>&1; then
	echo "HAProxy or twemproxy is missing and could not be installed ($(tail -n 1 "$log")): install both (Debian: haproxy, nutcracker) and try again" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"

#!/bin/sh
# Installs what make test-admin needs from Debian's packages: Chromium for the live page, Prometheus for the alerts and the dashboard.
# Nothing is started: RUNLEVEL=1 keeps the packages from starting services.
set -u
command -v chromium >/dev/null && command -v promtool >/dev/null && exit 0
log=$(mktemp)
install() { apt-get update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium prometheus fonts-dejavu-core; }
if ! command -v apt-get >/dev/null || ! install >"$log" 2>&1; then
	echo "chromium or promtool is missing and could not be installed ($(tail -n 1 "$log")): install both and try again" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"

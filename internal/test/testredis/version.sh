#!/bin/sh
# Unpacks a server of another Debian release for the tests, with the C library that it was built for, and prints the folder that has
# it as redis-server. Nothing is installed on this system.
#
#	version.sh FOLDER RELEASE PACKAGE PROGRAM	as in: version.sh /var/tmp/x trixie valkey-server valkey-server
set -eu
folder=$1/$2-$3 release=$2 package=$3 program=$4
[ -x "$folder/bin/redis-server" ] && { echo "$folder/bin"; exit 0; }
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/*$' | sort -u | head -n 1)
[ -n "$mirror" ] || { echo "no Debian mirror is set up here: add one to apt's sources and try again" >&2; exit 1; }
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/bin"
: >"$folder/apt/status" # as if nothing were installed, so that all it needs is fetched
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$folder/apt/sources.list"
get() {
	apt-get -q -o Dir::State::lists="$folder/apt/lists" -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt/cache" \
		-o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
		-o APT::Sandbox::User=root "$@"
}
log=$folder/log
if ! { get update && get -y --no-install-recommends --download-only install "$package"; } >"$log" 2>&1; then
	echo "$package of $release can't be had ($(grep '^E:' "$log" | head -n 1)): $log tells more" >&2
	exit 1
fi
for deb in "$folder"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$folder/root"; done
rm -rf "$folder/apt"
libraries=$(find "$folder/root" -name '*.so*' -path '*/lib/*' -exec dirname {} + | sort -u | tr '\n' ':')
loader=$(find "$folder/root" -name 'ld-linux*.so.2' ! -type d | head -n 1)
printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$libraries" "$folder/root/usr/bin/$program" >"$folder/bin/redis-server"
chmod +x "$folder/bin/redis-server"
echo "$folder/bin"

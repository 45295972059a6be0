#!/bin/sh
# Unpacks the redis crate, with all that it needs, from Debian's unstable packages, which are the only
# ones that have it, into a folder that cargo can build from. Nothing is installed on this system.
# Prints the folder.
#
#	crates.sh FOLDER
set -eu
folder=$1
[ -d "$folder/registry" ] && { echo "$folder/registry"; exit 0; }
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/*$' | sort -u | head -n 1)
[ -n "$mirror" ] || { echo "no Debian mirror is set up here: add one to apt's sources and try again" >&2; exit 1; }
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/root"
: >"$folder/apt/status" # as if nothing were installed, so that all it needs is fetched
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$folder/apt/sources.list"
get() {
	apt-get -q -o Dir::State::lists="$folder/apt/lists" -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt/cache" \
		-o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
		-o APT::Sandbox::User=root "$@"
}
if ! { get update && get -y --no-install-recommends --print-uris install librust-redis-dev; } >"$folder/log" 2>&1; then
	echo "librust-redis-dev can't be had ($(grep '^E:' "$folder/log" | head -n 1)): $folder/log tells more" >&2
	exit 1
fi
# Not the compilers and libraries that its packages name.
crates=$(sed -n "s/^'[^']*\/\(librust-[^_']*\)_[^']*'.*/\1/p" "$folder/log")
(cd "$folder/apt/cache/archives" && get download $crates) >>"$folder/log" 2>&1 || {
	echo "the crates can't be had: $folder/log tells more" >&2
	exit 1
}
for deb in "$folder"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$folder/root"; done
mv "$folder/root/usr/share/cargo/registry" "$folder/registry"
rm -rf "$folder/apt" "$folder/root"
echo "$folder/registry"

#!/bin/sh
# Unpacks redis-rb, with the gems that it needs, from another Debian release into a folder that
# RubyGems can take them from. Nothing is installed on this system. Prints the folder.
#
#	gems.sh FOLDER RELEASE	as in: gems.sh /var/tmp/x trixie
set -eu
folder=$1/$2 release=$2
gems=$folder/root/usr/share/rubygems-integration/all
[ -d "$gems" ] && { echo "$gems"; exit 0; }
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/*$' | sort -u | head -n 1)
[ -n "$mirror" ] || { echo "no Debian mirror is set up here: add one to apt's sources and try again" >&2; exit 1; }
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$folder/apt/sources.list"
get() {
	apt-get -q -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache="$folder/apt/cache" \
		-o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
		-o APT::Sandbox::User=root "$@"
}
{ get update && cd "$folder/apt/cache/archives" &&
	get download ruby-redis ruby-redis-client ruby-connection-pool; } >"$folder/log" 2>&1 || {
	echo "ruby-redis of Debian's $release can't be had ($(grep '^E:' "$folder/log" | head -n 1)): $folder/log tells more" >&2
	exit 1
}
for deb in "$folder"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$folder/unpacked"; done
rm -rf "$folder/apt"
mv "$folder/unpacked" "$folder/root"
echo "$gems"

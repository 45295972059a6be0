#!/bin/sh
# Unpacks a server of another Debian release for the tests, with its command line client and the C
# library that both were built for, and prints the folder that has them as redis-server and
# redis-cli. Nothing is installed on this system.
#
#	version.sh FOLDER RELEASE PACKAGE	as in: version.sh /var/tmp/x trixie valkey-server
#
# The package is redis-server or valkey-server, as is the program in it.
set -eu
folder=$1/$2-$3 release=$2 package=$3
[ -x "$folder/bin/redis-server" ] && [ -x "$folder/bin/redis-cli" ] && { echo "$folder/bin"; exit 0; }
command -v apt-get >/dev/null || { echo "$package of Debian's $release can't be had without apt-get" >&2; exit 1; }
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/*$' | sort -u | head -n 1)
[ -n "$mirror" ] || { echo "no Debian mirror is set up here: add one to apt's sources and try again" >&2; exit 1; }
case $release in # these hold only what differs from another release
experimental) base=sid ;;
*-backports) base=${release%-backports} ;;
*) base= ;;
esac
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/bin"
: >"$folder/apt/status" # as if nothing were installed, so that all it needs is fetched
for from in $release $base; do
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $from main"
done >"$folder/apt/sources.list"
get() {
	apt-get -q -o Dir::State::lists="$folder/apt/lists" -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt/cache" \
		-o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
		-o APT::Sandbox::User=root "$@"
}
log=$folder/log
if ! { get update && get -y --no-install-recommends --download-only --target-release "$release" install "$package"; } >"$log" 2>&1; then
	echo "$package of Debian's $release can't be had ($(grep '^E:' "$log" | head -n 1)): $log tells more" >&2
	exit 1
fi
for deb in "$folder"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$folder/root"; done
rm -rf "$folder/apt"
libraries=$(find "$folder/root" -name '*.so*' -path '*/lib/*' -exec dirname {} + | sort -u | tr '\n' ':')
loader=$(find "$folder/root" -name 'ld-linux*.so.*' ! -type d | head -n 1)
for part in server cli; do
	printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$libraries" \
		"$folder/root/usr/bin/${package%-server}-$part" >"$folder/bin/redis-$part"
	chmod +x "$folder/bin/redis-$part"
done
echo "$folder/bin"

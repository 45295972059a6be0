#!/bin/sh
# Prints the folder that goes in front of PATH, so that the tests run with a server that is not in
# PATH as redis-server: nothing if none has to.
#
#	server.sh [SERVER]	a redis-server or valkey-server, or the folder of either
#
# Without SERVER, it is the redis-server that is installed, or else the valkey-server.
set -eu
wanted=${1:-} folder=
if [ -z "$wanted" ]; then
	command -v redis-server >/dev/null && command -v redis-cli >/dev/null && exit 0
	wanted=$(command -v redis-server || command -v valkey-server) || exit 0 # install.sh says it
elif [ -d "$wanted" ]; then
	for name in redis-server valkey-server; do
		[ ! -x "$wanted/$name" ] || break
	done
	wanted=$wanted/$name
fi
[ -f "$wanted" ] && [ -x "$wanted" ] || { echo "there is no server for the tests at $1" >&2; exit 1; }
folder=$(cd "$(dirname "$wanted")" && pwd)
wanted=$folder/${wanted##*/}
client=
for name in redis-cli valkey-cli; do
	[ -n "$client" ] || [ ! -x "$folder/$name" ] || client=$folder/$name
done
if [ "$wanted" != "$folder/redis-server" ] || [ "$client" = "$folder/valkey-cli" ]; then
	folder=${XDG_CACHE_HOME:-${HOME:?}/.cache}/lockproxy/$(echo "$wanted" | cksum | tr ' ' -)
	mkdir -p "$folder"
	ln -sf "$wanted" "$folder/redis-server"
	[ -z "$client" ] || ln -sf "$client" "$folder/redis-cli"
fi
echo "$folder"

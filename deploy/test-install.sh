#!/usr/bin/env bash
# Installs the package with dpkg, uses what it has installed, upgrades, removes and purges it, and
# looks at what is left. It does so in an overlay of this system, in separate namespaces: this
# system and its ports stay as they are. As root.
#
# Not done here: starting the service by systemd, which need not run where this does. The unit's own
# command line is run by the unit's user instead, without its sandbox.
#
#   deploy/test-install.sh PACKAGE VERSION
set -euo pipefail
fail() { echo "FAIL  $*" >&2; exit 1; }

if [ "$1" != inside ]; then
	exec unshare --mount --net --pid --fork --kill-child bash "$0" inside "$(realpath "$1")" "$2"
fi
deb=$2 version=$3
work=/mnt # nothing is left there: the mount is for this namespace
mount -t tmpfs tmpfs "$work"
root=$work/root added=$work/upper
mkdir "$root" "$added" "$work/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$added,workdir=$work/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir "$work/tmp" && chmod 1777 "$work/tmp"
mount --bind "$work/tmp" "$root/tmp"
cp "$deb" "$root/tmp/lockproxy.deb"
ip link set lo up
in_root() { chroot "$root" "$@"; }
as() { in_root setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
install() {
	in_root dpkg --path-include='/usr/share/*' --install /tmp/lockproxy.deb >"$work/said" 2>&1
}

! dpkg --status lockproxy >/dev/null 2>&1 || fail "the package is installed here already"
install || fail "dpkg --install: $(cat "$work/said")"
said=$(in_root dpkg --verify lockproxy) && [ -z "$said" ] || fail "dpkg --verify: $said"
[ "$(in_root lockproxy --version)" = "lockproxy $version" ] || fail "lockproxy is not on PATH"
user=$(in_root getent passwd lockproxy) || fail "there is no user lockproxy"
[[ $user == *:/usr/sbin/nologin ]] || fail "the user can log in: $user"
config=/etc/lockproxy/lockproxy.toml
as lockproxy cat $config >/dev/null || fail "the service cannot read its configuration"
! as daemon cat $config 2>/dev/null || fail "anybody can read the configuration"
as daemon man lockproxy 2>&1 | grep -q 'a Redis proxy with locks' || fail "man lockproxy"
echo "ok  installed: as dpkg says, with its user, configuration and manual page"

bash_complete='. /usr/share/bash-completion/completions/lockproxy; complete -p lockproxy'
in_root bash -c "$bash_complete" >/dev/null || fail "bash does not complete it"
zsh_complete='autoload -U compinit; compinit -u -D; print $_comps[lockproxy]'
[ "$(in_root zsh -f -c "$zsh_complete")" = _lockproxy ] || fail "zsh does not find its completion"
levels=$(in_root fish -c 'complete -C "lockproxy --log-level d"' | cut -f1)
[ "$levels" = debug ] || fail "fish completes --log-level d to $levels"
echo "ok  installed: bash, zsh and fish find its completion"

units=(lockproxy.service lockproxy.socket)
said=$(in_root systemd-analyze verify "${units[@]}" 2>&1 | grep -F lockproxy || true)
[ -z "$said" ] || fail "systemd-analyze verify: $said"
in_root systemctl enable "${units[@]}" 2>/dev/null || fail "systemctl enable"
for wanted in multi-user.target.wants/lockproxy.service sockets.target.wants/lockproxy.socket; do
	[ -L "$root/etc/systemd/system/$wanted" ] || fail "systemctl enable has not made $wanted"
done
echo "ok  installed: its units verified as they are, and enabled"

# The ports of the configuration are free in this network namespace.
unit=$root/usr/lib/systemd/system/lockproxy.service
start=$(sed -n 's/^ExecStart=//p' "$unit") name=$(sed -n 's/^User=//p' "$unit")
in_root redis-server --save '' --bind 127.0.0.1 --dir /tmp >"$work/redis" &
chroot "$root" setpriv --reuid "$name" --regid "$name" --clear-groups $start >"$work/serves" 2>&1 &
served=$!
token=
for ((i = 0; i < 300; i++)); do
	token=$(redis-cli -p 6380 LOCK job 30 2>/dev/null) && [[ $token =~ ^[0-9]+$ ]] && break
	sleep 0.1
done
[[ $token =~ ^[0-9]+$ ]] || fail "$start, as $name: LOCK is answered $token: $(cat "$work/serves")"
[ "$(redis-cli -p 6379 EXISTS job)" = 1 ] || fail "the lock is in another Redis"
kill $served && wait $served || fail "it ends with status $?: $(cat "$work/serves")"
echo "ok  installed: the unit's command serves with the packaged configuration, as the unit's user"

echo '# changed' >>"$root$config"
install || fail "dpkg --install once more: $(cat "$work/said")"
[ "$(tail -n 1 "$root$config")" = '# changed' ] || fail "an upgrade overwrites what was changed"
! as daemon cat $config 2>/dev/null || fail "after an upgrade anybody can read the configuration"
in_root dpkg --remove lockproxy >"$work/said" 2>&1 || fail "dpkg --remove: $(cat "$work/said")"
left=$(cd "$root" && find usr etc var/lib/systemd -path '*lockproxy*' ! -type d 2>/dev/null | sort)
enabled=$'etc/systemd/system/multi-user.target.wants/lockproxy.service\n'
enabled+=etc/systemd/system/sockets.target.wants/lockproxy.socket
[ "$left" = "etc/lockproxy/lockproxy.toml"$'\n'"$enabled" ] || fail "after dpkg --remove: $left"
in_root dpkg --purge lockproxy >"$work/said" 2>&1 || fail "dpkg --purge: $(cat "$work/said")"
! in_root dpkg --status lockproxy >/dev/null 2>&1 || fail "dpkg still knows the package"

# What is new in the overlay. As Debian's packages do, it leaves its user, which may own files.
left=$(cd "$added" && find . ! -type d |
	while read -r file; do [ -e "/$file" ] || echo "$file"; done |
	grep -Ev '^\./((tmp|run)/|var/(lib/(dpkg|systemd|redis)|cache|log)/|etc/\.pwd\.lock$)' || true)
[ -z "$left" ] || fail "after dpkg --purge: $left"
left=$(find "$added" -path '*lockproxy*' ! -path '*/var/cache/man/*') # what man has formatted
[ -z "$left" ] || fail "after dpkg --purge: $left"
changed=$(diff <(sort /etc/passwd) <(sort "$root/etc/passwd") | grep '^[<>]' || true)
[ "$changed" = "> $user" ] || fail "users have changed otherwise: $changed"
echo "ok  upgraded with a changed configuration, removed, purged: nothing is left but the user"

#!/bin/bash
# L1: the lock of Redis's first documentation of SETNX, with redis-cli.
#
#   l1.sh HOST PORT KEY SECONDS-TO-RUN [--timeout S] [--pause MS] [--crash]
#
# Value at the key: Unix seconds, now + timeout + 1. Its known faults, which are left in:
#   - a losing GETSET rewrites the winner's value
#   - DEL can hit another's lock, since between the look at the clock and the DEL time may pass
#   - it goes by the clients' clocks
set -eu
export LC_ALL=C # EPOCHREALTIME with a point

(($# >= 4)) || { echo 'usage: l1.sh HOST PORT KEY SECONDS-TO-RUN [--timeout S] [--pause MS] [--crash]' >&2; exit 2; }
host=$1 port=$2 key=$3 seconds=$4
shift 4
timeout=3 pause=0 crash=
while (($#)); do
  case $1 in
    --timeout) timeout=$2; shift 2 ;;
    --pause) pause=$2; shift 2 ;;
    --crash) crash=1; shift ;;
    *) echo "l1.sh: unknown option $1" >&2; exit 2 ;;
  esac
done

now_ms() { now_ms=$((${EPOCHREALTIME/./} / 1000)); }
sleep_ms() { sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"; }
redis() { # command, whose reply is then in $reply
  reply=$(redis-cli -e -h "$host" -p "$port" "$@") || { echo "l1.sh: $1: $reply" >&2; exit 1; }
}

acquisitions=0 failures=0 violations=0 unreleased=0 longest=0
now_ms
deadline=$((now_ms + seconds * 1000))

acquire() { # sets $value, which is at the key while the lock is held
  while now_ms; ((now_ms < deadline)); do
    value=$((EPOCHSECONDS + timeout + 1))
    redis setnx "$key" "$value"
    [[ $reply == 0 ]] || return 0
    redis get "$key"
    if [[ $reply ]] && ((reply <= EPOCHSECONDS)); then
      value=$((EPOCHSECONDS + timeout + 1))
      redis getset "$key" "$value"
      # Nothing there: its holder has released it, so that this GETSET took it.
      ((${reply:-0} > EPOCHSECONDS)) || return 0
    fi
    failures=$((failures + 1))
    sleep_ms 50
  done
  return 1
}

inside() { # the work: is anybody else at it? and a count that gets lost if so
  redis incr "$key:inside"
  [[ $reply == 1 ]] || violations=$((violations + 1))
  redis get "$key:counter"
  local n=${reply:-0}
  sleep_ms $((1 + RANDOM % 3))
  redis set "$key:counter" $((n + 1))
  redis decr "$key:inside"
}

release() {
  if ((EPOCHSECONDS < value)); then
    redis del "$key"
  else
    unreleased=$((unreleased + 1))
  fi
}

while now_ms; ((now_ms < deadline)); do
  began=$now_ms
  got=1
  acquire || got=
  now_ms
  ((now_ms - began <= longest)) || longest=$((now_ms - began))
  [[ $got ]] || break
  acquisitions=$((acquisitions + 1))
  inside
  [[ ! $crash ]] || break
  release
  ((pause == 0)) || sleep_ms "$pause"
done
printf '{"program":"l1","acquisitions":%d,"failures":%d,"violations":%d,"unreleased":%d,"longest_wait_ms":%d}\n' \
  "$acquisitions" "$failures" "$violations" "$unreleased" "$longest"

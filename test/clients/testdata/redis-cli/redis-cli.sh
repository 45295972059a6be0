#!/bin/bash
# Ordinary commands and locks through lockproxy with redis-cli.
#
# usage: redis-cli.sh HOST PORT [2|3]     (the RESP version; 2 if not given)
set -eu

protocol=${3:-2}
prefix=client-test:redis-cli:$protocol:
tmp=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$tmp"' EXIT

# --no-raw shows types: (integer) 1 is not "1", and (nil) is not an empty text.
cli() { redis-cli -h "$host" -p "$port" "-$protocol" --no-raw "$@"; }
host=$1 port=$2

check() { # what got want
  [[ $2 == "$3" ]] || { printf 'FAIL %s: got "%s", want "%s"\n' "$1" "$2" "$3" >&2; exit 1; }
}
check_greater() { # what got than
  [[ $2 =~ ^\(integer\)\ [0-9]+$ ]] && ((${2#* } > $3)) || { printf 'FAIL %s: got "%s"\n' "$1" "$2" >&2; exit 1; }
}

# The next line of the connection's output, but for the time that a slow reply has taken.
next() {
  while IFS= read -r -t 120 answer <&"${SESSION[0]}" || { echo "FAIL $*: no answer" >&2; exit 1; }; do
    [[ $answer =~ ^\([0-9.]+s\)$ ]] || break
  done
}

# A connection that stays open: "ask COMMAND" sends a line to it and sets $answer.
coproc SESSION { cli; }
ask() {
  echo "$*" >&"${SESSION[1]}"
  next "$@"
}

data() {
  cli del "$prefix"{text,n,hash,bytes} >"$tmp/deleted"
  check 'GET of a missing key' "$(cli get "${prefix}text")" '(nil)'
  check SET "$(cli set "${prefix}text" 'some text')" OK
  check GET "$(cli get "${prefix}text")" '"some text"'
  check INCR "$(cli incr "${prefix}n")" '(integer) 1'
  check HSET "$(cli hset "${prefix}hash" a 1 b 2)" '(integer) 2'
  check HGET "$(cli hget "${prefix}hash" b)" '"2"'
  check 'SET -x' "$(printf 'a\0b\r\nc' | cli -x set "${prefix}bytes")" OK
  check 'GET of bytes' "$(cli get "${prefix}bytes")" '"a\x00b\r\nc"'
  answer=$(cli -e incr "${prefix}hash" 2>&1) && check 'exit status of an error' 0 1
  check 'INCR of a hash' "${answer%% *}" WRONGTYPE
}

pipeline() { # --pipe sends all lines at once, and counts the replies and the errors
  cli del "${prefix}pipe" >"$tmp/deleted"
  answer=$(for i in {1..200}; do printf 'RPUSH %spipe %d\r\n' "$prefix" "$i"; done | cli --pipe | tail -n 1)
  check 'replies of the pipeline' "$answer" 'errors: 0, replies: 200'
  check 'order of the pipeline' "$(redis-cli -h "$host" -p "$port" lrange "${prefix}pipe" 0 -1)" "$(seq 200)"
}

transaction() {
  for line in MULTI "SET ${prefix}tx 1" "INCR ${prefix}tx"; do ask "$line"; done
  check INCR "$answer" QUEUED
  ask EXEC
  check 'EXEC, first reply' "$answer" '1) OK'
  next "EXEC, second reply"
  check 'EXEC, second reply' "$answer" '2) (integer) 2'
  ask "WATCH ${prefix}tx"
  check 'SET by another' "$(cli set "${prefix}tx" changed)" OK
  for line in MULTI "SET ${prefix}tx lost" EXEC; do ask "$line"; done
  check 'EXEC of a changed key' "$answer" '(nil)'
}

pubsub() { # a subscribed redis-cli reads no more commands: it unsubscribes by ending
  redis-cli -h "$host" -p "$port" "-$protocol" subscribe "${prefix}channel" >"$tmp/messages" &
  local subscriber=$!
  # PUBLISH answers the number of receivers.
  until [[ $(cli publish "${prefix}channel" hello) == '(integer) 1' ]]; do sleep 0.05; done
  until grep -q hello "$tmp/messages"; do sleep 0.05; done
  check 'SUBSCRIBE, message' "$(tr '\n' ' ' <"$tmp/messages")" "subscribe ${prefix}channel 1 message ${prefix}channel hello "
  kill "$subscriber"
  wait "$subscriber" || true
  until [[ $(cli publish "${prefix}channel" hello) == '(integer) 0' ]]; do sleep 0.05; done
}

script() {
  check EVAL "$(cli eval 'return KEYS[1] .. ARGV[1]' 1 a b)" '"ab"'
  sha=$(cli script load "return redis.call('SET', KEYS[1], ARGV[1])")
  check EVALSHA "$(cli evalsha "${sha//\"/}" 1 "${prefix}script" x)" OK
  check GET "$(cli get "${prefix}script")" '"x"'
}

wait_command() {
  check WAIT "$(cli wait 0 100)" '(integer) 0'
}

lock() {
  ask "LOCK ${prefix}lock 600"
  check_greater LOCK "$answer" 0
  token=${answer#* }
  check 'LOCK from another connection' "$(cli lock "${prefix}lock" 600)" '(nil)'
  check 'UNLOCK with a wrong token' "$(cli unlock "${prefix}lock" $((token + 1)))" '(integer) 0'
  check 'UNLOCK with the token' "$(cli unlock "${prefix}lock" "$token")" '(integer) 1'
  ask "LOCK ${prefix}lock 600"
  check_greater 'the next token is greater' "$answer" "$token"
  check 'UNLOCK by another connection' "$(cli unlock "${prefix}lock")" '(integer) 0'
  ask "UNLOCK ${prefix}lock"
  check 'UNLOCK by this connection' "$answer" '(integer) 1'
}

lock_error() {
  check 'LOCK with a negative timeout' "$(cli lock "${prefix}lock" -1)" '(error) ERR timeout is negative: "-1" (seconds, greater than 0, at most 86400)'
}

lock_order() { # redis-cli waits for each reply; with --pipe it sends all of them at once
  answer=$(printf '%s\r\n' "LOCK ${prefix}order 600" "SET ${prefix}value x" "UNLOCK ${prefix}order" | cli --pipe | tail -n 1)
  check 'replies of LOCK, SET, UNLOCK' "$answer" 'errors: 0, replies: 3'
  check GET "$(cli get "${prefix}value")" '"x"'
  check 'LOCK finds it free' "$(cli lock "${prefix}order" 600 | grep -c integer)" 1
  check 'UNLOCK FORCE' "$(cli unlock "${prefix}order" force)" '(integer) 1'
}

lock_wait() {
  ask "LOCK ${prefix}wait 600"
  token=${answer#* }
  cli lock "${prefix}wait" 600 wait 60 >"$tmp/granted" &
  local waiter=$!
  sleep 0.3 # it must wait meanwhile
  check 'granted while the lock is held' "$(cat "$tmp/granted")" ''
  ask "UNLOCK ${prefix}wait"
  check UNLOCK "$answer" '(integer) 1'
  wait "$waiter"
  check_greater "the waiter's token" "$(cat "$tmp/granted")" "$token"
  check 'UNLOCK by token' "$(cli unlock "${prefix}wait" "$(cut -d ' ' -f 2 "$tmp/granted")")" '(integer) 1'
}

lock_shared() {
  local key=${prefix}shared limit=${prefix}limit one="${prefix}{all}1" two="${prefix}{all}2" first
  first=$(cli lock "$key" 600 shared)
  check_greater 'SHARED' "$first" 0
  answer=$(cli lock "$key" 600 shared)
  check_greater 'a second SHARED' "$answer" "${first#* }"
  check 'LOCK next to SHARED' "$(cli lock "$key" 600)" '(nil)'
  check HOLDERS "$(cli lockinfo "$key" holders | grep -c '"token"')" 2
  echo "holds $key ${first#* } ${answer#* }"

  check_greater 'LIMIT 2' "$(cli lock "$limit" 600 limit 2)" 0
  check_greater 'LIMIT 2, the second' "$(cli lock "$limit" 600 limit 2)" 0
  check 'LIMIT 2, the third' "$(cli lock "$limit" 600 limit 2)" '(nil)'
  check_greater 'LIMIT 3' "$(cli lock "$limit" 600 limit 3)" 0
  check 'UNLOCK of all' "$(cli unlock "$limit" force)" '(integer) 1'

  answer=$(cli lockall 600 2 "$one" "$two")
  check_greater LOCKALL "$answer" 0
  check 'LOCKALL of one that is held' "$(cli lockall 600 1 "$two")" '(nil)'
  check UNLOCKALL "$(cli unlockall "${answer#* }" 2 "$one" "$two")" '(integer) 2'

  local anna=${prefix}anna ben=${prefix}ben
  check_greater 'LOCK by anna' "$(cli lock "$anna" 600 owner anna)" 0
  check_greater 'LOCK by ben' "$(cli lock "$ben" 600 owner ben)" 0
  cli lock "$anna" 600 wait 60 owner ben >"$tmp/granted" &
  local waiter=$!
  until cli lockinfo "$anna" waiters | grep -q '"owner"'; do sleep 0.01; done
  answer=$(cli lock "$ben" 600 wait 60 owner anna)
  check 'two owners wait for each other' "${answer%% *}" '(error)'
  echo "refused ${answer#* }"
  check 'UNLOCK of what ben waits for' "$(cli unlock "$anna" force)" '(integer) 1'
  wait "$waiter"
  check 'UNLOCK by ben' "$(cli unlock "$anna" "$(cut -d ' ' -f 2 "$tmp/granted")")" '(integer) 1'
  check 'UNLOCK by ben' "$(cli unlock "$ben" force)" '(integer) 1'
}

lock_lost() { # a command that blocks on the lock's connection ends with it
  { echo "LOCK ${prefix}lost 600 SESSION"; echo "BLPOP ${prefix}never 120"; } | cli >"$tmp/lost" 2>&1 &
  local holder=$!
  until [ "$(cli lockinfo "${prefix}lost" | wc -l)" -gt 1 ]; do sleep 0.01; done
  check 'UNLOCK FORCE' "$(cli unlock "${prefix}lost" force)" '(integer) 1'
  until grep -q 'closed the connection' "$tmp/lost"; do sleep 0.01; done
  check 'RPUSH' "$(cli rpush "${prefix}never" x)" '(integer) 1' # redis-cli asks again
  wait "$holder"
}

steps=(data pipeline transaction pubsub script wait_command lock lock_error lock_order lock_wait
  lock_shared lock_lost)
for step in "${steps[@]}"; do
  $step
  echo "ok ${step//_/-}"
done

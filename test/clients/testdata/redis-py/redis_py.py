#!/usr/bin/python3
"""Ordinary commands and locks through lockproxy with redis-py (RESP2).

usage: redis_py.py HOST PORT
"""
import sys
import threading
import time

import redis

HOST, PORT = sys.argv[1], int(sys.argv[2])
PREFIX = "client-test:redis-py:"


def connect():
    # One connection, not a pool: UNLOCK without a token is for the connection that locked.
    return redis.Redis(HOST, PORT, single_connection_client=True, socket_timeout=120)


def check(what, got, want):
    if got != want or type(got) is not type(want):
        sys.exit(f"FAIL {what}: got {got!r}, want {want!r}")


def data(r, other):
    key, value = PREFIX + "data", b"binary \x00\r\n\xff" * 10000
    r.delete(key, key + ":n", key + ":hash", key + ":list")
    check("GET of a missing key", r.get(key), None)
    check("SET", r.set(key, value), True)
    check("GET", other.get(key), value)
    check("INCR", r.incr(key + ":n"), 1)
    check("INCRBY", r.incrby(key + ":n", 41), 42)
    check("HSET", r.hset(key + ":hash", mapping={"a": "1", "b": "2"}), 2)
    check("HGETALL", r.hgetall(key + ":hash"), {b"a": b"1", b"b": b"2"})
    check("RPUSH", r.rpush(key + ":list", "x", "y"), 2)
    check("LRANGE", r.lrange(key + ":list", 0, -1), [b"x", b"y"])
    try:
        r.incr(key + ":hash")
        sys.exit("FAIL INCR of a hash: no error")
    except redis.ResponseError as e:
        check("INCR of a hash", str(e).startswith("WRONGTYPE"), True)


def pipeline(r, other):
    pipe = r.pipeline(transaction=False)
    for i in range(200):
        pipe.set(f"{PREFIX}pipe:{i}", i)
        pipe.get(f"{PREFIX}pipe:{i}")
    want = [reply for i in range(200) for reply in (True, str(i).encode())]
    check("pipeline", pipe.execute(), want)


def transaction(r, other):
    key = PREFIX + "tx"
    pipe = r.pipeline(transaction=True)
    check("MULTI/EXEC", pipe.set(key, 1).incr(key).get(key).execute(), [True, 2, b"2"])
    pipe.watch(key)
    other.set(key, "changed")
    pipe.multi()
    pipe.set(key, "lost")
    try:
        pipe.execute()
        sys.exit("FAIL WATCH: EXEC ran although the key had changed")
    except redis.WatchError:
        check("GET after WATCH", r.get(key), b"changed")


def pubsub(r, other):
    channel = PREFIX + "channel"
    sub = connect().pubsub()
    sub.subscribe(channel)
    check("SUBSCRIBE", sub.get_message(timeout=120)["type"], "subscribe")
    check("PUBLISH", other.publish(channel, "hello"), 1)
    check("message", sub.get_message(timeout=120)["data"], b"hello")
    sub.unsubscribe(channel)
    check("UNSUBSCRIBE", sub.get_message(timeout=120)["type"], "unsubscribe")
    check("PUBLISH without subscribers", other.publish(channel, "hello"), 0)
    sub.close()


def script(r, other):
    key = PREFIX + "script"
    check("EVAL", r.eval("return {KEYS[1], ARGV[1], 7}", 1, key, "arg"), [key.encode(), b"arg", 7])
    sha = r.script_load("return redis.call('SET', KEYS[1], ARGV[1])")
    check("EVALSHA", r.evalsha(sha, 1, key, "by script"), b"OK")
    check("GET", r.get(key), b"by script")


def wait_command(r, other):
    check("WAIT", r.wait(0, 100), 0)


def lock(r, other):
    key = PREFIX + "lock"
    token = r.execute_command("LOCK", key, 600)
    check("type of LOCK's token", type(token), int)
    check("LOCK from another connection", other.execute_command("LOCK", key, 600), None)
    check("UNLOCK with a wrong token", other.execute_command("UNLOCK", key, token + 1), 0)
    check("UNLOCK with the token", other.execute_command("UNLOCK", key, token), 1)
    next_token = r.execute_command("LOCK", key, 600)
    check("the next token is greater", next_token > token, True)
    check("UNLOCK by another connection", other.execute_command("UNLOCK", key), 0)
    check("UNLOCK by this connection", r.execute_command("UNLOCK", key), 1)


def lock_error(r, other):
    try:
        r.execute_command("LOCK", PREFIX + "lock", -1)
        sys.exit("FAIL LOCK with a negative timeout: no error")
    except redis.ResponseError as e:
        check("LOCK with a negative timeout", str(e),
              'timeout is negative: "-1" (seconds, greater than 0, at most 86400)')  # redis-py strips ERR


def lock_order(r, other):
    key = PREFIX + "order"
    pipe = r.pipeline(transaction=False)
    pipe.execute_command("LOCK", key, 600)
    pipe.set(key + ":value", "written under the lock").execute_command("UNLOCK", key)
    pipe.get(key + ":value")
    token, *replies = pipe.execute()
    check("type of LOCK's token", type(token), int)
    check("LOCK, SET, UNLOCK, GET", replies, [True, 1, b"written under the lock"])


def lock_wait(r, other):
    key = PREFIX + "wait"
    token = r.execute_command("LOCK", key, 600)
    granted = []
    waiter = threading.Thread(target=lambda: granted.append(other.execute_command("LOCK", key, 600, "WAIT", 60)))
    waiter.start()
    time.sleep(0.2)  # it must wait meanwhile
    check("granted while the lock is held", granted, [])
    pipe = r.pipeline(transaction=False)  # on another connection, so UNLOCK needs the token
    pipe.set(key + ":value", token).execute_command("UNLOCK", key, token)
    check("SET, UNLOCK", pipe.execute(), [True, 1])
    waiter.join()
    check("the waiter's token is greater", granted[0] > token, True)
    check("what the waiter sees", other.get(key + ":value"), str(token).encode())
    check("UNLOCK by the waiter", other.execute_command("UNLOCK", key), 1)


def lock_shared(r, other):
    key, limit, both = PREFIX + "shared", PREFIX + "limit", (PREFIX + "{all}1", PREFIX + "{all}2")
    ask, ask_other = r.execute_command, other.execute_command
    tokens = [ask("LOCK", key, 600, "SHARED"), ask_other("LOCK", key, 600, "SHARED")]
    check("LOCK next to SHARED", ask("LOCK", key, 600), None)
    holders = [dict(zip(h[::2], h[1::2])) for h in ask("LOCKINFO", key, "HOLDERS")]
    check("HOLDERS", sorted(h[b"token"] for h in holders), tokens)
    print("holds", key, *tokens)

    check("LIMIT 2", type(ask("LOCK", limit, 600, "LIMIT", 2)), int)
    check("LIMIT 2, the second", type(ask_other("LOCK", limit, 600, "LIMIT", 2)), int)
    check("LIMIT 2, the third", ask("LOCK", limit, 600, "LIMIT", 2), None)
    check("LIMIT 3", type(ask("LOCK", limit, 600, "LIMIT", 3)), int)
    check("UNLOCK of all", ask("UNLOCK", limit, "FORCE"), 1)

    token = ask("LOCKALL", 600, 2, *both)
    check("LOCKALL of one that is held", ask_other("LOCKALL", 600, 1, both[1]), None)
    check("UNLOCKALL", ask("UNLOCKALL", token, 2, *both), 2)

    anna, ben = PREFIX + "anna", PREFIX + "ben"
    ask("LOCK", anna, 600, "OWNER", "anna")
    ask_other("LOCK", ben, 600, "OWNER", "ben")
    granted = []
    waiter = threading.Thread(target=lambda: granted.append(
        ask_other("LOCK", anna, 600, "WAIT", 60, "OWNER", "ben")))
    waiter.start()
    while not ask("LOCKINFO", anna, "WAITERS"):
        time.sleep(0.01)
    try:
        ask("LOCK", ben, 600, "WAIT", 60, "OWNER", "anna")
        sys.exit("FAIL two owners wait for each other: no error")
    except redis.ResponseError as e:
        print("refused", e)
    check("UNLOCK of what ben waits for", ask("UNLOCK", anna), 1)
    waiter.join()
    check("UNLOCK by ben", ask_other("UNLOCKALL", granted[0], 1, anna), 1)
    check("UNLOCK by ben", ask_other("UNLOCK", ben), 1)


def lock_lost(r, other):
    key = PREFIX + "lost"
    mine = redis.Redis(HOST, PORT, single_connection_client=True)
    mine.execute_command("LOCK", key, 600, "SESSION")
    check("UNLOCK FORCE", other.execute_command("UNLOCK", key, "FORCE"), 1)
    try:
        mine.connection.can_read(timeout=120)  # as a thread next to the work does
        sys.exit("FAIL the lock is lost, and nothing tells")
    except redis.ConnectionError:
        pass


steps = [data, pipeline, transaction, pubsub, script, wait_command, lock, lock_error, lock_order, lock_wait,
         lock_shared, lock_lost]
connections = connect(), connect()
for step in steps:
    step(*connections)
    print("ok", step.__name__.replace("_", "-"), flush=True)

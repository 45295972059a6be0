#!/usr/bin/python3
"""examples/adapters/lockproxy_redis_py.py with redis-py.

usage: redis_py.py HOST PORT          every step
       redis_py.py HOST PORT hold KEY holds KEY until it is killed
"""
import os
import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.exceptions import LockError, LockNotOwnedError
from redis.retry import Retry

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../../examples/adapters"))
sys.dont_write_bytecode = True
import lockproxy_redis_py

PREFIX = "adapter:redis-py:"


def check(what, got, want=True):
    if got != want:
        sys.exit(f"FAIL {what}: got {got!r}, want {want!r}")


def raises(what, error, call):
    try:
        call()
    except error:
        return
    sys.exit(f"FAIL {what}: no {error.__name__}")


class LosesReply(redis.Connection):
    lose = False

    def read_response(self, *args, **options):
        reply = super().read_response(*args, **options)
        if LosesReply.lose:
            LosesReply.lose = False
            raise redis.ConnectionError("the reply is lost")
        return reply


if len(sys.argv) > 3:
    r = redis.Redis(sys.argv[1], int(sys.argv[2]))
    r.lock(sys.argv[4], timeout=600, lock_class=lockproxy_redis_py.Lock).acquire()
    print("held", flush=True)
    time.sleep(600)

for decode in False, True:
    r = redis.Redis(sys.argv[1], int(sys.argv[2]), decode_responses=decode)
    impatient = redis.Redis(
        sys.argv[1], int(sys.argv[2]), decode_responses=decode, socket_timeout=0.3)

    def lock(name, **options):
        return r.lock(PREFIX + name, lock_class=lockproxy_redis_py.Lock, **options)

    def wait(lock, **options):
        """Acquires with a read timeout that is shorter than the wait. Nothing else has one."""
        lock.redis = impatient
        try:
            return lock.acquire(**options)
        finally:
            lock.redis = r

    raises("no timeout", LockError, lambda: lock("a"))
    a, b = lock("a", timeout=600, blocking=False), lock("a", timeout=600, thread_local=False)
    check("locked before", a.locked(), False)
    check("acquire", a.acquire())
    first = a.token
    check("locked", b.locked())
    check("owned", (a.owned(), b.owned()), (True, False))
    check("acquire without waiting", b.acquire(blocking=False), False)
    check("acquire that waits for nothing", b.acquire(blocking_timeout=0), False)
    began = time.monotonic()
    check("acquire in vain", wait(b, blocking_timeout=0.6), False)
    check("it has waited", time.monotonic() - began > 0.5)

    check("extend", a.extend(300))
    check("to 900 s", 600 < a._info()["remaining_ms"] / 1000 <= 900)
    check("extend again", a.extend(500, replace_ttl=True))
    check("to 500 s", a._info()["remaining_ms"] / 1000 <= 500)
    check("reacquire", a.reacquire())
    check("to 600 s", 500 < a._info()["remaining_ms"] / 1000 <= 600)

    # A waiter is given the lock, and keeps it when the connection on which it has waited closes.
    given = []
    waiter = threading.Thread(target=lambda: given.append((wait(b), b.token)))
    waiter.start()
    while a._info()["waiters"] == 0:
        time.sleep(0.01)
    time.sleep(0.6)  # longer than the read timeout
    a.release()
    waiter.join()
    check("given to the waiter", given[0][0])
    check("its token is greater", given[0][1] > first)
    time.sleep(0.3)
    check("it still has it", b.owned())
    raises("a second release", LockError, a.release)
    check("UNLOCK FORCE", r.execute_command("UNLOCK", b.name, "FORCE"), 1)
    raises("extend of a lost lock", LockNotOwnedError, lambda: b.extend(1))
    raises("release of a lost lock", LockNotOwnedError, b.release)

    with lock("a", timeout=600) as held:
        pong = r.execute_command("FENCE", held.name, held.token, "PING")
        check("FENCE", pong in (b"PONG", "PONG"))
    check("free after with", held.locked(), False)

    def fail():
        with lock("a", timeout=600):
            raise ValueError

    def lose():
        with lock("a", timeout=600) as held:
            r.execute_command("UNLOCK", held.name, "FORCE")

    raises("an exception inside with", ValueError, fail)
    check("free after an exception", held.locked(), False)
    raises("a lock lost inside with", LockNotOwnedError, lose)

pool = redis.ConnectionPool(
    connection_class=LosesReply, host=sys.argv[1], port=int(sys.argv[2]),
    retry=Retry(NoBackoff(), 2), retry_on_error=[redis.ConnectionError])
r = redis.Redis(connection_pool=pool)
again = r.lock(PREFIX + "again", timeout=600, lock_class=lockproxy_redis_py.Lock)
r.ping()
LosesReply.lose = True
check("acquire, sent again because the reply was lost", again.acquire(blocking=False))
again.release()
print("ok")

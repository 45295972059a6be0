#!/usr/bin/python3
"""clients/python/lockproxy.py with redis-py.

usage: python.py HOST PORT          every step
       python.py HOST PORT hold KEY holds KEY until it is killed; wait KEY SECONDS waits for it
                           before; fork KEY also has a child
"""
import os
import resource
import select
import socket
import sys
import tempfile
import threading
import time

import redis

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../../clients/python"))
import lockproxy

r = redis.Redis(sys.argv[1], int(sys.argv[2]))
PREFIX = "helper:python:"


def check(what, got, want):
    if got != want:
        sys.exit(f"FAIL {what}: got {got!r}, want {want!r}")


def is_free(key):
    return r.execute_command("LOCKINFO", key) in (None, [])


def until_waiter(key):
    while r.execute_command("LOCKINFO", key, "WAITERS") in (None, []):
        time.sleep(0.01)


def raises(what, error, call):
    try:
        call()
    except error:
        return
    sys.exit(f"FAIL {what}: no {error.__name__}")


def hold(key, how="hold", wait=None):
    with lockproxy.lock(r, key, timeout=600, wait=wait and float(wait)) as held:
        if how == "fork" and os.fork() == 0:
            check("lost to the child", held.lost.is_set(), True)
            time.sleep(600)
        print("held", flush=True)
        time.sleep(600)


def acquire():
    key = PREFIX + "acquire"
    with lockproxy.lock(r, key, owner="me") as held:
        check("token", held.token > 0, True)
        check("free inside", is_free(key), False)
        raises("a second one", lockproxy.NotAcquired, lambda: hold(key))
        held.check()
        raises("a wait in words", TypeError, lambda: lockproxy.lock(r, key, wait="5s"))
        raises("without with", TypeError, lambda: lockproxy.lock(r, key).fence("GET", key))
    check("free after", is_free(key), True)


def wait():
    key = PREFIX + "wait"
    tokens = []
    with lockproxy.lock(r, key) as held:
        def second():
            with lockproxy.lock(r, key, wait=0) as other:
                tokens.append(other.token)
        waiter = threading.Thread(target=second)
        waiter.start()
        until_waiter(key)
        check("given meanwhile", tokens, [])
    waiter.join()
    check("the waiter's token is greater", tokens[0] > held.token, True)


def exception():
    key = PREFIX + "exception"

    def work():
        with lockproxy.lock(r, key):
            raise ValueError

    raises("the block's own error", ValueError, work)
    check("free after an exception", is_free(key), True)


def fence():
    key = PREFIX + "fence"
    with lockproxy.lock(r, key) as held:
        check("FENCE", held.fence("SET", key + ":value", "1") in (b"OK", True), True)
    raises("FENCE after the end", lockproxy.Lost, lambda: held.fence("SET", key + ":value", "2"))
    check("what is written", r.get(key + ":value"), b"1")


def lost():
    key, told = PREFIX + "lost", []

    def work():
        with lockproxy.lock(r, key, timeout=600, on_lost=told.append) as held:
            check("UNLOCK FORCE", r.execute_command("UNLOCK", key, "FORCE"), 1)
            check("told", held.lost.wait(120), True)
            raises("check", lockproxy.Lost, held.check)

    raises("the end of the block", lockproxy.Lost, work)
    check("on_lost", len(told), 1)


def longest():
    def work():
        with lockproxy.lock(r, PREFIX + "max", timeout=600, max=0.3) as held:
            held.lost.wait()

    raises("the end of the block", lockproxy.Lost, work)


def once():
    key, made, got = PREFIX + "once", [], []

    def make(claim):
        made.append(claim.token)
        until_waiter(claim_of(key))
        raises("a second maker", lockproxy.NotAcquired, lambda: lockproxy.once(r, key, make))
        return "the value"

    def ask():
        got.append(lockproxy.once(r, key, make, ttl=300, wait=0))

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    check("made and given", (len(made), got), (1, [b"the value"] * 3))
    check("how long it lives", 200 < r.ttl(key) <= 300, True)
    check("another", lockproxy.once(r, key, fail), b"the value")

    def again(claim):
        check("while it is made again", lockproxy.once(r, key, fail, early=400), b"the value")
        return "newer"

    check("early enough", lockproxy.once(r, key, fail, early=100), b"the value")
    check("soon gone", lockproxy.once(r, key, again, ttl=600, early=400), b"newer")
    check("stored", r.get(key), b"newer")

    raises("the maker's own error", ValueError, lambda: lockproxy.once(r, key + ":2", fail))
    check("after it, with no end", lockproxy.once(r, key + ":2", lambda claim: 5), b"5")
    check("how long it lives", r.ttl(key + ":2"), -1)

    def forced(claim):
        check("UNLOCK FORCE", r.execute_command("UNLOCK", claim_of(key + ":3"), "FORCE"), 1)
        check("told", claim.lost.wait(120), True)
        return "late"

    raises("the end of a lost claim", lockproxy.Lost, lambda: lockproxy.once(
        r, key + ":3", forced, timeout=600))
    check("stored", r.get(key + ":3"), None)
    raises("what DONE says", redis.ResponseError, lambda: lockproxy.once(
        r, key + ":3", lambda claim: "1", ttl=0))


def fail(claim):
    raise ValueError


def claim_of(key):
    return r.execute_command("LOCKSCAN", 0, "MATCH", key + ":once:*", "COUNT", 100000)[1][0]


def child():
    """A child that leaves the block does not release its parent's lock."""
    key, pid = PREFIX + "child", None
    try:
        with lockproxy.lock(r, key):
            if (pid := os.fork()) != 0:
                status = os.waitpid(pid, 0)[1]
                check("the child's status", os.waitstatus_to_exitcode(status), 3)
                check("free while it is held", is_free(key), False)
    except lockproxy.Lost:
        os._exit(3 if pid == 0 else 4)
    if pid == 0:
        os._exit(5)


def decorator():
    key = PREFIX + "decorator"

    @lockproxy.locked(r, key, wait=0)
    def work(a, b=0):
        """Adds."""
        return a + b, is_free(key)

    check("the function", work(1, b=2), (3, False))
    check("its name", (work.__name__, work.__doc__), ("work", "Adds."))
    check("free after", is_free(key), True)


def files():
    """The loss is noticed in a program with more than 1024 open files."""
    key = PREFIX + "files"
    resource.setrlimit(resource.RLIMIT_NOFILE, (1200, 1200))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]

    def work():
        with lockproxy.lock(r, key, timeout=600) as held:
            check("UNLOCK FORCE", r.execute_command("UNLOCK", key, "FORCE"), 1)
            check("told", held.lost.wait(120), True)

    raises("the end of the block", lockproxy.Lost, work)
    for file in files:
        os.close(file)


def relay(path, silent, pings):
    """Serves one connection: once it is silent nothing of the proxy is passed on; pings is how
    many of the client's are seen then."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def run():
        client, proxy = server.accept()[0], socket.create_connection(sys.argv[1:3])
        to = {client: proxy, proxy: client}
        with server, client, proxy:
            while True:
                for side in select.select(to, [], [])[0]:
                    data = side.recv(4096)
                    if not data:
                        return
                    if side is client and silent.is_set():
                        pings.append(data.count(b"PING"))
                    if side is client or not silent.is_set():
                        to[side].sendall(data)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def silent():
    """By a Unix socket, of a proxy that answers no more: the block ends."""
    silent, relays, pings, began = threading.Event(), [], [], time.monotonic()

    def work():
        with tempfile.TemporaryDirectory() as dir:
            relays.append(relay(dir + "/socket", silent, pings))
            unix = redis.Redis(unix_socket_path=dir + "/socket")
            with lockproxy.lock(unix, PREFIX + "silent", wait=0):
                silent.set()

    raises("the end of the block", lockproxy.Lost, work)
    relays[0].join()
    check("it has given it time", time.monotonic() - began > 5, True)
    check("it gives up after so many pings", sum(pings) < 15, True)


if len(sys.argv) > 3:
    hold(sys.argv[4], sys.argv[3], *sys.argv[5:])
for step in [acquire, wait, exception, fence, lost, longest, once, child, decorator, files, silent]:
    step()
    print("ok", step.__name__, flush=True)
check("threads that are left", threading.active_count(), 1)

#!/usr/bin/python3
"""What only the Python package has; the arguments are host and port."""
import os
import resource
import select
import socket
import sys
import tempfile
import threading
import time

import redis
import redis.asyncio

import lockproxy

r = redis.Redis(sys.argv[1], int(sys.argv[2]))
PREFIX = "python:"


def check(what, got, want):
    if got != want:
        sys.exit(f"FAIL {what}: got {got!r}, want {want!r}")


def is_free(key):
    return r.execute_command("LOCKINFO", key) in (None, [])


def raises(what, error, call):
    try:
        call()
    except error:
        return
    sys.exit(f"FAIL {what}: no {error.__name__}")


def mistakes():
    key = PREFIX + "mistakes"
    raises("a wait in words", TypeError, lambda: lockproxy.lock(r, key, wait="5s"))
    raises("without with", TypeError, lambda: lockproxy.lock(r, key).fence("GET", key))
    raises("a client of asyncio", TypeError, lambda: lockproxy.lock(redis.asyncio.Redis(), key))


def told():
    """By a function, too."""
    key, told = PREFIX + "told", []

    def work():
        with lockproxy.lock(r, key, timeout=600, on_lost=told.append) as held:
            check("UNLOCK FORCE", r.execute_command("UNLOCK", key, "FORCE"), 1)
            held.lost.wait()

    raises("the end of the block", lockproxy.Lost, work)
    check("on_lost", len(told), 1)


def made():
    """The value is as GET would say it."""
    check("a number", lockproxy.once(r, PREFIX + "made", lambda claim: 5), b"5")


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


for step in [mistakes, told, made, child, decorator, files, silent]:
    step()
check("threads that are left", threading.active_count(), 1)

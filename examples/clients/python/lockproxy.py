"""Locks of lockproxy for redis-py: copy this file into your program.

    import redis, lockproxy

    r = redis.Redis(port=6380)
    with lockproxy.lock(r, "report", wait=5) as held:
        held.fence("SET", "report:state", "done")  # refused if the lock was lost
        held.check()                               # raises Lost if the lock was lost

    @lockproxy.locked(r, "nightly")
    def nightly(): ...

A lock lasts until the block ends, however that is, or until the program dies. It has a connection
of its own, made like those of r. lockproxy_asyncio.py has the same for asyncio.
"""
import contextlib
import functools
import selectors
import socket
import threading

import redis


class NotAcquired(Exception):
    """Another client holds the lock, or still held it when the wait ended."""


class Lost(Exception):
    """The lock was lost while the block ran: another client can hold it."""


class Held:
    """A lock that is held. `token` rises with every acquisition: it fences other databases too."""

    def __init__(self, r, key, token):
        self.key, self.token, self._redis = key, token, r
        self.lost = threading.Event()

    def check(self):
        if self.lost.is_set():
            raise Lost(self.key)

    def fence(self, *command):
        """Runs a command in Redis only if the lock is still held."""
        try:
            return self._redis.execute_command("FENCE", self.key, self.token, *command)
        except redis.ResponseError as e:
            if str(e).startswith("FENCED"):
                raise Lost(self.key) from e
            raise


@contextlib.contextmanager
def lock(r, key, timeout=10, wait=None, owner=None, on_lost=None):
    """Holds a lock while the block runs. wait: seconds, 0 is without end, None doesn't wait.

    timeout is how long a crashed proxy can leave the lock behind, in seconds. on_lost is called
    from another thread as soon as the lock is lost. At the end of the block Lost is raised then.
    """
    command = ["LOCK", key, timeout, "SESSION"]
    command += [] if wait is None else ["WAIT", wait]
    command += [] if owner is None else ["OWNER", owner]
    # The read timeout must be longer than the wait.
    reading = None if wait == 0 else (wait or 0) + 10
    pool = r.connection_pool
    options = {**pool.connection_kwargs, "socket_timeout": reading}
    if "path" not in options:  # of a Unix socket
        options["socket_keepalive"] = True
    connection = pool.connection_class(**options)
    connection.connect()
    try:
        connection.send_command(*command)
        token = connection.read_response()
        if token is None:
            raise NotAcquired(key)
        held = Held(r, key, token)
        try:
            with _watch(connection, held, on_lost):
                yield held
        finally:
            released = _release(connection, held)
        if not released:
            raise Lost(key)
    finally:
        connection.disconnect()


def _release(connection, held):
    """False if the lock was not held to the end."""
    if held.lost.is_set():
        return False
    try:
        connection.send_command("UNLOCK", held.key, held.token)
        return connection.can_read(10) and connection.read_response() == 1
    except redis.RedisError:
        return False


@contextlib.contextmanager
def _watch(connection, held, on_lost):
    """Sets held.lost if the connection closes: nothing else comes while the lock is held."""
    wake, waker = socket.socketpair()

    def ready():  # select() refuses files from number 1024 on
        with selectors.DefaultSelector() as selector:
            for side in connection._sock, wake:
                selector.register(side, selectors.EVENT_READ)
            return [key.fileobj for key, _ in selector.select()]

    def watch():
        while wake not in ready():
            try:
                lost = connection.can_read(0)  # not, if it is only TLS's
            except (redis.ConnectionError, OSError):
                lost = True
            if lost:
                held.lost.set()
                if on_lost is not None:
                    on_lost(held)
                return

    watcher = threading.Thread(target=watch, name="lock " + str(held.key), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        waker.close()
        watcher.join()
        wake.close()


def locked(r, key, **options):
    """A decorator: the function runs under the lock."""

    def decorate(function):
        @functools.wraps(function)
        def run(*args, **kwargs):
            with lock(r, key, **options):
                return function(*args, **kwargs)

        return run

    return decorate

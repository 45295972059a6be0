"""Locks of lockproxy for redis-py: copy this file into your program.

    import redis, lockproxy

    r = redis.Redis(port=6380)
    with lockproxy.lock(r, "report", wait=5) as held:
        held.fence("SET", "report:state", "done")  # refused if the lock was lost
        held.check()                               # raises Lost if the lock was lost

    @lockproxy.locked(r, "nightly")
    def nightly(): ...

    body = lockproxy.once(r, "report:7", lambda claim: build(7), ttl=300, wait=20)

A lock lasts until the block ends, however that is, or until the program dies. It has a connection
of its own, made like those of r. lockproxy_asyncio.py has the same for asyncio.
"""
import builtins
import contextlib
import functools
import numbers
import os
import random
import secrets
import selectors
import socket
import sys
import threading
import time

import redis

PING_EVERY = 1  # seconds: balancers cut connections on which nothing moves
ANSWER_WITHIN = 10
NOT_LOCKPROXY = ("this is a Redis, not lockproxy: connect to lockproxy's port, "
                 "6380 by default")
AWAY_WITHIN = 30  # a proxy that is being restarted or replaced is back by then


class NotAcquired(Exception):
    """Another client holds the lock, or still held it when the wait ended."""

    def __init__(self, key, does="holds the lock"):
        super().__init__(f"another client {does} {key!r}")


class Lost(Exception):
    """The lock was lost while the block ran: another client can hold it."""

    def __init__(self, key):
        super().__init__(f"the lock {key!r} was lost")


class Claim:
    """The right to make a value. `token` rises with every claim: it fences other databases."""

    def __init__(self, key, token):
        self.key, self.token = key, token
        self.lost = threading.Event()

    def check(self):
        if self.lost.is_set():
            raise Lost(self.key)


class Held(Claim):
    """A lock that is held. `token` rises with every acquisition: it fences other databases too."""

    def __init__(self, r, key, token):
        super().__init__(key, token)
        self._redis = r

    def fence(self, *command):
        """Runs a command in Redis only if the lock is still held."""
        try:
            return self._redis.execute_command("FENCE", self.key, self.token, *command)
        except redis.ResponseError as e:
            if str(e).startswith("FENCED"):
                raise Lost(self.key) from e
            raise


def lock(r, key, timeout=10, wait=None, owner=None, on_lost=None, max=None):
    """Holds a lock while the block runs. wait: seconds, 0 waits forever, None doesn't wait.

    timeout is how long a crashed proxy can leave the lock behind, in seconds. owner is who holds
    the lock, for people: this program's name, host and process if it is None. on_lost is called
    from another thread as soon as the lock is lost. At the end of the block Lost is raised then.
    max is how long the lock is held at most, in seconds, also if the block hangs; None is forever.
    """
    _check_seconds(timeout=timeout, wait=wait, max=max)
    return _Lock(_hold(r, key, timeout, wait, owner, on_lost, max))


@contextlib.contextmanager
def _hold(r, key, timeout, wait, owner, on_lost, max):
    session, token = _ask(r, wait, max, owner, "LOCK", key, timeout)
    try:
        if token is None:
            raise NotAcquired(key)
        session.held = held = Held(r, key, token)
        try:
            with _watch(session, held, on_lost, timeout):
                yield held
        finally:
            released = _release(session, held, "UNLOCK")
        if not released:
            raise Lost(key)
    finally:
        session.close()


class _Lock:
    """What lock() returns. The lock is taken where the block begins."""

    def __init__(self, block):
        self._block = block

    def __enter__(self):
        return self._block.__enter__()

    def __exit__(self, *error):
        return self._block.__exit__(*error)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise TypeError("the lock is not held yet: write 'with lock(...) as held:', "
                        f"and held.{name} within the block")


def _check_seconds(**options):
    for name, value in options.items():
        if value is not None and not isinstance(value, numbers.Real):
            raise TypeError(f"{name} wants seconds, a number, not {value!r}")


def once(r, key, make, ttl=None, timeout=10, wait=None, early=None, owner=None, max=None):
    """Returns the value of key. If there is none, one client makes it, and all have it.

    make(claim) returns the value, which is stored for ttl seconds (None: until it is deleted). If
    it raises, the claim is given up and the error passed on. Clients that ask meanwhile wait for
    the value. wait: seconds, 0 waits forever, None doesn't wait; NotAcquired is raised at the end.
    early: so many seconds before the value expires one client makes it again, while all others get
    the present one. If the claim is lost nothing is stored, and Lost is raised. The rest is as for
    lock: the claim is a lock with a connection of its own.
    """
    _check_seconds(ttl=ttl, timeout=timeout, wait=wait, early=early, max=max)
    if early is None:
        value, lives = r.get(key), -1
    else:
        value, lives = r.pipeline(transaction=False).get(key).pttl(key).execute()
    if value is not None and not 0 <= lives < (early or 0) * 1000:
        return value
    command = ["ONCE", key, timeout] + ([] if early is None else ["EARLY", early])
    session, got = _ask(r, wait, max, owner, *command)
    try:
        if got is None:
            raise NotAcquired(key, "makes the value of")
        if not isinstance(got, int):
            return got
        session.held = claim = Claim(key, got)
        encoder = session.connection.encoder
        try:
            with _watch(session, claim, None, timeout):
                value = encoder.encode(make(claim))
        except BaseException:
            _release(session, claim, "DONE")
            raise
        claim.check()
        command = ["DONE", key, got, value] + ([] if ttl is None else ["PX", round(ttl * 1000)])
        try:
            stored = session.ask(ANSWER_WITHIN, *command) == 1
        except (redis.ConnectionError, redis.TimeoutError) as e:
            raise Lost(key) from e
        if not stored:
            raise Lost(key)
        return encoder.decode(value)  # as GET would
    finally:
        session.close()


def _ask(r, wait, max, owner, *command):
    """Returns a new connection and its reply to LOCK or ONCE.

    If the proxy is restarted or replaced meanwhile, it asks again for the rest of the wait, by the
    same owner. A command whose wait was ended has had no effect; a lock whose connection is lost is
    released, or given to its owner again.
    """
    owner, began = owner or my_name(), time.monotonic()
    away, rest = began, wait
    while True:
        session = asked = None
        try:
            session = _Session(r)
            asked = time.monotonic()
            return session, session.ask_for(rest, max, owner, *command)
        except BaseException as e:
            if session is not None:
                session.close()
            now = time.monotonic()
            if asked is not None and now - asked > ANSWER_WITHIN:
                away = now  # it has been there meanwhile
            ends = away + AWAY_WITHIN
            if wait:
                ends = min(ends, began + wait)
            if wait is None or now >= ends or not _is_away(e):
                raise
        pause = random.uniform(0.05, 0.5)  # not all who wait at once
        time.sleep(min(pause, ends - now))
        if wait:
            rest = round(builtins.max(began + wait - time.monotonic(), 0.001), 3)


def _is_away(error):
    """Whether the proxy has ended a wait, or cannot be reached."""
    if isinstance(error, (redis.AuthenticationError,
                          redis.exceptions.AuthorizationError)):
        return False
    return (isinstance(error, (redis.ConnectionError, redis.TimeoutError, OSError))
            or type(error).__name__ == "TryAgainError" or str(error).startswith("TRYAGAIN"))


def my_name():
    """Says which program this is; the random part is this lock's, since owners share theirs."""
    program = os.path.basename(sys.argv[0]) or "python"
    return f"{program}@{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class _Session:
    """The connection of a lock. One thread uses it at a time."""

    opened = set()

    def __init__(self, r):
        pool = r.connection_pool
        options = {**pool.connection_kwargs, "socket_timeout": ANSWER_WITHIN,
                   "health_check_interval": 0}
        if "path" not in options:  # of a Unix socket
            options["socket_keepalive"] = True
        self.connection, self.held = pool.connection_class(**options), None
        self.connection.connect()
        self.pings, self.asked = 0, None  # unanswered, since when
        self.opened.add(self)

    def close(self):
        self.opened.discard(self)
        self.connection.disconnect()

    def ask(self, within, *command):
        """Returns the reply. A proxy reads pings while LOCK waits, and answers them behind it."""
        before, self.pings, asked = self.pings, 0, time.monotonic()
        self.connection.send_command(*command)
        while True:
            waited = time.monotonic() - asked
            # The proxy keeps the pings of a long wait.
            if self.connection.can_read(min(max(waited / 60, PING_EVERY), 15)):
                if before == 0:
                    return self.connection.read_response()
                before -= 1
                self._skip()
            elif within is not None and waited > within:
                raise redis.TimeoutError("lockproxy does not answer")
            else:
                self.ping()

    def ask_for(self, wait, max, owner, *command):
        """Returns the reply to LOCK or ONCE, for as long as this connection lasts."""
        command += ("SESSION",) + (() if max is None else ("MAX", max))
        command += () if wait is None else ("WAIT", wait)
        within = None if wait == 0 else (wait or 0) + ANSWER_WITHIN
        try:
            return self.ask(within, *command, "OWNER", owner)
        except redis.ResponseError as e:
            if "unknown command" in str(e):
                raise redis.ResponseError(NOT_LOCKPROXY) from e
            raise

    def ping(self):
        self.connection.send_command("PING")
        self.asked = self.asked if self.pings else time.monotonic()
        self.pings += 1

    def take_pongs(self):
        while self.connection.can_read(0):  # nothing to read, if it is only TLS's
            self._skip()
            self.pings, self.asked = self.pings - 1, time.monotonic()

    def silent_for(self):
        return time.monotonic() - self.asked if self.pings else 0

    def _skip(self):
        with contextlib.suppress(redis.ResponseError):  # the user may not
            self.connection.read_response()

    @classmethod
    def leave_to_parent(cls):
        """In a child after a fork the locks are its parent's, and end with that."""
        for session in cls.opened:
            silence(session.connection._sock)
            if session.held is not None:
                session.held.lost.set()
        cls.opened.clear()


def silence(sock):
    """Closes a socket in this process alone; its number stays taken, for who knows it."""
    if sock is not None and sock.fileno() >= 0:
        with open(os.devnull, "rb+", buffering=0) as nothing:
            os.dup2(nothing.fileno(), sock.fileno(), inheritable=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Session.leave_to_parent)


def _release(session, held, command):
    """False if the lock was not held to the end."""
    if held.lost.is_set():
        return False
    try:
        return session.ask(ANSWER_WITHIN, command, held.key, held.token) == 1
    except redis.RedisError:
        return False


@contextlib.contextmanager
def _watch(session, held, on_lost, timeout):
    """Pings, and sets held.lost if the connection closes, or if nothing is answered in time."""
    wake, waker = socket.socketpair()

    def ready():  # select() refuses files from number 1024 on
        with selectors.DefaultSelector() as selector:
            for side in session.connection._sock, wake:
                selector.register(side, selectors.EVENT_READ)
            return [key.fileobj for key, _ in selector.select(PING_EVERY)]

    def watch():
        try:
            while wake not in (sides := ready()):
                if sides:
                    session.take_pongs()
                elif session.silent_for() > max(timeout, ANSWER_WITHIN):
                    raise redis.TimeoutError
                else:
                    session.ping()
        except (redis.RedisError, OSError):
            held.lost.set()
            if on_lost is not None:
                on_lost(held)

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

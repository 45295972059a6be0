"""Locks of lockproxy for redis-py.

    import redis, lockproxy

    r = redis.Redis(port=6380)
    with lockproxy.lock(r, "report", wait=5) as held:
        held.fence("SET", "report:state", "done")  # refused if the lock was lost
        held.check()                               # raises Lost if the lock was lost

    @lockproxy.locked(r, "nightly")
    def nightly(): ...

    body = lockproxy.once(r, "report:7", lambda claim: build(7), ttl=300, wait=20)

A lock lasts until the block ends, however that is, or until the program dies. It has a connection
of its own, made like those of r. Durations are seconds or timedeltas. lockproxy.aio has the same
for asyncio.
"""
from __future__ import annotations

import contextlib
import functools
import os
import selectors
import socket
import threading
import time
from typing import Any, Callable, Optional, TypeVar

import redis

from ._shared import (ANSWER_WITHIN, FENCE_SQL, PING_EVERY, Cancelled, Lost, NotAcquired, Request,
                      Seconds, connection_options, done, explained, in_seconds, is_fenced, must_be,
                      not_held_yet, noted, silence)

__all__ = ["Cancelled", "Claim", "Held", "Lost", "NotAcquired", "lock", "locked", "once"]

F = TypeVar("F", bound=Callable[..., Any])


class Claim:
    """The right to make a value. `token` rises with every claim: it fences other databases."""

    def __init__(self, key: Any, token: int):
        self.key, self.token = key, token
        self.lost = threading.Event()

    def check(self) -> None:
        """Raises Lost if the lock was lost."""
        if self.lost.is_set():
            raise Lost(self.key)


class Held(Claim):
    """A lock that is held. `token` rises with every acquisition: it fences other databases too."""

    def __init__(self, r: redis.Redis, key: Any, token: int):
        super().__init__(key, token)
        self._redis = r

    def fence(self, *command: Any) -> Any:
        """Runs a command in Redis only if the lock is still held."""
        try:
            return self._redis.execute_command("FENCE", self.key, self.token, *command)
        except redis.ResponseError as e:
            if str(e).startswith("FENCED"):
                raise Lost(self.key) from e
            raise

    def fence_sql(self, cursor: Any) -> None:
        """Begins what a transaction of PostgreSQL writes under the lock: psycopg or psycopg2.

        If a later holder has begun to write already, Lost is raised, and the transaction can only
        be rolled back. Until it ends, a later holder waits here.
        """
        try:
            cursor.execute(FENCE_SQL, (self.key, self.token))
        except Exception as e:
            if is_fenced(e):
                raise Lost(self.key) from e
            raise

    def extend(self, timeout: Seconds) -> None:
        """From now on a crashed proxy can leave the lock behind for so long. Lost if it is lost."""
        if self._redis.execute_command("RELOCK", self.key, self.token,
                                       in_seconds("timeout", timeout)) != 1:
            raise Lost(self.key)


def lock(r: redis.Redis, key: Any, timeout: Seconds = 10, wait: Optional[Seconds] = None,
         owner: Optional[str] = None, on_lost: Optional[Callable[[Held], Any]] = None,
         max_hold: Optional[Seconds] = None, cancel: Optional[threading.Event] = None,
         note: Optional[str] = None) -> _Lock:
    """Holds a lock while the block runs. wait: seconds, 0 waits forever, None doesn't wait.

    timeout is how long a crashed proxy can leave the lock behind, in seconds. owner is who holds
    the lock, for people: this program's name, host and process if it is None. note is why, in at
    most 256 bytes. on_lost is called from another thread as soon as the lock is lost. At the end of
    the block Lost is raised then.
    max_hold is how long the lock is held at most, in seconds, also if the block hangs; None is
    forever. Setting cancel, from another thread or a signal handler, ends the wait with Cancelled.
    """
    must_be(redis.Redis, r)
    timeout = in_seconds("timeout", timeout)
    request = functools.partial(Request, "LOCK", key, timeout, *noted(note), wait=wait,
                                max_hold=max_hold, owner=owner)
    request()  # complains here of what is wrong
    return _Lock(_hold(r, key, timeout, request, on_lost, cancel))


@contextlib.contextmanager
def _hold(r, key, timeout, request, on_lost, cancel):
    session, token = _ask(r, key, request(), cancel)
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

    def __init__(self, block: contextlib.AbstractContextManager[Held]):
        self._block = block

    def __enter__(self) -> Held:
        return self._block.__enter__()

    def __exit__(self, *error: Any) -> Optional[bool]:
        return self._block.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        raise not_held_yet(name, "with")


def once(r: redis.Redis, key: Any, make: Callable[[Claim], Any], ttl: Optional[Seconds] = None,
         timeout: Seconds = 10, wait: Optional[Seconds] = None, early: Optional[Seconds] = None,
         owner: Optional[str] = None, max_hold: Optional[Seconds] = None,
         cancel: Optional[threading.Event] = None) -> Any:
    """Returns the value of key. If there is none, one client makes it, and all have it.

    make(claim) returns the value, which is stored for ttl seconds (None: until it is deleted). If
    it raises, the claim is given up and the error passed on. Clients that ask meanwhile wait for
    the value. wait: seconds, 0 waits forever, None doesn't wait; NotAcquired is raised at the end.
    early: so many seconds before the value expires one client makes it again, while all others get
    the present one. If the claim is lost nothing is stored, and Lost is raised. The rest is as for
    lock: the claim is a lock with a connection of its own.
    """
    must_be(redis.Redis, r)
    timeout, ttl = in_seconds("timeout", timeout), in_seconds("ttl", ttl)
    early = in_seconds("early", early)
    request = Request("ONCE", key, timeout, *(() if early is None else ("EARLY", early)),
                      wait=wait, max_hold=max_hold, owner=owner)
    if early is None:
        value, lives = r.get(key), -1
    else:
        value, lives = r.pipeline(transaction=False).get(key).pttl(key).execute()
    if value is not None and not 0 <= lives < (early or 0) * 1000:
        return value
    session, got = _ask(r, key, request, cancel)
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
        try:
            stored = session.ask(ANSWER_WITHIN, *done(key, got, value, ttl)) == 1
        except (redis.ConnectionError, redis.TimeoutError) as e:
            raise Lost(key) from e
        if not stored:
            raise Lost(key)
        return encoder.decode(value)  # as GET would
    finally:
        session.close()


def _ask(r, key, request, cancel):
    """Returns a new connection and its reply to LOCK or ONCE."""
    while True:
        session = asked = None
        try:
            session = _Session(r)
            asked = time.monotonic()
            reply = session.ask(request.within(), *request.words(), cancel=cancel)
            if reply is _CANCELLED:
                raise Cancelled(key)
            return session, reply
        except BaseException as e:
            if session is not None:
                session.close()
            pause = request.pause_after(e, asked)
            if pause is None:
                if isinstance(e, redis.ResponseError):
                    raise explained(e) from e
                raise
        if cancel is None:
            time.sleep(pause)
        elif cancel.wait(pause):
            raise Cancelled(key)


_CANCELLED = object()


class _Session:
    """The connection of a lock. One thread uses it at a time."""

    opened: set[_Session] = set()

    def __init__(self, r):
        pool = r.connection_pool
        options = connection_options(pool, ANSWER_WITHIN)
        self.connection, self.held = pool.connection_class(**options), None
        self.connection.connect()
        self.pings, self.asked = 0, None  # unanswered, since when
        self.opened.add(self)

    def close(self):
        self.opened.discard(self)
        self.connection.disconnect()

    def ask(self, within, *command, cancel=None):
        """Returns the reply. A proxy reads pings while LOCK waits, and answers them behind it."""
        before, self.pings, asked = self.pings, 0, time.monotonic()
        self.connection.send_command(*command)
        pinged = asked
        while True:
            now = time.monotonic()
            # The proxy keeps the pings of a long wait.
            ping_in = pinged + min(max((now - asked) / 60, PING_EVERY), 15) - now
            if self.connection.can_read(max(min(ping_in, 0.1), 0) if cancel else max(ping_in, 0)):
                if before == 0:
                    return self.connection.read_response()
                before -= 1
                self._skip()
            elif cancel is not None and cancel.is_set():
                return _CANCELLED
            elif within is not None and now - asked > within:
                raise redis.TimeoutError("lockproxy does not answer")
            elif ping_in <= 0:
                self.ping()
                pinged = now

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


def locked(r: redis.Redis, key: Any, **options: Any) -> Callable[[F], F]:
    """A decorator: the function runs under the lock."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*args, **kwargs):
            with lock(r, key, **options):
                return function(*args, **kwargs)

        return run  # type: ignore[return-value]

    return decorate

"""Locks of lockproxy for redis.asyncio: copy this file into your program. Python 3.11 or later.

    import redis.asyncio, lockproxy_asyncio

    r = redis.asyncio.Redis(port=6380)
    async with lockproxy_asyncio.lock(r, "report", wait=5) as held:
        await held.fence("SET", "report:state", "done")  # refused if the lock was lost

    @lockproxy_asyncio.locked(r, "nightly")
    async def nightly(): ...

    body = await lockproxy_asyncio.once(r, "report:7", make, ttl=300, wait=20)  # await make(claim)

If the lock is lost, the block is cancelled at its next await, and Lost is raised. A lock has a
connection of its own, made like those of r.
"""
import asyncio
import builtins
import contextlib
import functools
import numbers
import os
import random
import secrets
import socket
import sys
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


class Held(Claim):
    """A lock that is held. `token` rises with every acquisition: it fences other databases too."""

    def __init__(self, r, key, token):
        super().__init__(key, token)
        self._redis = r

    async def fence(self, *command):
        """Runs a command in Redis only if the lock is still held."""
        try:
            return await self._redis.execute_command("FENCE", self.key, self.token, *command)
        except redis.ResponseError as e:
            if str(e).startswith("FENCED"):
                raise Lost(self.key) from e
            raise


def lock(r, key, timeout=10, wait=None, owner=None, max=None):
    """Holds a lock while the block runs. wait: seconds, 0 waits forever, None doesn't wait.

    timeout is how long a crashed proxy can leave the lock behind, in seconds. owner is who holds
    the lock, for people: this program's name, host and process if it is None. max is how long the
    lock is held at most, in seconds, also if the block hangs; None is forever.
    """
    _check_seconds(timeout=timeout, wait=wait, max=max)
    return _Lock(_hold(r, key, timeout, wait, owner, max))


@contextlib.asynccontextmanager
async def _hold(r, key, timeout, wait, owner, max):
    session, token = await _ask(r, wait, max, owner, "LOCK", key, timeout)
    try:
        if token is None:
            raise NotAcquired(key)
        async with _holding(session, key, timeout, ["UNLOCK", key, token]):
            yield Held(r, key, token)
    finally:
        await session.close()


class _Lock:
    """What lock() returns. The lock is taken where the block begins."""

    def __init__(self, block):
        self._block = block

    async def __aenter__(self):
        return await self._block.__aenter__()

    async def __aexit__(self, *error):
        return await self._block.__aexit__(*error)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise TypeError("the lock is not held yet: write 'async with lock(...) as held:', "
                        f"and held.{name} within the block")


def _check_seconds(**options):
    for name, value in options.items():
        if value is not None and not isinstance(value, numbers.Real):
            raise TypeError(f"{name} wants seconds, a number, not {value!r}")


async def once(r, key, make, ttl=None, timeout=10, wait=None, early=None, owner=None, max=None):
    """Returns the value of key. If there is none, one client makes it, and all have it.

    await make(claim) is the value, which is stored for ttl seconds (None: until it is deleted). If
    it raises, the claim is given up and the error passed on. Clients that ask meanwhile wait for
    the value. wait: seconds, 0 waits forever, None doesn't wait; NotAcquired is raised at the end.
    early: so many seconds before the value expires one client makes it again, while all others get
    the present one. If the claim is lost make is cancelled, nothing is stored, and Lost is raised.
    The rest is as for lock: the claim is a lock with a connection of its own.
    """
    _check_seconds(ttl=ttl, timeout=timeout, wait=wait, early=early, max=max)
    if early is None:
        value, lives = await r.get(key), -1
    else:
        value, lives = await r.pipeline(transaction=False).get(key).pttl(key).execute()
    if value is not None and not 0 <= lives < (early or 0) * 1000:
        return value
    command = ["ONCE", key, timeout] + ([] if early is None else ["EARLY", early])
    session, got = await _ask(r, wait, max, owner, *command)
    try:
        if got is None:
            raise NotAcquired(key, "makes the value of")
        if not isinstance(got, int):
            return got
        encoder, done = session.connection.encoder, ["DONE", key, got]  # which gives up
        try:
            async with _holding(session, key, timeout, done):
                value = encoder.encode(await make(Claim(key, got)))
                done += [value] + ([] if ttl is None else ["PX", round(ttl * 1000)])
        except Lost as e:
            raise e.__cause__ or e  # what DONE was answered
        return encoder.decode(value)  # as GET would
    finally:
        await session.close()


@contextlib.asynccontextmanager
async def _holding(session, key, timeout, end):
    """Cancels the block when the lock is lost; end is the command that releases it."""
    session.ping_within(timeout)
    task = asyncio.current_task()
    lost, releasing, released = False, False, None
    cancelled = 0  # how often the task had been cancelled before it was for the loss

    async def watch():  # nothing else comes while the lock is held
        nonlocal lost, cancelled
        reply = None
        with contextlib.suppress(redis.RedisError, OSError):
            reply = await session.last_reply()
        if not releasing:
            lost, cancelled = True, task.cancelling()
            task.cancel()
        return reply

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not lost or task.uncancel() > cancelled:  # or for another reason, too
            raise
    finally:
        session.stop_pings()
        releasing = True
        if not lost:
            with contextlib.suppress(redis.RedisError, OSError):
                await session.connection.send_command(*end)
        with contextlib.suppress(asyncio.TimeoutError):
            released = await asyncio.wait_for(watcher, ANSWER_WITHIN)
    if released != 1:
        raise Lost(key) from (released if isinstance(released, Exception) else None)


async def _ask(r, wait, max, owner, *command):
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
            session = await _Session.open(r)
            asked = time.monotonic()
            return session, await session.ask_for(rest, max, owner, *command)
        except BaseException as e:
            if session is not None:
                await session.close()
            now = time.monotonic()
            if asked is not None and now - asked > ANSWER_WITHIN:
                away = now  # it has been there meanwhile
            ends = away + AWAY_WITHIN
            if wait:
                ends = min(ends, began + wait)
            if wait is None or now >= ends or not _is_away(e):
                raise
        pause = random.uniform(0.05, 0.5)  # not all who wait at once
        await asyncio.sleep(min(pause, ends - now))
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
    """The connection of a lock. It pings also while LOCK waits: the answers come behind."""

    opened = set()

    @classmethod
    async def open(cls, r):
        session, pool = cls(), r.connection_pool
        # A health check would read the replies that others wait for.
        options = {**pool.connection_kwargs, "socket_timeout": None, "health_check_interval": 0}
        if "path" not in options:  # of a Unix socket
            options["socket_keepalive"] = True
        session.connection = pool.connection_class(**options)
        await session.connection.connect()
        session.began = time.monotonic()
        session.pings, session.asked = 0, None  # unanswered, since when
        session.most, session.timer = None, None  # how long they may be
        session.opened.add(session)
        return session

    async def close(self):
        self.stop_pings()
        self.opened.discard(self)
        await self.connection.disconnect()

    async def ask(self, within, *command):
        """Returns the reply to the first command of the connection."""
        await self.connection.send_command(*command)
        self._ping_later()
        return await asyncio.wait_for(self.connection.read_response(), within)

    async def ask_for(self, wait, max, owner, *command):
        """Returns the reply to LOCK or ONCE, for as long as this connection lasts."""
        command += ("SESSION",) + (() if max is None else ("MAX", max))
        command += () if wait is None else ("WAIT", wait)
        # The read timeout must be longer than the wait.
        within = None if wait == 0 else (wait or 0) + ANSWER_WITHIN
        try:
            return await self.ask(within, *command, "OWNER", owner)
        except redis.ResponseError as e:
            if "unknown command" in str(e):
                raise redis.ResponseError(NOT_LOCKPROXY) from e
            raise

    async def last_reply(self):
        """The reply, or the error, that comes behind those to all pings."""
        while True:
            try:
                reply = await self.connection.read_response()
            except redis.ResponseError as e:  # the user may not PING
                reply = e
            if self.pings == 0:
                return reply
            self.pings, self.asked = self.pings - 1, time.monotonic()

    def ping_within(self, timeout):
        """From now on the lock can be lost while nothing is answered for so long."""
        self.most, self.asked = max(timeout, ANSWER_WITHIN), time.monotonic()

    def _ping(self):
        writer = self.connection._writer
        if writer is not None:
            if self.most and self.pings and time.monotonic() - self.asked > self.most:
                writer.transport.abort()  # whoever reads learns of it
            self.asked = self.asked if self.pings else time.monotonic()
            self.pings += 1
            writer.write(b"*1\r\n$4\r\nPING\r\n")
        self._ping_later()

    def _ping_later(self):
        every = PING_EVERY
        if self.most is None:  # the proxy keeps the pings of a long wait
            every = min(max((time.monotonic() - self.began) / 60, PING_EVERY), 15)
        self.timer = asyncio.get_running_loop().call_later(every, self._ping)

    def stop_pings(self):
        if self.timer is not None:
            self.timer.cancel()

    @classmethod
    def leave_to_parent(cls):
        """In a child after a fork the locks are its parent's, and end with that."""
        for session in cls.opened:
            if (writer := session.connection._writer) is not None:
                silence(writer.get_extra_info("socket"))
        cls.opened.clear()


def silence(sock):
    """Closes a socket in this process alone; its number stays taken, for who knows it."""
    if sock is not None and sock.fileno() >= 0:
        with open(os.devnull, "rb+", buffering=0) as nothing:
            os.dup2(nothing.fileno(), sock.fileno(), inheritable=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Session.leave_to_parent)


def locked(r, key, **options):
    """A decorator: the coroutine function runs under the lock."""

    def decorate(function):
        @functools.wraps(function)
        async def run(*args, **kwargs):
            async with lock(r, key, **options):
                return await function(*args, **kwargs)

        return run

    return decorate

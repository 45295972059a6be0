"""Locks of lockproxy for redis.asyncio. Python 3.11 or later.

    import redis.asyncio, lockproxy.aio

    r = redis.asyncio.Redis(port=6380)
    async with lockproxy.aio.lock(r, "report", wait=5) as held:
        await held.fence("SET", "report:state", "done")  # refused if the lock was lost

    @lockproxy.aio.locked(r, "nightly")
    async def nightly(): ...

    body = await lockproxy.aio.once(r, "report:7", make, ttl=300, wait=20)  # await make(claim)

If the lock is lost, the block is cancelled at its next await, and Lost is raised. A lock has a
connection of its own, made like those of r. Durations are seconds or timedeltas.
"""
from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from typing import Any, Awaitable, Callable, Optional, TypeVar

import redis
import redis.asyncio

from ._shared import (ANSWER_WITHIN, FENCE_SQL, PING_EVERY, Lost, NotAcquired, Request, Seconds,
                      connection_options, done, explained, in_seconds, is_fenced, must_be,
                      not_held_yet, noted, silence)

__all__ = ["Claim", "Held", "Lost", "NotAcquired", "lock", "locked", "once"]

F = TypeVar("F", bound=Callable[..., Any])


class Claim:
    """The right to make a value. `token` rises with every claim: it fences other databases."""

    def __init__(self, key: Any, token: int):
        self.key, self.token = key, token


class Held(Claim):
    """A lock that is held. `token` rises with every acquisition: it fences other databases too."""

    def __init__(self, r: redis.asyncio.Redis, key: Any, token: int):
        super().__init__(key, token)
        self._redis = r

    async def fence(self, *command: Any) -> Any:
        """Runs a command in Redis only if the lock is still held."""
        try:
            return await self._redis.execute_command("FENCE", self.key, self.token, *command)
        except redis.ResponseError as e:
            if str(e).startswith("FENCED"):
                raise Lost(self.key) from e
            raise

    async def fence_sql(self, cursor: Any) -> None:
        """Begins what a transaction of PostgreSQL writes under the lock, by psycopg's AsyncCursor.

        If a later holder has begun to write already, Lost is raised, and the transaction can only
        be rolled back. Until it ends, a later holder waits here.
        """
        try:
            await cursor.execute(FENCE_SQL, (self.key, self.token))
        except Exception as e:
            if is_fenced(e):
                raise Lost(self.key) from e
            raise

    async def extend(self, timeout: Seconds) -> None:
        """From now on a crashed proxy can leave the lock behind for so long. Lost if it is lost."""
        if await self._redis.execute_command("RELOCK", self.key, self.token,
                                             in_seconds("timeout", timeout)) != 1:
            raise Lost(self.key)


def lock(r: redis.asyncio.Redis, key: Any, timeout: Seconds = 10, wait: Optional[Seconds] = None,
         owner: Optional[str] = None, max_hold: Optional[Seconds] = None,
         note: Optional[str] = None) -> _Lock:
    """Holds a lock while the block runs. wait: seconds, 0 waits forever, None doesn't wait.

    timeout is how long a crashed proxy can leave the lock behind, in seconds. owner is who holds
    the lock, for people: this program's name, host and process if it is None. note is why, in at
    most 256 bytes. max_hold is how long the lock is held at most, in seconds, also if the block
    hangs; None is forever. Cancelling the task ends the wait.
    """
    must_be(redis.asyncio.Redis, r)
    timeout = in_seconds("timeout", timeout)
    request = functools.partial(Request, "LOCK", key, timeout, *noted(note), wait=wait,
                                max_hold=max_hold, owner=owner)
    request()  # complains here of what is wrong
    return _Lock(_hold(r, key, timeout, request))


@contextlib.asynccontextmanager
async def _hold(r, key, timeout, request):
    session, token = await _ask(r, request())
    try:
        if token is None:
            raise NotAcquired(key)
        async with _holding(session, key, timeout, ["UNLOCK", key, token]):
            yield Held(r, key, token)
    finally:
        await session.close()


class _Lock:
    """What lock() returns. The lock is taken where the block begins."""

    def __init__(self, block: contextlib.AbstractAsyncContextManager[Held]):
        self._block = block

    async def __aenter__(self) -> Held:
        return await self._block.__aenter__()

    async def __aexit__(self, *error: Any) -> Optional[bool]:
        return await self._block.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        raise not_held_yet(name, "async with")


async def once(r: redis.asyncio.Redis, key: Any, make: Callable[[Claim], Awaitable[Any]],
               ttl: Optional[Seconds] = None, timeout: Seconds = 10,
               wait: Optional[Seconds] = None, early: Optional[Seconds] = None,
               owner: Optional[str] = None, max_hold: Optional[Seconds] = None) -> Any:
    """Returns the value of key. If there is none, one client makes it, and all have it.

    await make(claim) is the value, which is stored for ttl seconds (None: until it is deleted). If
    it raises, the claim is given up and the error passed on. Clients that ask meanwhile wait for
    the value. wait: seconds, 0 waits forever, None doesn't wait; NotAcquired is raised at the end.
    early: so many seconds before the value expires one client makes it again, while all others get
    the present one. If the claim is lost make is cancelled, nothing is stored, and Lost is raised.
    The rest is as for lock: the claim is a lock with a connection of its own.
    """
    must_be(redis.asyncio.Redis, r)
    timeout, ttl = in_seconds("timeout", timeout), in_seconds("ttl", ttl)
    early = in_seconds("early", early)
    request = Request("ONCE", key, timeout, *(() if early is None else ("EARLY", early)),
                      wait=wait, max_hold=max_hold, owner=owner)
    if early is None:
        value, lives = await r.get(key), -1
    else:
        value, lives = await r.pipeline(transaction=False).get(key).pttl(key).execute()
    if value is not None and not 0 <= lives < (early or 0) * 1000:
        return value
    session, got = await _ask(r, request)
    try:
        if got is None:
            raise NotAcquired(key, "makes the value of")
        if not isinstance(got, int):
            return got
        encoder, end = session.connection.encoder, ["DONE", key, got]  # which gives up
        try:
            async with _holding(session, key, timeout, end):
                value = encoder.encode(await make(Claim(key, got)))
                end[:] = done(key, got, value, ttl)
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


async def _ask(r, request):
    """Returns a new connection and its reply to LOCK or ONCE."""
    while True:
        session = asked = None
        try:
            session = await _Session.open(r)
            asked = time.monotonic()
            return session, await session.ask(request.within(), *request.words())
        except BaseException as e:
            if session is not None:
                await session.close()
            pause = request.pause_after(e, asked)
            if pause is None:
                if isinstance(e, redis.ResponseError):
                    raise explained(e) from e
                raise
        await asyncio.sleep(pause)


class _Session:
    """The connection of a lock. It pings also while LOCK waits: the answers come behind."""

    opened = set()

    @classmethod
    async def open(cls, r):
        session, pool = cls(), r.connection_pool
        options = connection_options(pool, None)
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Session.leave_to_parent)


def locked(r: redis.asyncio.Redis, key: Any, **options: Any) -> Callable[[F], F]:
    """A decorator: the coroutine function runs under the lock."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        async def run(*args, **kwargs):
            async with lock(r, key, **options):
                return await function(*args, **kwargs)

        return run  # type: ignore[return-value]

    return decorate

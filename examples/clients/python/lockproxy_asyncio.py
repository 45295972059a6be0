"""Locks of lockproxy for redis.asyncio: copy this file into your program. Python 3.11 or later.

    import redis.asyncio, lockproxy_asyncio

    r = redis.asyncio.Redis(port=6380)
    async with lockproxy_asyncio.lock(r, "report", wait=5) as held:
        await held.fence("SET", "report:state", "done")  # refused if the lock was lost

    @lockproxy_asyncio.locked(r, "nightly")
    async def nightly(): ...

If the lock is lost, the block is cancelled at its next await, and Lost is raised. A lock has a
connection of its own, made like those of r.
"""
import asyncio
import contextlib
import functools

import redis


class NotAcquired(Exception):
    """Another client holds the lock, or still held it when the wait ended."""


class Lost(Exception):
    """The lock was lost while the block ran: another client can hold it."""


class Held:
    """A lock that is held. `token` rises with every acquisition: it fences other databases too."""

    def __init__(self, r, key, token):
        self.key, self.token, self._redis = key, token, r

    async def fence(self, *command):
        """Runs a command in Redis only if the lock is still held."""
        try:
            return await self._redis.execute_command("FENCE", self.key, self.token, *command)
        except redis.ResponseError as e:
            if str(e).startswith("FENCED"):
                raise Lost(self.key) from e
            raise


@contextlib.asynccontextmanager
async def lock(r, key, timeout=10, wait=None, owner=None):
    """Holds a lock while the block runs. wait: seconds, 0 is without end, None doesn't wait.

    timeout is how long a crashed proxy can leave the lock behind, in seconds.
    """
    command = ["LOCK", key, timeout, "SESSION"]
    command += [] if wait is None else ["WAIT", wait]
    command += [] if owner is None else ["OWNER", owner]
    pool = r.connection_pool
    # A health check would read the reply that watch() waits for.
    options = {**pool.connection_kwargs, "socket_timeout": None, "health_check_interval": 0}
    if "path" not in options:  # of a Unix socket
        options["socket_keepalive"] = True
    connection = pool.connection_class(**options)
    await connection.connect()
    try:
        await connection.send_command(*command)
        # The read timeout must be longer than the wait.
        token = await asyncio.wait_for(
            connection.read_response(), None if wait == 0 else (wait or 0) + 10)
        if token is None:
            raise NotAcquired(key)
        task = asyncio.current_task()
        lost = releasing = released = False
        cancelled = 0  # how often the task had been cancelled before it was for the loss

        async def watch():  # nothing comes while the lock is held, but the connection's end
            nonlocal lost, cancelled
            reply = None
            with contextlib.suppress(redis.RedisError, OSError):
                reply = await connection.read_response()
            if not releasing:
                lost, cancelled = True, task.cancelling()
                task.cancel()
            return reply

        watcher = asyncio.create_task(watch())
        try:
            yield Held(r, key, token)
        except asyncio.CancelledError:
            if not lost or task.uncancel() > cancelled:  # or for another reason, too
                raise
        finally:
            releasing = True
            if not lost:
                with contextlib.suppress(redis.RedisError, OSError):
                    await connection.send_command("UNLOCK", key, token)
            with contextlib.suppress(asyncio.TimeoutError):
                released = await asyncio.wait_for(watcher, 10) == 1
        if not released:
            raise Lost(key)
    finally:
        await connection.disconnect()


def locked(r, key, **options):
    """A decorator: the coroutine function runs under the lock."""

    def decorate(function):
        @functools.wraps(function)
        async def run(*args, **kwargs):
            async with lock(r, key, **options):
                return await function(*args, **kwargs)

        return run

    return decorate

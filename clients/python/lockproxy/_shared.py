"""What the locks of redis-py and of redis.asyncio have in common."""
from __future__ import annotations

import datetime
import os
import random
import secrets
import socket
import sys
import time
from typing import Any, Optional, Union

import redis

Seconds = Union[float, datetime.timedelta]

PING_EVERY = 1  # seconds: balancers cut connections on which nothing moves
ANSWER_WITHIN = 10
AWAY_WITHIN = 30  # a proxy that is being restarted or replaced is back by then
NOT_LOCKPROXY = ("this is a Redis, not lockproxy: connect to lockproxy's port, "
                 "6380 by default")
FENCE_SQL = "SELECT lockproxy_fence(%s, %s)"
FENCED_SQLSTATE = "LP001"


class NotAcquired(Exception):
    """Another client holds the lock, or still held it when the wait ended."""

    def __init__(self, key: Any, does: str = "holds the lock"):
        super().__init__(f"another client {does} {key!r}")


class Cancelled(Exception):
    """The wait for the lock was cancelled."""

    def __init__(self, key: Any):
        super().__init__(f"the wait for {key!r} was cancelled")


class Lost(Exception):
    """The lock was lost while the block ran: another client can hold it."""

    def __init__(self, key: Any):
        super().__init__(f"the lock {key!r} was lost")


def in_seconds(name: str, value: Optional[Seconds]) -> Optional[float]:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if value is None or isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise TypeError(f"{name} wants seconds, a number or a timedelta, not {value!r}")


def must_be(kind: type, r: Any) -> None:
    if not isinstance(r, kind):
        raise TypeError(f"a lock wants a {kind.__module__}.{kind.__name__}, not {r!r}")


class Request:
    """A LOCK or ONCE, and how long to wait for its reply.

    It is sent again, for the rest of the wait and by the same owner, when the proxy is restarted or
    replaced. A command whose wait was ended has had no effect; a lock whose connection is lost is
    released, or given to its owner again.
    """

    def __init__(self, *command: Any, wait: Optional[Seconds], max_hold: Optional[Seconds],
                 owner: Optional[str]):
        max_hold = in_seconds("max_hold", max_hold)
        self._words = (*command, "SESSION") + (() if max_hold is None else ("MAX", max_hold))
        self._owner = owner or my_name()
        self._wait = self._rest = in_seconds("wait", wait)
        self._began = self._away = time.monotonic()

    def words(self) -> tuple:
        waits = () if self._rest is None else ("WAIT", self._rest)
        return (*self._words, *waits, "OWNER", self._owner)

    def within(self) -> Optional[float]:
        """For how long the reply can take: longer than the wait. None is forever."""
        return None if self._rest == 0 else (self._rest or 0) + ANSWER_WITHIN

    def pause_after(self, error: BaseException, asked: Optional[float]) -> Optional[float]:
        """How long to pause before it is sent again; None if the error is final."""
        now = time.monotonic()
        if asked is not None and now - asked > ANSWER_WITHIN:
            self._away = now  # the proxy has been there meanwhile
        ends = self._away + AWAY_WITHIN
        if self._wait:
            ends = min(ends, self._began + self._wait)
        if self._wait is None or now >= ends or not _is_away(error):
            return None
        pause = min(random.uniform(0.05, 0.5), ends - now)  # not all who wait at once
        if self._wait:
            self._rest = round(max(self._began + self._wait - now - pause, 0.001), 3)
        return pause


def noted(note: Optional[str]) -> tuple:
    """What LOCK is told of why the lock is held."""
    return () if note is None else ("NOTE", note)


def _is_away(error: BaseException) -> bool:
    """Whether the proxy has ended a wait, or cannot be reached."""
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.AuthorizationError)):
        return False
    return (isinstance(error, (redis.ConnectionError, redis.TimeoutError, OSError))
            or type(error).__name__ == "TryAgainError" or str(error).startswith("TRYAGAIN"))


def explained(error: redis.ResponseError) -> redis.ResponseError:
    return redis.ResponseError(NOT_LOCKPROXY) if "unknown command" in str(error) else error


def done(key: Any, token: int, value: Any, ttl: Optional[float]) -> tuple:
    """The command that stores a value."""
    return ("DONE", key, token, value) + (() if ttl is None else ("PX", round(ttl * 1000)))


def is_fenced(error: Exception) -> bool:
    """Whether PostgreSQL has refused a token: psycopg calls the reason sqlstate, psycopg2 pgcode."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state == FENCED_SQLSTATE


def my_name() -> str:
    """Says which program this is; the random part is this lock's, since owners share theirs."""
    program = os.path.basename(sys.argv[0]) or "python"
    return f"{program}@{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def connection_options(pool: Any, socket_timeout: Optional[float]) -> dict:
    """Those of the pool, but for what a lock's connection needs: a health check would read the
    replies that others wait for."""
    options = {**pool.connection_kwargs, "socket_timeout": socket_timeout,
               "health_check_interval": 0}
    if "path" not in options:  # of a Unix socket
        options["socket_keepalive"] = True
    return options


def silence(sock: Optional[socket.socket]) -> None:
    """Closes a socket in this process alone; its number stays taken, for who knows it."""
    if sock is not None and sock.fileno() >= 0:
        with open(os.devnull, "rb+", buffering=0) as nothing:
            os.dup2(nothing.fileno(), sock.fileno(), inheritable=False)


def not_held_yet(name: str, block: str) -> Exception:
    if name.startswith("__"):
        return AttributeError(name)
    return TypeError(f"the lock is not held yet: write '{block} lock(...) as held:', "
                     f"and held.{name} within the block")

"""redis-py's Lock, by lockproxy: copy this file into your program and name the class.

    r.lock("report", timeout=30, lock_class=lockproxy_redis_py.Lock)

The rest of the program stays as it is. Clients then wait in order of arrival, without polling, and
`lock.token` is a fencing token. A lock needs a timeout: nobody would release that of a dead
program.

django-redis names no lock class. There cache.lock("report", timeout=30) is such a lock with

    CACHES = {"default": {..., "OPTIONS": {"REDIS_CLIENT_CLASS": "lockproxy_redis_py.Redis"}}}
"""
import uuid

import redis
import redis.lock
from redis.exceptions import LockError, LockNotOwnedError


class Lock(redis.lock.Lock):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        if self.timeout is None:
            raise LockError("lockproxy needs a timeout: Redis.lock(name, timeout=...)")

    @property
    def token(self):
        """Rises with every acquisition: it fences other databases too. None if not held."""
        return self.local.token

    def acquire(self, sleep=None, blocking=None, blocking_timeout=None, token=None):
        if token is not None:
            raise LockError("lockproxy gives the token")
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        command = ["LOCK", self.name, self.timeout]
        if not (self.blocking if blocking is None else blocking) or wait == 0:
            # The owner makes it safe that redis-py sends LOCK again when it has lost the reply.
            token = self.redis.execute_command(*command, "OWNER", uuid.uuid4().hex)
        else:
            token = self._wait(command, wait or 0)  # 0 is forever
        self.local.token = token
        return token is not None

    def _wait(self, command, wait):
        # On a connection of its own, whose read timeout doesn't end before the wait.
        pool = self.redis.connection_pool
        options = {**pool.connection_kwargs, "socket_timeout": wait + 10 if wait else None}
        if "path" not in options:  # of a Unix socket
            options["socket_keepalive"] = True
        connection = pool.connection_class(**options)
        connection.connect()
        try:
            connection.send_command(*command, "WAIT", wait)
            return connection.read_response()
        finally:
            connection.disconnect()

    def do_release(self, expected_token):
        if self.redis.execute_command("UNLOCK", self.name, expected_token) != 1:
            raise LockNotOwnedError("Cannot release a lock that's no longer owned")

    def do_extend(self, additional_time, replace_ttl):
        if not replace_ttl:
            additional_time += self._info().get("remaining_ms", 0) / 1000
        return self._relock(additional_time)

    def do_reacquire(self):
        return self._relock(self.timeout)

    def _relock(self, timeout):
        command = "RELOCK", self.name, self.local.token, timeout
        if self.redis.execute_command(*command) != 1:
            raise LockNotOwnedError("Cannot extend a lock that's no longer owned")
        return True

    def locked(self):
        return self._info().get("state") == "held"

    def owned(self):
        return self.locked() and self._info().get("token") == self.local.token

    def _info(self):
        """LOCKINFO's numbers, and its state; nothing if the lock is free."""
        info = self.redis.execute_command("LOCKINFO", self.name) or []
        pairs = info.items() if isinstance(info, dict) else zip(info[::2], info[1::2])
        text = lambda value: value.decode() if isinstance(value, bytes) else value
        return {text(k): v if text(k) != "state" else text(v) for k, v in pairs}


class Redis(redis.Redis):
    """A client whose locks are lockproxy's, unless another class is named."""

    def lock(self, *args, **options):
        return super().lock(*args, **{"lock_class": Lock, **options})

#!/usr/bin/python3
"""What only the asyncio of the Python package has; the arguments are host and port."""
import asyncio
import contextlib
import sys
import tempfile

import redis.asyncio

from lockproxy import aio as lockproxy

r = redis.asyncio.Redis(host=sys.argv[1], port=int(sys.argv[2]))
PREFIX = "asyncio:"


def check(what, got, want):
    if got != want:
        sys.exit(f"FAIL {what}: got {got!r}, want {want!r}")


async def is_free(key):
    return await r.execute_command("LOCKINFO", key) in (None, [])


async def raises(what, error, coroutine):
    try:
        await coroutine
    except error:
        return
    sys.exit(f"FAIL {what}: no {error.__name__}")


async def mistakes():
    key = PREFIX + "mistakes"
    for mistake in ({"wait": "5s"}, {}):
        try:
            lockproxy.lock(r, key, **mistake).fence
        except TypeError:
            continue
        sys.exit(f"FAIL no TypeError: {mistake}")


async def cancelled():
    """A block that is cancelled releases the lock."""
    key, inside = PREFIX + "cancelled", asyncio.Event()

    async def stay():
        async with lockproxy.lock(r, key):
            inside.set()
            await asyncio.sleep(600)

    task = asyncio.create_task(stay())
    await inside.wait()
    task.cancel()
    await raises("a cancelled block", asyncio.CancelledError, task)
    check("free after it was cancelled", await is_free(key), True)


async def lost():
    """The block is cancelled, also that of a claim."""
    key = PREFIX + "lost"

    async def work():
        async with lockproxy.lock(r, key, timeout=600):
            check("UNLOCK FORCE", await r.execute_command("UNLOCK", key, "FORCE"), 1)
            await asyncio.sleep(600)

    await raises("the block", lockproxy.Lost, work())
    key += ":value"

    async def make(claim):
        scan = await r.execute_command("LOCKSCAN", 0, "MATCH", key + ":once:*", "COUNT", 100000)
        check("UNLOCK FORCE", await r.execute_command("UNLOCK", scan[1][0], "FORCE"), 1)
        await asyncio.sleep(600)

    await raises("the maker", lockproxy.Lost, lockproxy.once(r, key, make, timeout=600))


async def decorator():
    key = PREFIX + "decorator"

    @lockproxy.locked(r, key, wait=0)
    async def work(a, b=0):
        return a + b, await is_free(key)

    check("the function", await work(1, b=2), (3, False))
    check("its name", work.__name__, "work")


async def health():
    """A lock that is held for longer than the interval of health checks."""
    checked = redis.asyncio.Redis(
        host=sys.argv[1], port=int(sys.argv[2]), health_check_interval=0.1)

    async def work():
        async with lockproxy.lock(checked, PREFIX + "health"):
            await asyncio.sleep(0.3)

    await work()


async def unix():
    """By a Unix socket, of a proxy that answers no more: the block ends."""
    silent, relays = False, []

    async def copy(reader, writer, answers):
        with contextlib.closing(writer):
            while data := await reader.read(4096):
                if not (answers and silent):
                    writer.write(data)

    async def relay(reader, writer):
        proxy = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
        relays.append(asyncio.current_task())
        await asyncio.gather(copy(reader, proxy[1], False), copy(proxy[0], writer, True))

    async def work():
        nonlocal silent
        async with lockproxy.lock(redis.asyncio.Redis(unix_socket_path=path), PREFIX + "unix"):
            silent = True

    with tempfile.TemporaryDirectory() as dir:
        path = dir + "/socket"
        async with await asyncio.start_unix_server(relay, path):
            await raises("the end of the block", lockproxy.Lost, work())
    await asyncio.wait(relays)


async def main():
    for step in [mistakes, cancelled, lost, decorator, health, unix]:
        await step()
    check("tasks that are left", len(asyncio.all_tasks()), 1)


asyncio.run(main())

#!/usr/bin/python3
"""clients/python/lockproxy_asyncio.py with redis.asyncio.

usage: python_asyncio.py HOST PORT          every step
       python_asyncio.py HOST PORT hold KEY holds KEY until it is killed; wait KEY SECONDS
                                   waits for it before; fork KEY also has a child
"""
import asyncio
import contextlib
import os
import sys
import tempfile
import time

import redis.asyncio

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../../clients/python"))
import lockproxy_asyncio as lockproxy

r = redis.asyncio.Redis(host=sys.argv[1], port=int(sys.argv[2]))
PREFIX = "helper:asyncio:"


def check(what, got, want):
    if got != want:
        sys.exit(f"FAIL {what}: got {got!r}, want {want!r}")


async def is_free(key):
    return await r.execute_command("LOCKINFO", key) in (None, [])


async def until_waiter(key):
    while await r.execute_command("LOCKINFO", key, "WAITERS") in (None, []):
        await asyncio.sleep(0.01)


async def raises(what, error, coroutine):
    try:
        await coroutine
    except error:
        return
    sys.exit(f"FAIL {what}: no {error.__name__}")


async def hold(key, how="hold", wait=None):
    async with lockproxy.lock(r, key, timeout=600, wait=wait and float(wait)):
        if how == "fork" and os.fork() == 0:
            time.sleep(600)
        print("held", flush=True)
        await asyncio.sleep(600)


async def acquire():
    key = PREFIX + "acquire"
    async with lockproxy.lock(r, key, owner="me") as held:
        check("token", held.token > 0, True)
        check("free inside", await is_free(key), False)
        await raises("a second one", lockproxy.NotAcquired, hold(key))
        for mistake in ({"wait": "5s"}, {}):
            try:
                lockproxy.lock(r, key, **mistake).fence
            except TypeError:
                continue
            sys.exit(f"FAIL no TypeError: {mistake}")
    check("free after", await is_free(key), True)


async def wait():
    key = PREFIX + "wait"
    tokens = []

    async def second():
        async with lockproxy.lock(r, key, wait=0) as other:
            tokens.append(other.token)

    async with lockproxy.lock(r, key) as held:
        waiter = asyncio.create_task(second())
        await until_waiter(key)
        check("given meanwhile", tokens, [])
    await waiter
    check("the waiter's token is greater", tokens[0] > held.token, True)


async def exception():
    key = PREFIX + "exception"

    async def work():
        async with lockproxy.lock(r, key):
            raise ValueError

    await raises("the block's own error", ValueError, work())
    check("free after an exception", await is_free(key), True)
    inside = asyncio.Event()

    async def stay():
        async with lockproxy.lock(r, key):
            inside.set()
            await asyncio.sleep(600)

    task = asyncio.create_task(stay())
    await inside.wait()
    task.cancel()
    await raises("a cancelled block", asyncio.CancelledError, task)
    check("free after it was cancelled", await is_free(key), True)


async def fence():
    key = PREFIX + "fence"
    async with lockproxy.lock(r, key) as held:
        check("FENCE", await held.fence("SET", key + ":value", "1") in (b"OK", True), True)
    await raises("FENCE after the end", lockproxy.Lost, held.fence("SET", key + ":value", "2"))
    check("what is written", await r.get(key + ":value"), b"1")


async def lost():
    key = PREFIX + "lost"

    async def work():
        async with lockproxy.lock(r, key, timeout=600):
            check("UNLOCK FORCE", await r.execute_command("UNLOCK", key, "FORCE"), 1)
            await asyncio.sleep(600)  # is cancelled

    await raises("the block", lockproxy.Lost, work())


async def longest():
    async def work():
        async with lockproxy.lock(r, PREFIX + "max", timeout=600, max=0.3):
            await asyncio.sleep(600)  # is cancelled

    await raises("the block", lockproxy.Lost, work())


async def once():
    key, made = PREFIX + "once", []

    async def make(claim):
        made.append(claim.token)
        await until_waiter(await claim_of(key))
        await raises("a second maker", lockproxy.NotAcquired, lockproxy.once(r, key, make))
        return "the value"

    got = await asyncio.gather(
        *(lockproxy.once(r, key, make, ttl=300, wait=0) for _ in range(3)))
    check("made and given", (len(made), got), (1, [b"the value"] * 3))
    check("how long it lives", 200 < await r.ttl(key) <= 300, True)
    check("another", await lockproxy.once(r, key, fail), b"the value")

    async def again(claim):
        check("while it is made again", await lockproxy.once(r, key, fail, early=400),
              b"the value")
        return "newer"

    check("early enough", await lockproxy.once(r, key, fail, early=100), b"the value")
    check("soon gone", await lockproxy.once(r, key, again, ttl=600, early=400), b"newer")
    check("stored", await r.get(key), b"newer")

    async def five(claim):
        return 5

    await raises("the maker's own error", ValueError, lockproxy.once(r, key + ":2", fail))
    check("after it, with no end", await lockproxy.once(r, key + ":2", five), b"5")
    check("how long it lives", await r.ttl(key + ":2"), -1)

    async def forced(claim):
        claim = await claim_of(key + ":3")
        check("UNLOCK FORCE", await r.execute_command("UNLOCK", claim, "FORCE"), 1)
        await asyncio.sleep(600)  # is cancelled

    await raises("the end of a lost claim", lockproxy.Lost, lockproxy.once(
        r, key + ":3", forced, timeout=600))
    check("stored", await r.get(key + ":3"), None)
    await raises("what DONE says", redis.ResponseError, lockproxy.once(
        r, key + ":3", five, ttl=0))


async def fail(claim):
    raise ValueError


async def claim_of(key):
    scan = await r.execute_command("LOCKSCAN", 0, "MATCH", key + ":once:*", "COUNT", 100000)
    return scan[1][0]


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
    if len(sys.argv) > 3:
        await hold(sys.argv[4], sys.argv[3], *sys.argv[5:])
    for step in [acquire, wait, exception, fence, lost, longest, once, decorator, health, unix]:
        await step()
        print("ok", step.__name__, flush=True)
    check("tasks that are left", len(asyncio.all_tasks()), 1)


asyncio.run(main())

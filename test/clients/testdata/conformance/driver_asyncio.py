"""Does what it is told with the Python package's asyncio: see features in conformance_test.go."""
import asyncio
import datetime
import os
import sys
import time

import psycopg
import redis.asyncio

import lockproxy.aio

KEYS = {"max": "max_hold"}
options = {"host": sys.argv[1], "port": int(sys.argv[2])}
if "CA" in os.environ:
    options.update(ssl=True, ssl_ca_certs=os.environ["CA"])
if "PASSWORD" in os.environ:
    options.update(username=os.environ["USERNAME"], password=os.environ["PASSWORD"])
r = redis.asyncio.Redis(decode_responses=True, **options)


class Raised(Exception):
    pass


def say(*words):
    print(*words, flush=True)


async def told():
    return (await lines.readline()).decode().split()


def parse(words):
    """Options as their names and values, in the types of Python."""
    given = dict(word.split("=") for word in words if "=" in word)
    return {KEYS.get(name, name): datetime.timedelta(seconds=float(value))
            for name, value in given.items()}


async def step(held, name, *words):
    try:
        if name == "fence":
            say("reply", await held.fence(*words))
        elif name == "extend":
            await held.extend(datetime.timedelta(seconds=float(words[0])))
            say("extended")
        elif name == "fork":
            if os.fork() == 0:
                say("child lost")
                time.sleep(3600)
        elif name in ("sql", "begin"):
            held.db = await psycopg.AsyncConnection.connect("")
            cursor = held.db.cursor()
            await held.fence_sql(cursor)
            await cursor.execute("INSERT INTO writes VALUES (%s)", words)
            if name == "sql":
                await held.db.commit()
            say("written" if name == "sql" else "begun")
        elif name == "commit":
            await held.db.commit()
            say("written")
        elif name == "raise":
            raise Raised
    except lockproxy.aio.Lost:
        say("lost")
    except redis.RedisError as e:
        say("error", e)


async def steps(held, last):
    """The loss cancels what the block awaits, once."""
    lost, line = False, None
    while True:
        try:
            line = await told()
            if line == ["await"] and not lost:
                await asyncio.sleep(3600)
        except asyncio.CancelledError:
            lost = True
            if line != ["await"]:
                continue
        if line[0] == last:
            return line
        if line == ["await"]:
            say("told")
        elif line == ["check"]:
            say("lost" if lost else "ok")
        else:
            task = asyncio.ensure_future(step(held, *line))
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                lost = True
                await task


async def lock(key, *words):
    async with lockproxy.aio.lock(r, key, **parse(words)) as held:
        say("held", held.token)
        await steps(held, "leave")
    say("released")


async def once(key, *words):
    async def make(claim):
        say("make", claim.token)
        return (await steps(claim, "value"))[1]

    say("value", await lockproxy.aio.once(r, key, make, **parse(words)))


async def run(line):
    try:
        await {"lock": lock, "once": once}[line[0]](*line[1:])
    except lockproxy.aio.NotAcquired:
        say("refused")
    except lockproxy.aio.Lost:
        say("lost")
    except Raised:
        say("raised")
    except asyncio.CancelledError:
        say("cancelled")
    except Exception as e:
        say("error", str(e).replace("\n", " "))


async def main():
    global lines
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await told():
        task = asyncio.create_task(run(line))
        if "cancel" in line:
            await told()
            task.cancel()
        await task


asyncio.run(main())

"""Does what it is told with the Python package: see features in conformance_test.go."""
import contextlib
import datetime
import functools
import os
import sys
import threading
import time

import psycopg2
import redis

import lockproxy

KEYS = {"max": "max_hold"}
options = {"host": sys.argv[1], "port": int(sys.argv[2])}
if "CA" in os.environ:
    options.update(ssl=True, ssl_ca_certs=os.environ["CA"])
if "PASSWORD" in os.environ:
    options.update(username=os.environ["USERNAME"], password=os.environ["PASSWORD"])
r = redis.Redis(decode_responses=True, **options)


@functools.cache
def db():
    return psycopg2.connect("")


class Raised(Exception):
    pass


def say(*words):
    print(*words, flush=True)


def told():
    return sys.stdin.readline().split()


def parse(words):
    """Options as their names and values, in the types of Python."""
    given = dict(word.split("=") for word in words if "=" in word)
    return {KEYS.get(name, name): datetime.timedelta(seconds=float(value))
            for name, value in given.items()}


def step(held, name, *words):
    try:
        if name == "fence":
            say("reply", held.fence(*words))
        elif name == "extend":
            held.extend(datetime.timedelta(seconds=float(words[0])))
            say("extended")
        elif name == "check":
            held.check()
            say("ok")
        elif name == "await":
            held.lost.wait()
            say("told")
        elif name == "fork":
            if os.fork() == 0:
                say("child", "lost" if held.lost.is_set() else "held")
                time.sleep(3600)
        elif name in ("sql", "begin"):
            with psycopg2.connect("") if name == "sql" else contextlib.nullcontext(db()) as begun:
                cursor = begun.cursor()
                held.fence_sql(cursor)
                cursor.execute("INSERT INTO writes VALUES (%s)", words)
            say("written" if name == "sql" else "begun")
        elif name == "commit":
            db().commit()
            say("written")
        elif name == "raise":
            raise Raised
    except lockproxy.Lost:
        say("lost")
    except redis.RedisError as e:
        say("error", e)


def lock(key, *words):
    cancel = None
    if "cancel" in words:
        cancel = threading.Event()
        threading.Thread(target=lambda: (told(), cancel.set())).start()
    with lockproxy.lock(r, key, cancel=cancel, **parse(words)) as held:
        say("held", held.token)
        while (line := told()) != ["leave"]:
            step(held, *line)
    say("released")


def once(key, *words):
    def make(claim):
        say("make", claim.token)
        while (line := told())[0] != "value":
            step(claim, *line)
        return line[1]

    say("value", lockproxy.once(r, key, make, **parse(words)))


while line := told():
    try:
        {"lock": lock, "once": once}[line[0]](*line[1:])
    except lockproxy.NotAcquired:
        say("refused")
    except lockproxy.Cancelled:
        say("cancelled")
    except lockproxy.Lost:
        say("lost")
    except Raised:
        say("raised")
    except Exception as e:
        say("error", str(e).replace("\n", " "))

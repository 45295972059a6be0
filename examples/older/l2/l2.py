#!/usr/bin/python3
"""L2: a timestamp lock published for Python with redis-py.

    l2.py HOST PORT KEY SECONDS-TO-RUN [--pause MS] [--crash]

Value at the key: Unix seconds, now + 3 + 1. Its known faults, which are left in:
  - GET or GETSET may return nil, if the lock is released just before, which breaks the comparison: an exception in Python 3,
    counted as nil_errors. After a GETSET, nobody has the lock that was just written.
  - as L1's: a losing GETSET rewrites the winner's value; DEL can hit another's lock; the clients' clocks
"""
import argparse
import json
import random
import time

import redis

TIMEOUT = 3

parser = argparse.ArgumentParser()
parser.add_argument("host")
parser.add_argument("port", type=int)
parser.add_argument("key")
parser.add_argument("seconds", type=float)
parser.add_argument("--pause", type=int, default=0, metavar="MS")
parser.add_argument("--crash", action="store_true")
args = parser.parse_args()

r = redis.Redis(args.host, args.port, single_connection_client=True, decode_responses=True)
deadline = time.monotonic() + args.seconds
report = {"program": "l2", "acquisitions": 0, "failures": 0, "violations": 0, "unreleased": 0, "nil_errors": 0, "longest_wait_ms": 0}


def now():
    return int(time.time())


def acquire():
    """Returns the value at the key, or None when the run is over."""
    while time.monotonic() < deadline:
        value = now() + TIMEOUT + 1
        try:
            if r.setnx(args.key, value) or (now() > int(r.get(args.key)) and now() > int(r.getset(args.key, value))):
                return value
        except TypeError:  # int(None)
            report["nil_errors"] += 1
        report["failures"] += 1
        time.sleep(0.001)


def release(value):
    if now() < value:
        r.delete(args.key)
    else:
        report["unreleased"] += 1


def inside():
    """The work: is anybody else at it? And a count that gets lost if so."""
    if r.incr(args.key + ":inside") != 1:
        report["violations"] += 1
    n = int(r.get(args.key + ":counter") or 0)
    time.sleep(random.uniform(0.001, 0.003))
    r.set(args.key + ":counter", n + 1)
    r.decr(args.key + ":inside")


while time.monotonic() < deadline:
    began = time.monotonic()
    value = acquire()
    report["longest_wait_ms"] = max(report["longest_wait_ms"], int((time.monotonic() - began) * 1000))
    if value is None:
        break
    report["acquisitions"] += 1
    inside()
    if args.crash:
        break
    release(value)
    time.sleep(args.pause / 1000)
print(json.dumps(report))

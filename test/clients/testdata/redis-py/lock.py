#!/usr/bin/python3
"""Takes one lock again and again with redis-py's Lock.

usage: lock.py HOST PORT KEY SECONDS

It prints how often it had the lock, and how often another client had it at the same time: each
holder counts KEY:inside up and down.
"""
import sys
import time

import redis

host, port, key, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
r = redis.Redis(host, port)
end = time.time() + seconds
acquisitions = violations = 0
while time.time() < end:
    with r.lock(key, timeout=10, blocking_timeout=20):
        acquisitions += 1
        if r.incr(key + ":inside") != 1:
            violations += 1
        time.sleep(0.002)
        r.decr(key + ":inside")
print("acquisitions", acquisitions, "violations", violations)

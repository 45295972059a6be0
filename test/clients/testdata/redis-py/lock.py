#!/usr/bin/python3
"""Takes one lock again and again with redis-py's Lock.

usage: lock.py HOST PORT KEY NAME

It ends when there is a key KEY:end. It counts how often it had the lock at KEY:NAME, and how often
another client had it at the same time at KEY:violations: each holder counts KEY:inside up and down.
"""
import sys
import time

import redis

host, port, key, name = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
r = redis.Redis(host, port)
ended = False
while not ended:
    with r.lock(key, timeout=600):
        if r.incr(key + ":inside") != 1:
            r.incr(key + ":violations")
        time.sleep(0.002)
        r.decr(key + ":inside")
        r.incr(f"{key}:{name}")
    ended = r.exists(key + ":end")

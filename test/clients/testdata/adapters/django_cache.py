#!/usr/bin/python3
"""examples/adapters/lockproxy_redis_py.py with django-redis.

usage: django_cache.py HOST PORT          every step
       django_cache.py HOST PORT hold KEY holds KEY until it is killed
"""
import os
import sys
import time

from django.conf import settings

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../../examples/adapters"))
sys.dont_write_bytecode = True
settings.configure(CACHES={"default": {
    "BACKEND": "django_redis.cache.RedisCache",
    "LOCATION": f"redis://{sys.argv[1]}:{sys.argv[2]}/0",
    "KEY_FUNCTION": lambda key, prefix, version: key if sys.argv[3:] else f"{prefix}:{version}:{key}",
    "KEY_PREFIX": "adapter:django",
    "OPTIONS": {"REDIS_CLIENT_CLASS": "lockproxy_redis_py.Redis"},
}})
from django.core.cache import cache

import lockproxy_redis_py


def check(what, got, want=True):
    if got != want:
        sys.exit(f"FAIL {what}: got {got!r}, want {want!r}")


if len(sys.argv) > 3:
    cache.lock(sys.argv[4], timeout=600).acquire()
    print("held", flush=True)
    time.sleep(600)

cache.set("value", "cached")
check("the cache", cache.get("value"), "cached")
with cache.lock("report", timeout=600) as held:
    check("its class", type(held), lockproxy_redis_py.Lock)
    check("its name", held.name, "adapter:django:1:report")
    other = cache.lock("report", timeout=600, blocking_timeout=0.1)
    check("another", other.acquire(), False)
check("free after", other.acquire())
other.release()
print("ok")

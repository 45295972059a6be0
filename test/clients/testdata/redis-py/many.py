#!/usr/bin/python3
"""Many clients that have asked once, and stay connected until the input ends.

usage: many.py HOST PORT CLIENTS DATABASE
"""
import sys

import redis

HOST, PORT, CLIENTS, DATABASE = sys.argv[1], *map(int, sys.argv[2:])


def ask():
    for i, client in enumerate(clients):
        if client.get(f"many:{i}") is not None:
            sys.exit(f"client {i} got a value")


clients = [redis.Redis(HOST, PORT, DATABASE) for _ in range(CLIENTS)]
ask()
print("asked", flush=True)
sys.stdin.read()
ask()
print("asked again")

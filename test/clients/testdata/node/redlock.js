// Takes one lock again and again with redlock.
//
// usage: node redlock.js HOST PORT KEY NAME
//
// It ends when there is a key KEY:end. It counts how often it had the lock at KEY:NAME, and how often
// another client had it at the same time at KEY:violations: each holder counts KEY:inside up and down.

import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock from "redlock";

const [host, port, key, name] = process.argv.slice(2);
const r = new Redis({ host, port: Number(port), retryStrategy: null });
const redlock = new Redlock([r], { retryCount: 100_000 }); // it tries for hours
let ended = 0;
while (!ended) {
  const lock = await redlock.acquire(key, 600_000);
  if ((await r.incr(key + ":inside")) !== 1) await r.incr(key + ":violations");
  await sleep(2);
  await r.decr(key + ":inside");
  await r.incr(`${key}:${name}`);
  await redlock.release(lock);
  ended = await r.exists(key + ":end");
}
r.disconnect();

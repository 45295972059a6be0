// Takes one lock again and again with redlock.
//
// usage: node redlock.js HOST PORT KEY SECONDS
//
// It prints how often it had the lock, and how often another client had it at the same time: each
// holder counts KEY:inside up and down.

import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock from "redlock";

const [host, port, key, seconds] = process.argv.slice(2);
const r = new Redis({ host, port: Number(port), retryStrategy: null });
const redlock = new Redlock([r], { retryCount: 100 }); // it tries for 20 s
const end = Date.now() + 1000 * Number(seconds);
let [acquisitions, violations] = [0, 0];
while (Date.now() < end) {
  const lock = await redlock.acquire(key, 10_000);
  acquisitions++;
  if ((await r.incr(key + ":inside")) !== 1) violations++;
  await sleep(2);
  await r.decr(key + ":inside");
  await redlock.release(lock);
}
console.log("acquisitions", acquisitions, "violations", violations);
r.disconnect();

// clients/node/lockproxy.cjs with ioredis and node-redis, as they connect by default.
//
// usage: node helper.mjs HOST PORT ioredis|node-redis            every step
//        node helper.mjs HOST PORT ioredis|node-redis hold KEY   holds KEY until it is killed;
//                                                     wait KEY SECONDS   waits for it before

import assert from "node:assert/strict";
import { once as event } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { Lost, NotAcquired, once as shared, withLock }
  from "../../../../clients/node/lockproxy.cjs";

const [host, port, library, hold, holdKey, seconds] = process.argv.slice(2);
const prefix = `helper:${library}:`;
const r = library === "ioredis"
  ? new Redis({ host, port: Number(port) })
  : await createClient({ socket: { host, port: Number(port) } }).connect();
const send = (...args) => library === "ioredis" ? r.call(...args) : r.sendCommand(args.map(String));
r.on("error", () => {}); // it connects again by itself
const isFree = async (key) => (await send("LOCKINFO", key)) === null;

async function untilWaiter(key) {
  while (!(await send("LOCKINFO", key, "WAITERS"))?.length) await sleep(10);
}

if (hold) {
  await withLock(r, holdKey, { timeout: 600, wait: seconds && Number(seconds) }, async () => {
    console.log("held");
    await sleep(600_000);
  });
}

async function acquire() {
  const key = prefix + "acquire";
  const result = await withLock(r, key, { owner: "me" }, async ({ token, signal }) => {
    assert.ok(Number.isSafeInteger(token) && token > 0);
    assert.equal(await isFree(key), false);
    await assert.rejects(withLock(r, key, {}, () => {}), NotAcquired);
    assert.equal(signal.aborted, false);
    await assert.rejects(withLock(r, key, { wait: "5s" }, () => {}), /wait wants seconds/);
    return "done";
  });
  assert.equal(result, "done");
  assert.equal(await isFree(key), true);
}

async function wait() {
  const key = prefix + "wait";
  let first, second, waiter;
  await withLock(r, key, {}, async ({ token }) => {
    first = token;
    waiter = withLock(r, key, { wait: 0 }, async (held) => { second = held.token; });
    await untilWaiter(key);
    assert.equal(second, undefined);
  });
  await waiter;
  assert.ok(second > first);
}

async function exception() {
  const key = prefix + "exception";
  await assert.rejects(withLock(r, key, {}, () => { throw new RangeError("mine"); }), RangeError);
  assert.equal(await isFree(key), true);
}

async function fence() {
  const key = prefix + "fence";
  let late;
  await withLock(r, key, {}, async (held) => {
    assert.equal(await held.fence("SET", key + ":value", "1"), "OK");
    late = held;
  });
  await assert.rejects(late.fence("SET", key + ":value", "2"), Lost);
  assert.equal(await r.get(key + ":value"), "1");
}

async function lost() {
  const key = prefix + "lost";
  await assert.rejects(withLock(r, key, { timeout: 600 }, async ({ signal }) => {
    const told = event(signal, "abort");
    assert.equal(await send("UNLOCK", key, "FORCE"), 1);
    await told;
    assert.ok(signal.reason instanceof Lost);
  }), Lost);
}

async function longest() {
  await assert.rejects(withLock(r, prefix + "max", { timeout: 600, max: 0.3 },
    ({ signal }) => event(signal, "abort")), Lost);
}

const claimOf = async (key) =>
  (await send("LOCKSCAN", 0, "MATCH", key + ":once:*", "COUNT", 100000))[1][0];
const fail = () => { throw new RangeError("mine"); };

async function once() {
  const key = prefix + "once";
  let made = 0;
  const make = async () => {
    made++;
    await untilWaiter(await claimOf(key));
    await assert.rejects(shared(r, key, {}, make), NotAcquired);
    return "the value";
  };
  const got = await Promise.all([1, 2, 3].map(() => shared(r, key, { ttl: 300, wait: 0 }, make)));
  assert.deepEqual(got, Array(3).fill("the value"));
  assert.equal(made, 1);
  assert.ok(await r.ttl(key) > 200);
  assert.equal(await shared(r, key, {}, fail), "the value");
  assert.equal(await shared(r, key, { early: 100 }, fail), "the value");
  assert.equal(await shared(r, key, { ttl: 600, early: 400 }, async () => {
    assert.equal(await shared(r, key, { early: 400 }, fail), "the value");
    return "newer";
  }), "newer");
  assert.equal(await r.get(key), "newer");
  await assert.rejects(shared(r, key + ":2", {}, fail), RangeError);
  await assert.rejects(shared(r, key + ":2", {}, () => {}), TypeError);
  assert.equal(await shared(r, key + ":2", {}, ({ token }) => token > 0 ? 5 : 6), "5");
  assert.equal(await r.ttl(key + ":2"), -1);
  await assert.rejects(shared(r, key + ":3", { timeout: 600 }, async ({ signal }) => {
    const told = event(signal, "abort");
    assert.equal(await send("UNLOCK", await claimOf(key + ":3"), "FORCE"), 1);
    await told;
    return "late";
  }), Lost);
  assert.equal(await r.get(key + ":3"), null);
  await assert.rejects(shared(r, key + ":3", { ttl: 0 }, () => "1"), /invalid expire time/);
}

// The client's prefix is before the lock's name, and before the keys of what is fenced.
async function keyPrefix() {
  const client = library === "ioredis"
    ? new Redis({ host, port: Number(port), keyPrefix: prefix })
    : await createClient({ socket: { host, port: Number(port) }, keyPrefix: prefix }).connect();
  await withLock(client, "prefix", {}, async ({ fence }) => {
    assert.equal(await isFree(prefix + "prefix"), false);
    assert.equal(await isFree("prefix"), true);
    await fence("MSET", "a", "b", "b", "a");
    assert.equal(await client.get("a"), "b");
    assert.equal(await client.get("b"), "a");
    await fence("EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", 1, "c", "d");
    assert.equal(await client.get("c"), "d");
    await assert.rejects(fence("EVAL", "return 1", 1, "c", "c"), /is a key is not known/);
  });
  assert.equal(await shared(client, "value", { ttl: 300 }, () => "x"), "x");
  assert.equal(await shared(client, "value", { early: 100 }, fail), "x");
  assert.equal(await r.get(prefix + "value"), "x");
  await client.quit();
}

// Without a proxy the error says so, also ioredis'.
async function nobodyThere() {
  const options = { host: "127.0.0.1", port: 1 };
  const client = library === "ioredis" ? new Redis({ ...options, lazyConnect: true })
    : createClient({ socket: options });
  await assert.rejects(withLock(client, "any", {}, () => {}), /ECONNREFUSED/);
  await assert.rejects(withLock(client, "any", { wait: 0.2 }, () => {}), /ECONNREFUSED/);
}

// Options of the client that are not for a lock's connection.
async function options() {
  if (library !== "ioredis") return;
  const client = new Redis({ host, port: Number(port), stringNumbers: true, socketTimeout: 200 });
  const key = prefix + "options";
  await send("LOCK", key, 0.5);
  assert.equal(await withLock(client, key, { wait: 120 }, () => "done"), "done");
  client.disconnect();
}

for (const step of [acquire, wait, exception, fence, lost, longest, once, keyPrefix, nobodyThere,
  options]) {
  await step();
  console.log("ok", step.name);
}
await r.quit(); // and nothing else keeps the program running

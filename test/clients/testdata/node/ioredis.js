// Ordinary commands and locks through lockproxy with ioredis.
//
// usage: node ioredis.js HOST PORT [2|3]     (the RESP version; 3 if not given)

import assert from "node:assert/strict";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

const [host, port, protocol = "3"] = process.argv.slice(2);
const prefix = `client-test:ioredis:${protocol}:`;

// A Redis of ioredis is one connection: a waiting command delays all later ones.
const connect = () =>
  new Redis({ host, port: Number(port), protocol: Number(protocol), commandTimeout: 120_000, retryStrategy: null });
const r = connect();
const other = connect();

async function data() {
  const key = prefix + "data";
  const value = Buffer.from("binary \0\r\n\xff".repeat(10_000), "latin1");
  await r.del(key, key + ":n", key + ":hash");
  assert.equal(await r.get(key), null);
  assert.equal(await r.set(key, value), "OK");
  assert.deepEqual(await other.getBuffer(key), value);
  assert.equal(await r.incr(key + ":n"), 1);
  assert.equal(await r.hset(key + ":hash", { a: "1", b: "2" }), 2);
  assert.deepEqual({ ...(await r.hgetall(key + ":hash")) }, { a: "1", b: "2" });
  await assert.rejects(r.incr(key + ":hash"), { name: "ReplyError", message: /^WRONGTYPE / });
}

async function pipeline() {
  const pipe = r.pipeline();
  const want = [];
  for (let i = 0; i < 200; i++) {
    pipe.set(`${prefix}pipe:${i}`, i).get(`${prefix}pipe:${i}`);
    want.push([null, "OK"], [null, String(i)]);
  }
  assert.deepEqual(await pipe.exec(), want);
}

async function transaction() {
  const key = prefix + "tx";
  assert.deepEqual(await r.multi().set(key, 1).incr(key).exec(), [[null, "OK"], [null, 2]]);
  await r.watch(key);
  await other.set(key, "changed");
  assert.equal(await r.multi().set(key, "lost").exec(), null);
  assert.equal(await r.get(key), "changed");
}

async function pubsub() {
  const channel = prefix + "channel";
  const sub = connect();
  assert.equal(await sub.subscribe(channel), 1);
  const message = once(sub, "message", { signal: AbortSignal.timeout(120_000) });
  assert.equal(await r.publish(channel, "hello"), 1);
  assert.deepEqual(await message, [channel, "hello"]);
  assert.equal(await sub.unsubscribe(channel), 0);
  assert.equal(await r.publish(channel, "hello"), 0);
  assert.equal(await sub.ping(), "PONG");
  await sub.quit();
}

async function script() {
  const key = prefix + "script";
  assert.deepEqual(await r.eval("return {KEYS[1], ARGV[1], 7}", 1, key, "arg"), [key, "arg", 7]);
  const sha = await r.script("LOAD", "return redis.call('SET', KEYS[1], ARGV[1])");
  assert.equal(await r.evalsha(sha, 1, key, "by script"), "OK");
  assert.equal(await r.get(key), "by script");
}

async function waitCommand() {
  assert.equal(await r.wait(0, 100), 0);
}

async function lock() {
  const key = prefix + "lock";
  const token = await r.call("LOCK", key, 600);
  assert.ok(Number.isSafeInteger(token) && token > 0, `token ${token}`);
  assert.equal(await other.call("LOCK", key, 600), null);
  assert.equal(await other.call("UNLOCK", key, token + 1), 0);
  assert.equal(await other.call("UNLOCK", key, token), 1);
  assert.ok((await r.call("LOCK", key, 600)) > token, "the next token is greater");
  assert.equal(await other.call("UNLOCK", key), 0);
  assert.equal(await r.call("UNLOCK", key), 1);
}

async function lockError() {
  const refused = { name: "ReplyError", message: 'ERR timeout is negative: "-1" ' +
    "(seconds, greater than 0, at most 86400)" };
  await assert.rejects(r.call("LOCK", prefix + "lock", -1), refused);
}

async function lockOrder() {
  const key = prefix + "order";
  const value = "written under the lock";
  const pipe = r.pipeline().call("LOCK", key, 600).set(key + ":value", value);
  const [[, token], ...replies] = await pipe.call("UNLOCK", key).get(key + ":value").exec();
  assert.equal(typeof token, "number");
  assert.deepEqual(replies, [[null, "OK"], [null, 1], [null, value]]);
}

async function lockWait() {
  const key = prefix + "wait";
  const token = await r.call("LOCK", key, 600);
  const waiter = other.call("LOCK", key, 600, "WAIT", 60);
  assert.equal(await Promise.race([waiter, sleep(200, "waiting")]), "waiting");
  const replies = await r.pipeline().set(key + ":value", token).call("UNLOCK", key).exec();
  assert.deepEqual(replies, [[null, "OK"], [null, 1]]);
  assert.ok((await waiter) > token, "the waiter's token is greater");
  assert.equal(await other.get(key + ":value"), String(token));
  assert.equal(await other.call("UNLOCK", key), 1);
}

async function lockShared() {
  const [key, limit, ...both] = ["shared", "limit", "{all}1", "{all}2"].map((k) => prefix + k);
  const tokens = [await r.call("LOCK", key, 600, "SHARED")];
  tokens.push(await other.call("LOCK", key, 600, "SHARED"));
  assert.equal(await r.call("LOCK", key, 600), null);
  const holders = await r.call("LOCKINFO", key, "HOLDERS"); // maps are arrays, in RESP2 and RESP3
  assert.deepEqual(holders.map((h) => Array.isArray(h) ? h[1] : h.token).sort(), tokens);
  console.log("holds", key, ...tokens);

  const limited = (c, n) => c.call("LOCK", limit, 600, "LIMIT", n);
  assert.ok((await limited(r, 2)) < (await limited(other, 2)), "two of two");
  assert.equal(await limited(r, 2), null);
  assert.equal(typeof (await limited(r, 3)), "number");
  assert.equal(await r.call("UNLOCK", limit, "FORCE"), 1);

  const token = await r.call("LOCKALL", 600, 2, ...both);
  assert.equal(await other.call("LOCKALL", 600, 1, both[1]), null);
  assert.equal(await r.call("UNLOCKALL", token, 2, ...both), 2);

  const [anna, ben] = [prefix + "anna", prefix + "ben"];
  await r.call("LOCK", anna, 600, "OWNER", "anna");
  await other.call("LOCK", ben, 600, "OWNER", "ben");
  const waiter = other.call("LOCK", anna, 600, "WAIT", 60, "OWNER", "ben");
  while ((await r.call("LOCKINFO", anna, "WAITERS")).length === 0) await sleep(10);
  await assert.rejects(r.call("LOCK", ben, 600, "WAIT", 60, "OWNER", "anna"), (e) => {
    assert.equal(e.name, "ReplyError");
    console.log("refused", e.message);
    return true;
  });
  assert.equal(await r.call("UNLOCK", anna), 1);
  assert.equal(await other.call("UNLOCK", anna, await waiter), 1);
  assert.equal(await other.call("UNLOCK", ben), 1);
}

// ioredis connects again by itself, but tells that the connection has closed.
async function lockLost() {
  const key = prefix + "lost";
  const mine = new Redis({ host, port: Number(port), protocol: Number(protocol) });
  await mine.call("LOCK", key, 600, "SESSION");
  const closed = once(mine, "close").then(() => "lost");
  assert.equal(await other.call("UNLOCK", key, "FORCE"), 1);
  assert.equal(await Promise.race([closed, sleep(120_000, "nothing tells", { ref: false })]), "lost");
  mine.disconnect();
}

const steps = {
  data, pipeline, transaction, pubsub, script, "wait-command": waitCommand,
  lock, "lock-error": lockError, "lock-order": lockOrder, "lock-wait": lockWait,
  "lock-shared": lockShared,
  "lock-lost": lockLost,
};
for (const [name, step] of Object.entries(steps)) {
  await step();
  console.log("ok", name);
}
await Promise.all([r.quit(), other.quit()]);

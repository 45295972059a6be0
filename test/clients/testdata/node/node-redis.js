// Ordinary commands and locks through lockproxy with node-redis (the npm package "redis").
//
// usage: node node-redis.js HOST PORT [2|3]     (the RESP version; 3 if not given)

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient, ErrorReply, RESP_TYPES, WatchError } from "redis";

const [host, port, protocol = "3"] = process.argv.slice(2);
const prefix = `client-test:node-redis:${protocol}:`;

// A client is one connection: a waiting command delays all later ones.
const connect = () =>
  createClient({
    RESP: Number(protocol),
    socket: { host, port: Number(port), connectTimeout: 120_000, socketTimeout: 120_000, reconnectStrategy: false },
  })
    .on("error", (err) => { throw err; })
    .connect();
const r = await connect();
const other = await connect();

// node-redis sends arguments as they are: numbers must be strings.
const command = (client, ...args) => client.sendCommand(args.map(String));

async function data() {
  const key = prefix + "data";
  const value = Buffer.from("binary \0\r\n\xff".repeat(10_000), "latin1");
  await r.del([key, key + ":n", key + ":hash"]);
  assert.equal(await r.get(key), null);
  assert.equal(await r.set(key, value), "OK");
  assert.deepEqual(await other.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }).get(key), value);
  assert.equal(await r.incr(key + ":n"), 1);
  assert.equal(await r.hSet(key + ":hash", { a: "1", b: "2" }), 2);
  assert.deepEqual({ ...(await r.hGetAll(key + ":hash")) }, { a: "1", b: "2" });
  await assert.rejects(r.incr(key + ":hash"), (err) => err instanceof ErrorReply && /^WRONGTYPE /.test(err.message));
}

async function pipeline() {
  // Commands of one tick of the event loop are sent as one pipeline.
  const replies = [];
  const want = [];
  for (let i = 0; i < 200; i++) {
    replies.push(r.set(`${prefix}pipe:${i}`, i), r.get(`${prefix}pipe:${i}`));
    want.push("OK", String(i));
  }
  assert.deepEqual(await Promise.all(replies), want);
}

async function transaction() {
  const key = prefix + "tx";
  assert.deepEqual(await r.multi().set(key, 1).incr(key).exec(), ["OK", 2]);
  await r.watch(key);
  await other.set(key, "changed");
  await assert.rejects(r.multi().set(key, "lost").exec(), WatchError);
  assert.equal(await r.get(key), "changed");
}

async function pubsub() {
  const channel = prefix + "channel";
  const sub = await connect();
  let received;
  const message = new Promise((resolve) => { received = resolve; });
  await sub.subscribe(channel, received);
  assert.equal(await r.publish(channel, "hello"), 1);
  assert.equal(await Promise.race([message, sleep(120_000, "no message", { ref: false })]), "hello");
  await sub.unsubscribe(channel);
  assert.equal(await r.publish(channel, "hello"), 0);
  assert.equal(String(await sub.ping()), "PONG"); // in RESP2 it is a Buffer here
  await sub.close();
}

async function script() {
  const key = prefix + "script";
  const options = { keys: [key], arguments: ["arg"] };
  assert.deepEqual(await r.eval("return {KEYS[1], ARGV[1], 7}", options), [key, "arg", 7]);
  const sha = await r.scriptLoad("return redis.call('SET', KEYS[1], ARGV[1])");
  assert.equal(await r.evalSha(sha, options), "OK");
  assert.equal(await r.get(key), "arg");
}

async function waitCommand() {
  assert.equal(await r.wait(0, 100), 0);
}

async function lock() {
  const key = prefix + "lock";
  const token = await command(r, "LOCK", key, 600);
  assert.ok(Number.isSafeInteger(token) && token > 0, `token ${token}`);
  assert.equal(await command(other, "LOCK", key, 600), null);
  assert.equal(await command(other, "UNLOCK", key, token + 1), 0);
  assert.equal(await command(other, "UNLOCK", key, token), 1);
  assert.ok((await command(r, "LOCK", key, 600)) > token, "the next token is greater");
  assert.equal(await command(other, "UNLOCK", key), 0);
  assert.equal(await command(r, "UNLOCK", key), 1);
}

async function lockError() {
  const refused = (err) => err instanceof ErrorReply && err.message ===
    'ERR timeout is negative: "-1" (seconds, greater than 0, at most 86400)';
  await assert.rejects(command(r, "LOCK", prefix + "lock", -1), refused);
}

async function lockOrder() {
  const key = prefix + "order";
  const value = "written under the lock";
  const [token, ...replies] = await Promise.all([
    command(r, "LOCK", key, 600),
    r.set(key + ":value", value),
    command(r, "UNLOCK", key),
    r.get(key + ":value"),
  ]);
  assert.equal(typeof token, "number");
  assert.deepEqual(replies, ["OK", 1, value]);
}

async function lockWait() {
  const key = prefix + "wait";
  const token = await command(r, "LOCK", key, 600);
  const waiter = command(other, "LOCK", key, 600, "WAIT", 60);
  assert.equal(await Promise.race([waiter, sleep(200, "waiting")]), "waiting");
  assert.deepEqual(await Promise.all([r.set(key + ":value", token), command(r, "UNLOCK", key)]), ["OK", 1]);
  assert.ok((await waiter) > token, "the waiter's token is greater");
  assert.equal(await other.get(key + ":value"), String(token));
  assert.equal(await command(other, "UNLOCK", key), 1);
}

// node-redis connects again by itself, but tells that the connection has closed.
async function lockLost() {
  const key = prefix + "lost";
  const mine = createClient({ RESP: Number(protocol), socket: { host, port: Number(port) } });
  const closed = new Promise((resolve) => mine.on("error", () => resolve("lost")));
  await mine.connect();
  await command(mine, "LOCK", key, 600, "SESSION");
  const again = new Promise((resolve) => mine.once("ready", resolve));
  assert.equal(await command(other, "UNLOCK", key, "FORCE"), 1);
  assert.equal(await Promise.race([closed, sleep(120_000, "nothing tells", { ref: false })]), "lost");
  await again;
  mine.destroy();
}

const steps = {
  data, pipeline, transaction, pubsub, script, "wait-command": waitCommand,
  lock, "lock-error": lockError, "lock-order": lockOrder, "lock-wait": lockWait,
  "lock-lost": lockLost,
};
for (const [name, step] of Object.entries(steps)) {
  await step();
  console.log("ok", name);
}
await Promise.all([r.close(), other.close()]);

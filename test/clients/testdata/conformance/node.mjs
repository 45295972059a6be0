// What only the Node package has; the arguments are ioredis or node-redis, host and port.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { Lost, NotAcquired, once, withLock } from "lockproxy";

const [library, host, port] = process.argv.slice(2);
const open = (options) => library === "ioredis"
  ? new Redis({ host, port: Number(port), ...options })
  : createClient({ socket: { host, port: Number(port) }, ...options });
const prefix = `node:${library}:`;
const r = open();
if (library === "node-redis") await r.connect();

async function mistakes() {
  await assert.rejects(withLock(r, "a", { wait: "5s" }, () => {}), /wait wants seconds/);
  await assert.rejects(withLock({}, "a", {}, () => {}), /a lock wants a client of ioredis/);
  await assert.rejects(once(r, prefix + "value", {}, () => {}), TypeError);
  assert.equal(await once(r, prefix + "value", {}, () => 5), "5");
}

async function results() {
  assert.equal(await withLock(r, prefix + "a", undefined, async ({ token }) => {
    assert.ok(Number.isSafeInteger(token));
    return "done";
  }), "done");
  const both = createRequire(import.meta.url)("lockproxy"); // also from CommonJS
  assert.equal(both.withLock, withLock);
  assert.equal(new Lost("a").code, "LOCKPROXY_LOST");
  assert.equal(new NotAcquired("a").code, "LOCKPROXY_NOT_ACQUIRED");
}

// A wait is not begun if it has been aborted before, and its end has the signal's reason.
async function aborted() {
  const signal = AbortSignal.abort(new Error("mine"));
  await assert.rejects(withLock(r, prefix + "b", { signal }, () => {}), /^Error: mine$/);
}

// Words that are keys and values alike are told apart.
async function keyPrefix() {
  const client = open({ keyPrefix: prefix });
  if (library === "node-redis") await client.connect();
  await withLock(client, "prefix", {}, ({ fence }) => fence("MSET", "a", "b", "b", "a"));
  assert.deepEqual([await client.get("a"), await client.get("b")], ["b", "a"]);
  assert.equal(await once(client, "once", { early: 100 }, () => "x"), "x");
  assert.equal(await r.get(prefix + "once"), "x");
  assert.equal(await once(client, "early", { ttl: 60 }, () => "old"), "old");
  assert.equal(await once(client, "early", { ttl: 60, early: 100 }, () => "new"), "new");
  await client.quit();
}

// Without a proxy the error says so, also ioredis'.
async function nobodyThere() {
  const nobody = { host: "127.0.0.1", port: 1 };
  const client = library === "ioredis" ? new Redis({ ...nobody, lazyConnect: true })
    : createClient({ socket: nobody });
  await assert.rejects(withLock(client, "any", {}, () => {}), /ECONNREFUSED/);
}

// The client's own timeouts are not for a lock's connection.
async function timeouts() {
  const client = open(library === "ioredis"
    ? { stringNumbers: true, socketTimeout: 200, commandTimeout: 200 }
    : { commandOptions: { timeout: 200 } });
  if (library === "node-redis") await client.connect();
  const key = prefix + "timeouts";
  await (library === "ioredis" ? r.call("LOCK", key, 0.5) : r.sendCommand(["LOCK", key, "0.5"]));
  assert.equal(await withLock(client, key, { wait: 120 }, () => "done"), "done");
  client[library === "ioredis" ? "disconnect" : "destroy"]();
}

// Without the package, a client that gives up by itself leaves its wait behind: docs/commands.md.
async function gaveUp() {
  if (library !== "ioredis") return; // node-redis does not give up what it has sent
  const key = prefix + "gave-up", impatient = open({ commandTimeout: 100 });
  const token = await r.call("LOCK", key, 600);
  await assert.rejects(impatient.call("LOCK", key, 600, "WAIT", 600), /timed out/);
  assert.equal((await r.call("LOCKINFO", key, "WAITERS")).length, 1);
  await r.call("UNLOCK", key, token);
  assert.notEqual(await r.call("LOCKINFO", key), null);
  impatient.disconnect();
}

for (const step of [mistakes, results, aborted, keyPrefix, nobodyThere, timeouts, gaveUp]) await step();
await r.quit(); // and nothing else keeps the program running

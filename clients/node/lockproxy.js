// Locks of lockproxy for ioredis and for node-redis (the npm package "redis").
//
//   import { withLock, once } from "lockproxy";
//   await withLock(redis, "report", { wait: 5 }, async ({ token, fence, signal }) => {
//     await fetch(url, { signal });              // aborted if the lock is lost
//     await fence("SET", "report:state", "done"); // refused if the lock was lost
//   });
//   const body = await once(redis, "report:7", { ttl: 300, wait: 20 }, () => build(7));
//
// The lock lasts until the function's promise settles, or until the program dies. It has a
// connection of its own, a duplicate of the client's, and the client's keyPrefix. Times are seconds.

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { basename } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Another client holds the lock, or still held it when the wait ended. */
export class NotAcquired extends Error {
  name = "NotAcquired";
  code = "LOCKPROXY_NOT_ACQUIRED";
  constructor(key, does = "holds the lock") { super(`another client ${does} "${key}"`); }
}

/** The lock was lost while the function ran: another client can hold it. */
export class Lost extends Error {
  name = "Lost";
  code = "LOCKPROXY_LOST";
  constructor(key, options) { super(`the lock "${key}" was lost`, options); }
}

const PING_EVERY = 1000; // ms: balancers cut connections on which nothing moves
const ANSWER_WITHIN = 10; // seconds
const AWAY_WITHIN = 30; // seconds: a proxy that is being restarted or replaced is back by then

/**
 * Runs work under a lock and returns what it returns.
 *
 * timeout: how long a crashed proxy can leave the lock behind, in seconds.
 * wait: seconds; 0 waits forever, undefined doesn't wait.
 * max: how long the lock is held at most, in seconds, also if work hangs; undefined is forever.
 * owner: who holds the lock, for people; this program's name, host and process if undefined.
 * note: why, for people, in at most 256 bytes.
 * signal: ends the wait when it is aborted; the promise rejects with its reason.
 * work: gets the token, which rises with every acquisition; a signal that is aborted when the lock is
 * lost; and three functions. fence(command, ...) runs a command only if the lock is still held;
 * fenceSql(client) does so for what a transaction of PostgreSQL goes on to write, by a client of the
 * package pg that has begun it; and extend(timeout) sets the timeout anew. They reject with Lost.
 */
export async function withLock(client, key, { timeout = 10, note, ...options } = {}, work) {
  checkClient(client);
  checkSeconds({ timeout, ...options });
  key = prefixOf(client) + key;
  const command = ["LOCK", key, timeout, ...note === undefined ? [] : ["NOTE", note]];
  return inSession(client, key, command, options, async ({ ask, abort, reply: token }) => {
    if (token === null) throw new NotAcquired(key);
    const fence = async (...args) => {
      try {
        return await send(client, ["FENCE", key, token, ...await withPrefix(client, args)]);
      } catch (err) {
        throw err.message.startsWith("FENCED") ? new Lost(key, { cause: err }) : err;
      }
    };
    const fenceSql = async (pg) => {
      try {
        await pg.query("SELECT lockproxy_fence($1, $2)", [key, token]);
      } catch (err) {
        throw err.code === "LP001" ? new Lost(key, { cause: err }) : err;
      }
    };
    const extend = async (seconds) => {
      checkSeconds({ timeout: seconds });
      if (await orLost(abort, key, ask(["RELOCK", key, token, seconds])) !== 1) throw new Lost(key);
    };
    let released;
    try {
      return await work({ token, fence, fenceSql, extend, signal: abort.signal });
    } finally {
      released = !abort.signal.aborted && await ask(["UNLOCK", key, token]).catch(() => 0) === 1;
      // Even if work has thrown: most likely because of the loss.
      if (!released) throw new Lost(key);
    }
  });
}

/**
 * Returns the value of key, a string. If there is none, one client makes it, and all have it.
 *
 * make: gets a token and a signal, as the work of withLock does, and returns the value. If it
 * throws, the claim to make it is given up and the error passed on. Clients that ask meanwhile wait
 * for the value. If the claim is lost nothing is stored, and the promise rejects with Lost.
 * ttl: for how many seconds the value is stored; until it is deleted if undefined.
 * early: so many seconds before the value expires one client makes it again, while all others get
 * the present one.
 * The rest is as for withLock; at the end of the wait the promise rejects with NotAcquired.
 */
export async function once(client, key, { timeout = 10, ttl, early = 0, ...options } = {}, make) {
  checkClient(client);
  checkSeconds({ timeout, ttl, early, ...options });
  const lives = early > 0 ? pttl(client, key) : -1;
  const [there, left] = await Promise.all([client.get(key), lives]);
  if (there !== null && !(left >= 0 && left < early * 1000)) return there;
  key = prefixOf(client) + key;
  const command = ["ONCE", key, timeout];
  if (early > 0) command.push("EARLY", early);
  return inSession(client, key, command, options, async ({ ask, abort, reply: token }) => {
    if (token === null) throw new NotAcquired(key, "makes the value of");
    if (typeof token !== "number") return token;
    let value;
    try {
      value = await make({ token, signal: abort.signal });
      if (typeof value !== "string" && typeof value !== "number") {
        throw new TypeError(`a value is a string or a number, not ${typeof value}`);
      }
    } catch (err) {
      await ask(["DONE", key, token]).catch(() => {}); // gives up
      throw err;
    }
    const done = ["DONE", key, token, String(value)];
    if (ttl !== undefined) done.push("PX", Math.round(ttl * 1000));
    if (abort.signal.aborted) throw new Lost(key);
    if (await orLost(abort, key, ask(done)) !== 1) throw new Lost(key);
    return String(value);
  });
}

// What is asked by the lock's connection fails because of the loss if that has closed.
const orLost = (abort, key, answer) => answer.catch((err) => {
  throw abort.signal.aborted ? new Lost(key, { cause: err }) : err;
});

// Runs work with a connection that is closed at the end. Work gets the reply to LOCK or ONCE; ask,
// which sends a command; and abort, which is aborted when the connection closes.
async function inSession(client, key, command, options, work) {
  const session = await asking(client, key, command, options);
  try {
    return await work(session);
  } finally {
    session.end();
  }
}

// Asks by a new connection. If the proxy is restarted or replaced meanwhile, it asks again for the
// rest of the wait, by the same owner. A command whose wait was ended has had no effect; a lock
// whose connection is lost is released, or given to its owner again.
async function asking(client, key, command, { wait, max, owner = myName(), signal }) {
  command = [...command, "SESSION", "OWNER", owner, ...max === undefined ? [] : ["MAX", max]];
  const began = seconds();
  for (let away = began, rest = wait; ;) {
    let asked;
    try {
      signal?.throwIfAborted();
      return await attempt(client, key, command, rest, signal, () => { asked = seconds(); });
    } catch (err) {
      signal?.throwIfAborted();
      const now = seconds();
      if (asked !== undefined && now - asked > ANSWER_WITHIN) away = now; // it has been there
      const ends = Math.min(away + AWAY_WITHIN, wait > 0 ? began + wait : Infinity);
      if (wait === undefined || now >= ends || !isAway(err)) throw err;
      const pause = 0.05 + 0.45 * Math.random(); // not all who wait at once
      await sleep(1000 * Math.min(pause, ends - now), undefined, { signal })
        .catch(() => signal.throwIfAborted());
    }
    if (wait > 0) rest = Math.max(Math.round(1000 * (began + wait - seconds())), 1) / 1000;
  }
}

const seconds = () => performance.now() / 1000; // never set back

// Whether the proxy has ended a wait, or cannot be reached. Other errors are replies, or mistakes.
function isAway(err) {
  const { message } = err.cause ?? err;
  const isReply = /^[A-Z]{2,} /.test(message);
  return isReply ? message.startsWith("TRYAGAIN") : !(err instanceof TypeError);
}

async function attempt(client, key, command, wait, signal, connected) {
  const abort = new AbortController();
  const session = await connect(client, () => abort.abort(new Lost(key)));
  connected();
  const pings = pinging(session);
  const end = () => {
    signal?.removeEventListener("abort", end);
    pings.stop();
    session.removeAllListeners();
    session.on("error", () => {});
    close(session);
  };
  signal?.addEventListener("abort", end);
  try {
    const reply = await within(wait === 0 ? Infinity : (wait ?? 0) + ANSWER_WITHIN,
      send(session, wait === undefined ? command : [...command, "WAIT", wait]));
    signal?.removeEventListener("abort", end); // from now on it is not waiting
    signal?.throwIfAborted();
    pings.mustBeAnsweredWithin(Math.max(command[2], ANSWER_WITHIN));
    return { reply, abort, end, ask: (words) => within(ANSWER_WITHIN, send(session, words)) };
  } catch (err) {
    end();
    if (/^ERR unknown command/.test(err.message)) {
      throw new Error("this is a Redis, not lockproxy: connect to lockproxy's port, " +
        "6380 by default", { cause: err });
    }
    throw err;
  }
}

function checkClient(client) {
  if (typeof client?.duplicate !== "function" || client.isCluster) {
    throw new TypeError("a lock wants a client of ioredis or node-redis for one address, lockproxy's");
  }
}

function checkSeconds({ owner, signal, ...options }) {
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && typeof value !== "number") {
      throw new TypeError(`${name} wants seconds, a number, not ${JSON.stringify(value)}`);
    }
  }
}

/** Says which program this is; the random part is this lock's, since owners share theirs. */
function myName() {
  const program = basename(process.argv[1] ?? "node");
  return `${program}@${hostname()}:${process.pid}:${randomBytes(4).toString("hex")}`;
}

const isIoredis = (client) => typeof client.call === "function";

const send = (client, [name, ...args]) => isIoredis(client)
  ? client.call(name, ...args)
  : client.sendCommand([name, ...args].map(String));

// With the client's prefix: ioredis's call would put it before a key that has it.
const pttl = (client, key) => isIoredis(client) ? client.pttl(key) : client.pTTL(key);

// Pings until stop, also behind a LOCK that waits. A proxy that does not answer in time, or whose
// machine has vanished, may have lost the lock: then the connection is closed.
function pinging(session) {
  let timer, unanswered, most = Infinity;
  const began = Date.now();
  const answered = () => { unanswered = undefined; };
  const ping = () => {
    const now = Date.now();
    if (unanswered !== undefined && now - unanswered > most) return close(session);
    unanswered ??= now;
    send(session, ["PING"]).then(answered, answered); // also if the user may not
    // The proxy keeps the pings of a long wait.
    const every = most < Infinity ? PING_EVERY
      : Math.min(Math.max((now - began) / 60, PING_EVERY), 15000);
    timer = setTimeout(ping, every);
  };
  timer = setTimeout(ping, PING_EVERY);
  return {
    stop: () => clearTimeout(timer),
    mustBeAnsweredWithin: (seconds) => { unanswered = undefined; most = seconds * 1000; },
  };
}

// Rejects if there is no answer within so many seconds.
function within(seconds, answer) {
  if (seconds === Infinity) return answer;
  let timer;
  const late = new Promise((_, reject) => {
    const ms = Math.min(seconds * 1000, 2 ** 31 - 1); // setTimeout takes no more
    timer = setTimeout(() => reject(new Error("lockproxy does not answer")), ms);
  });
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}

const close = (session) => isIoredis(session) ? session.disconnect() : session.destroy();

// A connection that is not replaced when it closes: then the lock is lost.
async function connect(client, closed) {
  let session, why;
  if (isIoredis(client)) {
    session = client.duplicate({
      retryStrategy: null, maxRetriesPerRequest: 0, lazyConnect: true, stringNumbers: false,
      commandTimeout: undefined, socketTimeout: undefined,
    });
    session.on("error", (err) => { why ??= err; }); // "close" follows
    session.on("close", closed);
  } else {
    const { socket } = client.options ?? {};
    session = client.duplicate({
      socket: { ...socket, reconnectStrategy: false, socketTimeout: undefined },
      commandOptions: undefined,
    });
    session.on("error", (err) => { why ??= err; closed(); });
    session.on("end", closed);
  }
  try {
    await session.connect();
  } catch (err) { // ioredis only says that the connection is closed
    throw new Error(`cannot connect to lockproxy: ${(why ?? err).message || (why ?? err).code}`,
      { cause: why ?? err });
  }
  return session;
}

const prefixOf = (client) => String(client.options?.keyPrefix ?? "");

const positions = new Map(); // of a command's keys: first, last, step, and whether they can move

// A command with the client's prefix before its keys. Redis says which words are keys.
async function withPrefix(client, words) {
  const prefix = prefixOf(client);
  if (prefix === "") return words;
  const name = String(words[0]).toLowerCase();
  if (!positions.has(name)) {
    const [info] = await send(client, ["COMMAND", "INFO", name]);
    positions.set(name, info ? [...info.slice(3, 6).map(Number),
      [...info[2]].some((flag) => String(flag) === "movablekeys")] : [0, 0, 0, false]);
  }
  const [first, last, step, move] = positions.get(name);
  words = [...words];
  if (move) {
    for (const key of await send(client, ["COMMAND", "GETKEYS", ...words])) {
      const at = words.flatMap((word, i) => String(word) === String(key) ? [i] : []);
      if (at.length !== 1) throw new Error(`which "${key}" of ${name} is a key is not known`);
      words[at[0]] = prefix + key;
    }
  } else if (first > 0) {
    const end = last < 0 ? words.length + last : last;
    for (let i = first; i <= end; i += step) words[i] = prefix + words[i];
  }
  return words;
}

// Does what it is told with the Node package: see features in conformance_test.go.
import { readFileSync } from "node:fs";
import { once as event } from "node:events";
import { createInterface } from "node:readline";
import { Redis } from "ioredis";
import pg from "pg";
import { createClient } from "redis";
import { Lost, NotAcquired, once, withLock } from "lockproxy";

const [host, port, library] = process.argv.slice(2);
const { CA, USERNAME: username, PASSWORD: password, PREFIX: keyPrefix } = process.env;
const tls = CA && { ca: readFileSync(CA) };
const options = { username, password, ...keyPrefix && { keyPrefix } };
const r = library === "ioredis"
  ? new Redis({ host, port: Number(port), ...options, lazyConnect: true, ...tls && { tls } })
  : createClient({ socket: { host, port: Number(port), ...tls && { tls: true, ...tls } }, ...options });
r.on("error", () => {});
let connected;
const connect = () => connected ??= r.connect();

const say = (...words) => console.log(words.join(" "));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = async () => (await lines.next()).value?.split(" ");
const parse = (words) => Object.fromEntries(words.filter((word) => word.includes("="))
  .map((word) => word.split("=")).map(([name, value]) => [name, Number(value)]));

async function step(held, name, ...words) {
  try {
    if (name === "fence") {
      await connect();
      say("reply", await held.fence(...words));
    } else if (name === "extend") {
      await held.extend(Number(words[0]));
      say("extended");
    } else if (name === "check") {
      say(held.signal.aborted ? "lost" : "ok");
    } else if (name === "await") {
      if (!held.signal.aborted) await event(held.signal, "abort");
      say("told");
    } else if (name === "sql" || name === "begin") {
      held.pg = new pg.Client();
      await held.pg.connect();
      await held.pg.query("BEGIN");
      await held.fenceSql(held.pg);
      await held.pg.query("INSERT INTO writes VALUES ($1)", words);
      if (name === "sql") await held.pg.query("COMMIT");
      say(name === "sql" ? "written" : "begun");
    } else if (name === "commit") {
      await held.pg.query("COMMIT");
      say("written");
    } else if (name === "raise") {
      throw new RangeError("mine");
    }
  } catch (err) {
    if (err instanceof RangeError) throw err;
    say(err.code === "LOCKPROXY_LOST" ? "lost" : "error " + err.message);
  }
}

async function lock(key, ...words) {
  const abort = new AbortController();
  if (words.includes("cancel")) told().then(() => abort.abort(new DOMException("", "AbortError")));
  await withLock(r, key, { ...parse(words), signal: abort.signal }, async (held) => {
    say("held", held.token);
    for (let line; (line = await told())[0] !== "leave";) await step(held, ...line);
  });
  say("released");
}

async function make(key, ...words) {
  await connect();
  say("value", await once(r, key, parse(words), async (claim) => {
    say("make", claim.token);
    for (let line; ;) {
      if ((line = await told())[0] === "value") return line[1];
      await step(claim, ...line);
    }
  }));
}

for (let line; (line = await told());) {
  try {
    await { lock, once: make }[line[0]](...line.slice(1));
  } catch (err) {
    if (err instanceof NotAcquired) say("refused");
    else if (err instanceof Lost) say("lost");
    else if (err instanceof RangeError) say("raised");
    else if (err.name === "AbortError") say("cancelled");
    else say("error", err.message.replaceAll("\n", " "));
  }
}
r[library === "ioredis" ? "disconnect" : "destroy"](); // and nothing else keeps the program running

// Not run: the types of the Node helper, used as a program in TypeScript would.
import { Redis } from "ioredis";
import { createClient } from "redis";
import { Lost, NotAcquired, once, withLock } from "lockproxy";

const done: string = await withLock(new Redis(), "a", {
  wait: 5, max: 60, signal: AbortSignal.timeout(1000),
}, async (held) => {
  const token: number = held.token;
  held.signal.addEventListener("abort", () => console.log(token));
  await held.fence("SET", "b", 1);
  await held.extend(60);
  await held.fenceSql({ query: async () => {} });
  return "done";
});
const sum: number = await withLock(createClient(), done, undefined, () => 1);
// @ts-expect-error: there is no such option
await withLock(createClient(), "a", { waits: sum }, () => {});
// @ts-expect-error: a lock needs work
await withLock(createClient(), "a", {});
const value: string = await once(new Redis(), "c", { ttl: 300, early: 30, wait: 5 },
  async ({ token, signal }) => signal.aborted ? token : "value");
await once(createClient(), value, undefined, () => 1);
// @ts-expect-error: a value is a string or a number
await once(createClient(), value, {}, () => ({}));
const errors: Error[] = [new Lost("a", { cause: done }), new NotAcquired("a")];
console.log(errors);

// Locks of lockproxy for ioredis and for node-redis (the npm package "redis"): copy this file into
// your program.
//
//   import { withLock } from "./lockproxy.mjs";
//   await withLock(redis, "report", { wait: 5 }, async ({ token, fence, signal }) => {
//     await fetch(url, { signal });              // aborted if the lock is lost
//     await fence("SET", "report:state", "done"); // refused if the lock was lost
//   });
//
// The lock lasts until the function's promise settles, or until the program dies. It has a
// connection of its own, a duplicate of the client's.

/** Another client holds the lock, or still held it when the wait ended. */
export class NotAcquired extends Error { name = "NotAcquired"; }

/** The lock was lost while the function ran: another client can hold it. */
export class Lost extends Error { name = "Lost"; }

/**
 * Runs work under a lock and returns what it returns.
 *
 * timeout: how long a crashed proxy can leave the lock behind, in seconds.
 * wait: seconds; 0 is without end, undefined doesn't wait.
 * work: gets the token, which rises with every acquisition; fence(command, ...), which runs a
 * command only if the lock is still held; and a signal that is aborted when the lock is lost.
 */
export async function withLock(client, key, { timeout = 10, wait, owner } = {}, work) {
  const abort = new AbortController();
  const session = await connect(client, () => abort.abort(new Lost(key)));
  try {
    const command = ["LOCK", key, timeout, "SESSION"];
    if (wait !== undefined) command.push("WAIT", wait);
    if (owner !== undefined) command.push("OWNER", owner);
    const token = await within(wait === 0 ? Infinity : (wait ?? 0) + 10, send(session, command));
    if (token === null) throw new NotAcquired(key);
    const fence = (...args) => send(client, ["FENCE", key, token, ...args]).catch((err) => {
      throw err.message.startsWith("FENCED") ? new Lost(key, { cause: err }) : err;
    });
    let released;
    try {
      return await work({ token, fence, signal: abort.signal });
    } finally {
      released = !abort.signal.aborted &&
        (await within(10, send(session, ["UNLOCK", key, token])).catch(() => 0)) === 1;
      // Even if work has thrown: most likely because of the loss.
      if (!released) throw new Lost(key);
    }
  } finally {
    session.removeAllListeners();
    session.on("error", () => {});
    close(session);
  }
}

const isIoredis = (client) => typeof client.call === "function";

const send = (client, [name, ...args]) => isIoredis(client)
  ? client.call(name, ...args)
  : client.sendCommand([name, ...args].map(String));

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
  if (isIoredis(client)) {
    const session = client.duplicate({
      retryStrategy: null, maxRetriesPerRequest: 0, lazyConnect: true, stringNumbers: false,
      commandTimeout: undefined, socketTimeout: undefined,
    });
    session.on("error", () => {}); // "close" follows
    session.on("close", closed);
    await session.connect();
    return session;
  }
  const { socket } = client.options ?? {};
  const session = client.duplicate({
    socket: { ...socket, reconnectStrategy: false, socketTimeout: undefined },
    commandOptions: undefined,
  });
  session.on("error", closed);
  session.on("end", closed);
  await session.connect();
  return session;
}

/** An ioredis or a node-redis client. */
export interface Client {
  duplicate(options?: any): any;
}

export interface LockOptions {
  /** How long a crashed proxy can leave the lock behind, in seconds; 10 if undefined. */
  timeout?: number;
  /** In seconds; 0 waits forever, undefined doesn't wait. */
  wait?: number;
  /** How long the lock is held at most, in seconds, also if work hangs; undefined is forever. */
  max?: number;
  /** Who holds the lock, for people; this program's name, host and process if undefined. */
  owner?: string;
  /** Why, for people, in at most 256 bytes. */
  note?: string;
  /** Ends the wait when it is aborted. */
  signal?: AbortSignal;
}

export interface OnceOptions extends Omit<LockOptions, "note"> {
  /** For how many seconds the value is stored; until it is deleted if undefined. */
  ttl?: number;
  /** So many seconds before the value expires one client makes it again, while others get it. */
  early?: number;
}

export interface Claim {
  /** Rises with every acquisition: it fences other databases too. */
  token: number;
  /** Aborted, for the reason Lost, as soon as the lock is lost. */
  signal: AbortSignal;
}

export interface Held extends Claim {
  /** Runs a command in Redis only if the lock is still held; otherwise it rejects with Lost. */
  fence(command: string, ...args: (string | number)[]): Promise<unknown>;
  /** Begins what a transaction of PostgreSQL writes under the lock; see clients/postgresql. */
  fenceSql(client: { query(sql: string, values: unknown[]): Promise<unknown> }): Promise<void>;
  /** From now on a crashed proxy can leave the lock behind for so many seconds. */
  extend(timeout: number): Promise<void>;
}

/** Another client holds the lock, or still held it when the wait ended. */
export class NotAcquired extends Error {
  code: "LOCKPROXY_NOT_ACQUIRED";
  constructor(key: string, does?: string);
}

/** The lock was lost while the function ran: another client can hold it. */
export class Lost extends Error {
  code: "LOCKPROXY_LOST";
  constructor(key: string, options?: { cause?: unknown });
}

/** Runs work under a lock and returns what it returns. */
export function withLock<T>(client: Client, key: string, options: LockOptions | undefined,
  work: (held: Held) => T | Promise<T>): Promise<T>;

/** Returns the value of key. If there is none, one client makes it, and all have it. */
export function once(client: Client, key: string, options: OnceOptions | undefined,
  make: (claim: Claim) => string | number | Promise<string | number>): Promise<string>;

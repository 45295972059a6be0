<?php
// Locks of lockproxy for phpredis: copy this file into your program.
//
//   $connect = function () { $r = new Redis(); $r->connect('127.0.0.1', 6380); return $r; };
//   Lockproxy\lock($connect, 'report', function (Lockproxy\Held $held) {
//       $held->fence('SET', 'report:state', 'done'); // refused if the lock was lost
//       $held->check();                              // throws Lockproxy\Lost if it was lost
//   }, wait: 5);
//
// The lock lasts until the function ends, however that is, or until the program dies. It has a
// connection of its own, which $connect makes: no persistent one.

namespace Lockproxy;

use Redis;
use RedisException;

/** Another client holds the lock, or still held it when the wait ended. */
class NotAcquired extends \RuntimeException {}

/** The lock was lost while the function ran: another client can hold it. */
class Lost extends \RuntimeException {}

/** A lock that is held. Its token rises with every acquisition: it fences other databases too. */
class Held
{
    private bool $lost = false;

    public function __construct(
        private Redis $session, public readonly string $key, public readonly int $token,
    ) {}

    /** Throws Lost if the lock was lost. PHP has no threads: call it between steps of the work. */
    public function check(): void
    {
        $this->call('PING');
    }

    /** Runs a command in Redis only if the lock is still held. */
    public function fence(mixed ...$command): mixed
    {
        return $this->call('FENCE', $this->key, $this->token, ...$command);
    }

    /** Whether the lock was held until it was released here. */
    public function release(): bool
    {
        try {
            return $this->call('UNLOCK', $this->key, $this->token) === 1;
        } catch (Lost) {
            return false;
        }
    }

    /** The connection closes when the lock is lost. */
    private function call(mixed ...$command): mixed
    {
        try {
            $reply = $this->lost ? throw new Lost($this->key) : send($this->session, ...$command);
        } catch (RedisException $e) {
            $fenced = str_starts_with($e->getMessage(), 'FENCED');
            if ($fenced || $this->session->getLastError() === null) { // the connection has closed
                $this->lost = true;
                throw new Lost($this->key, previous: $e);
            }
            throw $e;
        }
        return $reply;
    }
}

/**
 * Holds a lock while $work runs, and returns what that returns.
 *
 * $timeout is how long a crashed proxy can leave the lock behind, in seconds. $wait is in seconds;
 * 0 is without end, null doesn't wait.
 */
function lock(
    callable $connect, string $key, callable $work, float $timeout = 10, ?float $wait = null,
    ?string $owner = null,
): mixed {
    $session = $connect();
    // The read timeout must be longer than the wait.
    $session->setOption(Redis::OPT_READ_TIMEOUT, $wait === 0.0 ? -1 : ($wait ?? 0) + 10);
    $session->setOption(Redis::OPT_MAX_RETRIES, 0); // when it closes, the lock is lost
    try {
        $command = ['LOCK', $key, $timeout, 'SESSION'];
        array_push($command, ...($wait === null ? [] : ['WAIT', $wait]));
        array_push($command, ...($owner === null ? [] : ['OWNER', $owner]));
        $token = send($session, ...$command);
        if (!is_int($token)) {
            throw new NotAcquired($key);
        }
        $session->setOption(Redis::OPT_READ_TIMEOUT, 10);
        $held = new Held($session, $key, $token);
        try {
            $result = $work($held);
        } finally {
            $released = $held->release();
        }
        return $released ? $result : throw new Lost($key);
    } finally {
        $session->close(); // which also releases the lock
    }
}

/** rawCommand returns false for errors and for null alike. */
function send(Redis $session, mixed ...$command): mixed
{
    $session->clearLastError();
    $reply = $session->rawCommand(...array_map('strval', $command));
    $error = $session->getLastError();
    return $error === null ? $reply : throw new RedisException($error);
}

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
class NotAcquired extends \RuntimeException
{
    public function __construct(string $key)
    {
        parent::__construct("another client holds the lock \"$key\"");
    }
}

/** The lock was lost while the function ran: another client can hold it. */
class Lost extends \RuntimeException
{
    public function __construct(string $key, ?\Throwable $previous = null)
    {
        parent::__construct("the lock \"$key\" was lost", 0, $previous);
    }
}

/** A lock that is held. Its token rises with every acquisition: it fences other databases too. */
class Held
{
    private bool $lost = false;

    public function __construct(
        private Redis $session, public readonly string $key, public readonly int $token,
    ) {}

    /**
     * Throws Lost if the lock was lost. PHP has no threads: call it between steps of the work, also
     * so that balancers do not cut the connection, which is idle otherwise.
     */
    public function check(): void
    {
        $this->call('PING');
    }

    /** Runs a command in Redis only if the lock is still held. */
    public function fence(mixed ...$command): mixed
    {
        return $this->call('FENCE', $this->key, $this->token,
            ...withPrefix($this->session, $command));
    }

    /** For a child after pcntl_fork(): the lock is its parent's, and ends with that. */
    public function leaveToParent(): void
    {
        $this->lost = true;
        $this->session->close();
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
 * 0 waits forever, null doesn't wait. $owner is who holds the lock, for people: this program's name,
 * host and process if it is null. $max is how long the lock is held at most, in seconds, also if
 * $work hangs; null is forever. The prefix of phpredis (OPT_PREFIX) counts.
 */
function lock(
    callable $connect, string $key, callable $work, float $timeout = 10, ?float $wait = null,
    ?string $owner = null, ?float $max = null,
): mixed {
    $session = $connect();
    $key = $session->_prefix($key);
    // The read timeout must be longer than the wait.
    $session->setOption(Redis::OPT_READ_TIMEOUT, $wait === 0.0 ? -1 : ($wait ?? 0) + 10);
    $session->setOption(Redis::OPT_MAX_RETRIES, 0); // when it closes, the lock is lost
    try {
        $command = ['LOCK', $key, $timeout, 'SESSION'];
        array_push($command, ...($max === null ? [] : ['MAX', $max]));
        array_push($command, ...($wait === null ? [] : ['WAIT', $wait]));
        array_push($command, 'OWNER', $owner ?? myName());
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

/** Says which program this is; the random part is this lock's, since owners share theirs. */
function myName(): string
{
    return sprintf('%s@%s:%d:%s', basename($_SERVER['SCRIPT_NAME'] ?? 'php') ?: 'php',
        gethostname(), getmypid(), bin2hex(random_bytes(4)));
}

/** A command with the connection's prefix before its keys. Redis says which words are keys. */
function withPrefix(Redis $session, array $words): array
{
    if ($session->_prefix('') === '') {
        return $words;
    }
    static $positions = [];
    $name = strtolower($words[0]);
    if (!isset($positions[$name])) {
        $literal = $session->getOption(Redis::OPT_REPLY_LITERAL);
        $session->setOption(Redis::OPT_REPLY_LITERAL, true); // otherwise flags are just true
        $info = send($session, 'COMMAND', 'INFO', $name)[0] ?: [null, null, [], 0, 0, 0];
        $session->setOption(Redis::OPT_REPLY_LITERAL, $literal);
        $positions[$name] = array_slice($info, 2, 4);
    }
    [$flags, $first, $last, $step] = $positions[$name];
    $at = $first > 0 ? range($first, $last < 0 ? count($words) + $last : $last, $step) : [];
    if (in_array('movablekeys', $flags, true)) {
        $at = [];
        foreach (send($session, 'COMMAND', 'GETKEYS', ...$words) as $key) {
            $found = array_keys(array_map('strval', $words), $key, true);
            $at[] = count($found) === 1 ? $found[0]
                : throw new \LogicException("which \"$key\" of $name is a key is not known");
        }
    }
    foreach ($at as $i) {
        $words[$i] = $session->_prefix((string) $words[$i]);
    }
    return $words;
}

/** rawCommand returns false for errors and for null alike. */
function send(Redis $session, mixed ...$command): mixed
{
    $session->clearLastError();
    $reply = $session->rawCommand(...array_map('strval', $command));
    $error = $session->getLastError();
    return $error === null ? $reply : throw new RedisException($error);
}

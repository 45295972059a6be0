<?php
// Locks of lockproxy for phpredis.
//
//   $connect = function () { $r = new Redis(); $r->connect('127.0.0.1', 6380); return $r; };
//   Lockproxy\lock($connect, 'report', function (Lockproxy\Held $held) {
//       $held->fence('SET', 'report:state', 'done'); // refused if the lock was lost
//       $held->check();                              // throws Lockproxy\Lost if it was lost
//   }, wait: 5);
//   $body = Lockproxy\once($r, $connect, 'report:7', fn () => build(7), ttl: 300, wait: 20);
//
// The lock lasts until the function ends, however that is, or until the program dies. It has a
// connection of its own, which $connect makes: no persistent one.

namespace Lockproxy;

use DateInterval;
use Redis;
use RedisException;

const AWAY_WITHIN = 30; // seconds: a proxy that is being restarted or replaced is back by then

/** Another client holds the lock, or still held it when the wait ended. */
class NotAcquired extends \RuntimeException
{
    public function __construct(string $key, string $does = 'holds the lock')
    {
        parent::__construct("another client $does \"$key\"");
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

/** The right to make a value. Its token rises with every claim: it fences other databases too. */
class Claim
{
    private bool $lost = false;

    public function __construct(
        protected Redis $session, public readonly string $key, public readonly int $token,
    ) {}

    /**
     * Throws Lost if the lock was lost. PHP has no threads: call it between steps of the work, also
     * so that balancers do not cut the connection, which is idle otherwise.
     */
    public function check(): void
    {
        $this->call('PING');
    }

    /** For a child after pcntl_fork(): the lock is its parent's, and ends with that. */
    public function leaveToParent(): void
    {
        $this->lost = true;
        $this->session->close();
    }

    /** Stores the value that was made; without one the claim is given up. */
    public function done(string ...$value): void
    {
        if ($this->call('DONE', $this->key, $this->token, ...$value) !== 1) {
            throw new Lost($this->key);
        }
    }

    /** The connection closes when the lock is lost. */
    protected function call(mixed ...$command): mixed
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

/** A lock that is held. Its token rises with every acquisition: it fences other databases too. */
class Held extends Claim
{
    /** Runs a command in Redis only if the lock is still held. */
    public function fence(mixed ...$command): mixed
    {
        return $this->call('FENCE', $this->key, $this->token,
            ...withPrefix($this->session, $command));
    }

    /**
     * Begins what a transaction of PostgreSQL writes under the lock, by PDO. If a later holder has
     * begun to write already, Lost is thrown, and the transaction can only be rolled back. Until it
     * ends, a later holder waits here.
     */
    public function fenceSql(\PDO $transaction): void
    {
        try {
            $call = $transaction->prepare('SELECT lockproxy_fence(?, ?)');
            $call->execute([$this->key, $this->token]);
        } catch (\PDOException $e) {
            throw $e->getCode() === 'LP001' ? new Lost($this->key, $e) : $e;
        }
    }

    /** From now on a crashed proxy can leave the lock behind for so long. */
    public function extend(float|DateInterval $timeout): void
    {
        if ($this->call('RELOCK', $this->key, $this->token, seconds($timeout)) !== 1) {
            throw new Lost($this->key);
        }
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
}

/**
 * Holds a lock while $work runs, and returns what that returns.
 *
 * Times are seconds or DateIntervals. $timeout is how long a crashed proxy can leave the lock
 * behind. $wait is how long to wait; 0 waits forever, null doesn't wait. $owner is who holds the
 * lock, for people: this program's name, host and process if it is null. $max is how long the lock
 * is held at most, also if $work hangs; null is forever. $note is why, for people, in at most 256
 * bytes. The prefix of phpredis (OPT_PREFIX) counts.
 */
function lock(
    callable $connect, string $key, callable $work, float|DateInterval $timeout = 10,
    float|DateInterval|null $wait = null, ?string $owner = null,
    float|DateInterval|null $max = null, ?string $note = null,
): mixed {
    $command = ['LOCK', $key, seconds($timeout), ...($note === null ? [] : ['NOTE', $note])];
    [$session, $token] = acquire($connect, $command, $wait, $owner, $max);
    $key = $session->_prefix($key);
    try {
        if (!is_int($token)) {
            throw new NotAcquired($key);
        }
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

/**
 * Returns the value of $key. If there is none, one client makes it, and all have it.
 *
 * $make(Claim $claim) returns the value, a string, which is stored for $ttl seconds (null: until it
 * is deleted). If it throws, the claim is given up and the error passed on. Clients that ask
 * meanwhile wait for the value; at the end of the wait NotAcquired is thrown. $early: so many
 * seconds before the value expires one client makes it again, while all others get the present one.
 * If the claim is lost nothing is stored, and Lost is thrown. $redis is a connection for values
 * that are there; the claim has one of its own. The rest is as for lock().
 */
function once(
    Redis $redis, callable $connect, string $key, callable $make,
    float|DateInterval|null $ttl = null, float|DateInterval $timeout = 10,
    float|DateInterval|null $wait = null, float|DateInterval $early = 0, ?string $owner = null,
    float|DateInterval|null $max = null,
): string {
    [$ttl, $early] = [seconds($ttl), seconds($early)];
    $value = send($redis, 'GET', $redis->_prefix($key));
    $lives = $early > 0 && is_string($value) ? send($redis, 'PTTL', $redis->_prefix($key)) : -1;
    if (is_string($value) && !($lives >= 0 && $lives < $early * 1000)) {
        return $value;
    }
    $command = ['ONCE', $key, seconds($timeout), ...($early > 0 ? ['EARLY', $early] : [])];
    [$session, $token] = acquire($connect, $command, $wait, $owner, $max);
    $key = $session->_prefix($key);
    try {
        if (!is_int($token)) {
            return is_string($token) ? $token : throw new NotAcquired($key, 'makes the value of');
        }
        $claim = new Claim($session, $key, $token);
        try {
            $value = (string) $make($claim);
        } catch (\Throwable $e) {
            try {
                $claim->done();
            } catch (\RuntimeException) { // the end of the connection also gives up
            }
            throw $e;
        }
        $claim->done($value, ...($ttl === null ? [] : ['PX', (string) round($ttl * 1000)]));
        return $value;
    } finally {
        $session->close();
    }
}

/**
 * Asks by a new connection, and returns it with the reply to LOCK or ONCE.
 *
 * If the proxy is restarted or replaced meanwhile, it asks again for the rest of the wait, by the
 * same owner. A command whose wait was ended has had no effect; a lock whose connection is lost is
 * released, or given to its owner again.
 */
function acquire(
    callable $connect, array $command, float|DateInterval|null $wait, ?string $owner,
    float|DateInterval|null $max,
): array {
    [$wait, $max] = [seconds($wait), seconds($max)];
    array_push($command, 'SESSION', 'OWNER', $owner ?? myName());
    array_push($command, ...($max === null ? [] : ['MAX', $max]));
    $began = $away = now();
    for ($rest = $wait; ; ) {
        $session = $asked = null;
        try {
            $session = $connect();
            $asked = now();
            return [$session, attempt($session, $command, $rest)];
        } catch (RedisException $e) {
            $session?->close();
            if ($asked !== null && now() - $asked > 10) {
                $away = now(); // it has been there meanwhile
            }
            $ends = min($away + AWAY_WITHIN, $wait > 0 ? $began + $wait : INF);
            if ($wait === null || now() >= $ends || !isAway($e)) {
                throw $e;
            }
            $pause = random_int(50, 500) / 1000; // not all who wait at once
            usleep((int) (1e6 * max(min($pause, $ends - now()), 0)));
        }
        if ($wait > 0) {
            $rest = round(max($began + $wait - now(), 0.001), 3);
        }
    }
}

/** Returns the reply to LOCK or ONCE, for as long as this connection lasts. */
function attempt(Redis $session, array $command, ?float $wait): mixed
{
    // The read timeout must be longer than the wait.
    $session->setOption(Redis::OPT_READ_TIMEOUT, $wait === 0.0 ? -1 : ($wait ?? 0) + 10);
    $session->setOption(Redis::OPT_MAX_RETRIES, 0); // when it closes, the lock is lost
    $command[1] = $session->_prefix($command[1]);
    try {
        $reply = send($session, ...$command, ...($wait === null ? [] : ['WAIT', $wait]));
    } catch (RedisException $e) {
        throw str_starts_with($e->getMessage(), 'ERR unknown command') ? new RedisException(
            "this is a Redis, not lockproxy: connect to lockproxy's port, 6380 by default", 0, $e)
            : $e;
    }
    $session->setOption(Redis::OPT_READ_TIMEOUT, 10);
    return $reply;
}

/** Whether the proxy has ended a wait, or cannot be reached. Other errors are replies. */
function isAway(RedisException $e): bool
{
    $why = $e->getPrevious() ?? $e;
    return str_starts_with($why->getMessage(), 'TRYAGAIN')
        || !preg_match('/^[A-Z]{2,} /', $why->getMessage());
}

function seconds(float|DateInterval|null $time): ?float
{
    if (!$time instanceof DateInterval) {
        return $time;
    }
    $begin = new \DateTimeImmutable('@0');
    return (float) $begin->add($time)->format('U.u');
}

/** The time in seconds, by a clock that is never set back. */
function now(): float
{
    return hrtime(true) / 1e9;
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

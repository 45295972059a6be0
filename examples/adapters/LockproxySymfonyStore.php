<?php
// Symfony's Lock component, by lockproxy: copy this file into your program and say
//
//   $factory = new LockFactory(new LockproxySymfonyStore($redis));
//
// $redis is a connected \Redis of phpredis. $factory->createLock('report', 30)->acquire(true)
// waits in order of arrival, without polling. acquireRead() shares the lock with other readers. The
// prefix of phpredis (OPT_PREFIX) counts, as for Symfony's own RedisStore.

use Symfony\Component\Lock\BlockingSharedLockStoreInterface;
use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;

class LockproxySymfonyStore implements BlockingStoreInterface, BlockingSharedLockStoreInterface
{
    /** $initialTtl is how long a lock is held before Symfony sets its own time, in seconds. */
    public function __construct(private Redis $redis, private float $initialTtl = 300) {}

    public function save(Key $key): void
    {
        $this->take($key, false);
    }

    public function saveRead(Key $key): void
    {
        $this->take($key, true);
    }

    public function waitAndSave(Key $key): void
    {
        $this->waitAndTake($key, false);
    }

    public function waitAndSaveRead(Key $key): void
    {
        $this->waitAndTake($key, true);
    }

    private function waitAndTake(Key $key, bool $shared): void
    {
        $reading = $this->redis->getOption(Redis::OPT_READ_TIMEOUT)
            ?: (float) ini_get('default_socket_timeout'); // 0 would be set as no time at all
        $this->redis->setOption(Redis::OPT_READ_TIMEOUT, -1); // it waits forever
        try {
            $this->take($key, $shared, 'WAIT', 0);
        } finally {
            $this->redis->setOption(Redis::OPT_READ_TIMEOUT, $reading);
        }
    }

    public function putOffExpiration(Key $key, float $ttl): void
    {
        $key->reduceLifetime($ttl);
        if ($this->send('RELOCK', $this->name($key), $this->token($key), $ttl) !== 1) {
            throw new LockConflictedException();
        }
    }

    public function delete(Key $key): void
    {
        $this->send('UNLOCK', $this->name($key), $this->token($key));
    }

    public function exists(Key $key): bool
    {
        $info = self::map($this->send('LOCKINFO', $this->name($key)) ?: []);
        if (($info['state'] ?? '') !== 'held' || ($info['mode'] ?? '') !== 'shared') {
            return ($info['state'] ?? '') === 'held' && $info['token'] === $this->token($key);
        }
        $now = $info['expires_ms'] - $info['remaining_ms'];
        foreach ($this->send('LOCKINFO', $this->name($key), 'HOLDERS') as $holder) {
            $holder = self::map($holder);
            if ($holder['token'] === $this->token($key) && $holder['expires_ms'] > $now) {
                return true;
            }
        }
        return false;
    }

    /** The lock's token, which rises with every acquisition: it fences other databases too. */
    public function token(Key $key): int
    {
        return $key->hasState(self::class) ? $key->getState(self::class)['token'] : 0;
    }

    private function take(Key $key, bool $shared, mixed ...$wait): void
    {
        $had = $key->hasState(self::class) ? $key->getState(self::class) : null;
        $owner = $had['owner'] ?? bin2hex(random_bytes(16));
        $held = $had !== null && $had['shared'] !== $shared
            && $this->send('UNLOCK', $this->name($key), $had['token']) === 1;
        if ($this->lock($key, $owner, $shared, ...$wait)) {
            return;
        }
        if ($held) { // it keeps the lock that it had, unless another has been faster
            $this->lock($key, $owner, $had['shared']);
        }
        throw new LockConflictedException();
    }

    private function lock(Key $key, string $owner, bool $shared, mixed ...$wait): bool
    {
        $token = $this->send('LOCK', $this->name($key), $this->initialTtl,
            ...($shared ? ['SHARED'] : []), ...['OWNER', $owner, ...$wait]);
        if (!is_int($token)) {
            return false;
        }
        $key->reduceLifetime($this->initialTtl);
        $key->setState(self::class, ['owner' => $owner, 'token' => $token, 'shared' => $shared]);
        return true;
    }

    /** With the prefix that phpredis puts before keys of commands that it knows. */
    private function name(Key $key): string
    {
        return $this->redis->_prefix((string) $key);
    }

    private static function map(array $reply): array
    {
        return array_column(array_chunk($reply, 2), 1, 0);
    }

    /** Errors are thrown; null is false. */
    private function send(mixed ...$command): mixed
    {
        $this->redis->clearLastError();
        $reply = $this->redis->rawCommand(...array_map('strval', $command));
        $error = $this->redis->getLastError();
        return $error === null ? $reply : throw new RedisException($error);
    }
}

<?php
// Symfony's Lock component, by lockproxy: copy this file into your program and say
//
//   $factory = new LockFactory(new LockproxySymfonyStore($redis));
//
// $redis is a connected \Redis of phpredis. $factory->createLock('report', 30)->acquire(true)
// waits in order of arrival, without polling.

use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;

class LockproxySymfonyStore implements BlockingStoreInterface
{
    /** $initialTtl is how long a lock is held before Symfony sets its own time, in seconds. */
    public function __construct(private Redis $redis, private float $initialTtl = 300) {}

    public function save(Key $key): void
    {
        $this->take($key);
    }

    public function waitAndSave(Key $key): void
    {
        $reading = $this->redis->getOption(Redis::OPT_READ_TIMEOUT)
            ?: (float) ini_get('default_socket_timeout'); // 0 would be set as no time at all
        $this->redis->setOption(Redis::OPT_READ_TIMEOUT, -1); // it waits without end
        try {
            $this->take($key, 'WAIT', 0);
        } finally {
            $this->redis->setOption(Redis::OPT_READ_TIMEOUT, $reading);
        }
    }

    public function putOffExpiration(Key $key, float $ttl): void
    {
        $key->reduceLifetime($ttl);
        if ($this->send('RELOCK', $key, $this->token($key), $ttl) !== 1) {
            throw new LockConflictedException();
        }
    }

    public function delete(Key $key): void
    {
        $this->send('UNLOCK', $key, $this->token($key));
    }

    public function exists(Key $key): bool
    {
        $info = $this->send('LOCKINFO', $key) ?: [];
        return in_array('held', $info, true) && in_array($this->token($key), $info, true);
    }

    /** The lock's token, which rises with every acquisition: it fences other databases too. */
    public function token(Key $key): int
    {
        return $key->hasState(self::class) ? $key->getState(self::class)['token'] : 0;
    }

    private function take(Key $key, mixed ...$wait): void
    {
        $owner = $key->hasState(self::class) ? $key->getState(self::class)['owner']
            : bin2hex(random_bytes(16));
        $token = $this->send('LOCK', $key, $this->initialTtl, 'OWNER', $owner, ...$wait);
        if (!is_int($token)) {
            throw new LockConflictedException();
        }
        $key->reduceLifetime($this->initialTtl);
        $key->setState(self::class, ['owner' => $owner, 'token' => $token]);
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

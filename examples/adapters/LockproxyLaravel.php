<?php
// Laravel's cache locks, by lockproxy: copy this file into your program, and in the boot() of a
// service provider say
//
//   LockproxyLaravel\Store::register($this->app);
//
// Then a store of config/cache.php with 'driver' => 'lockproxy' is a redis store, with the same
// settings, whose Cache::lock() is LOCK. Cache::lock('report', 30)->block(5, $callback) waits in
// order of arrival, without polling. Laravel's Redis must be lockproxy.

namespace LockproxyLaravel;

use Illuminate\Cache\Lock as BaseLock;
use Illuminate\Cache\RedisStore;
use Illuminate\Contracts\Cache\LockTimeoutException;

class Store extends RedisStore
{
    public static function register($app): void
    {
        $app['cache']->extend('lockproxy', function ($app, array $config) {
            $connection = $config['connection'] ?? 'default';
            $prefix = $config['prefix'] ?? $app['config']['cache.prefix'] ?? '';
            $store = new self($app['redis'], $prefix, $connection);
            return $app['cache']->repository(
                $store->setLockConnection($config['lock_connection'] ?? $connection));
        });
    }

    public function lock($name, $seconds = 0, $owner = null)
    {
        $connection = $this->lockConnection();
        $client = $connection->client(); // puts its prefix before keys of commands that it knows
        $prefix = $client instanceof \Redis ? $client->_prefix('') : $client->getOptions()->prefix;
        return new Lock($connection, $prefix . $this->getPrefix() . $name, $seconds, $owner);
    }
}

class Lock extends BaseLock
{
    /** Seconds for which a lock without a time is held; lockproxy has no locks that last forever. */
    const LONGEST = 86400;

    public ?int $token = null; // rises with every acquisition: it fences other databases too

    public function __construct(private $redis, string $name, int $seconds, ?string $owner = null)
    {
        parent::__construct($name, $seconds, $owner);
    }

    public function acquire()
    {
        return $this->take(0);
    }

    public function block($seconds, $callback = null)
    {
        if (! $this->take(max($seconds, 0.001))) {
            throw new LockTimeoutException;
        }
        if (! is_callable($callback)) {
            return true;
        }
        try {
            return $callback();
        } finally {
            $this->release();
        }
    }

    public function release()
    {
        $token = $this->ownToken();
        $this->token = null;
        return $token !== null && $this->send(0, 'UNLOCK', $this->name, $token) === 1;
    }

    /** Laravel 12: the lock runs for so many seconds from now, or for as many as at first. */
    public function refresh($seconds = null)
    {
        $seconds ??= $this->seconds > 0 ? $this->seconds : self::LONGEST;
        $token = $this->ownToken();
        return $token !== null && $this->send(0, 'RELOCK', $this->name, $token, $seconds) === 1;
    }

    public function forceRelease()
    {
        $this->send(0, 'UNLOCK', $this->name, 'FORCE');
    }

    protected function getCurrentOwner()
    {
        return $this->info()['owner'] ?? '';
    }

    private function ownToken(): ?int
    {
        if ($this->token === null && $this->getCurrentOwner() === $this->owner) { // restoreLock()
            return $this->info()['token'] ?? null;
        }
        return $this->token;
    }

    private function take(float $wait): bool
    {
        $seconds = $this->seconds > 0 ? $this->seconds : self::LONGEST;
        $command = ['LOCK', $this->name, $seconds, 'OWNER', $this->owner];
        $reply = $this->send($wait, ...$command, ...($wait > 0 ? ['WAIT', $wait] : []));
        $this->token = is_int($reply) ? $reply : null;
        return $this->token !== null;
    }

    private function info(): array
    {
        $info = $this->send(0, 'LOCKINFO', $this->name) ?: [];
        return array_column(array_chunk($info, 2), 1, 0);
    }

    /** Errors are thrown; null is null with Predis and false with phpredis. */
    private function send(float $wait, ...$command)
    {
        $client = $this->redis->client();
        [$reading, $setReading] = $this->readTimeout($client);
        if ($wait > 0 && $reading > 0) { // it must be longer than the wait
            $setReading($reading + $wait);
        }
        try {
            if (! $client instanceof \Redis) {
                $reply = $client->executeRaw(array_map('strval', $command), $failed);
                return $failed ? throw new \RuntimeException($reply) : $reply;
            }
            $client->clearLastError();
            $reply = $client->rawCommand(...array_map('strval', $command));
            $failed = $client->getLastError();
            return $failed === null ? $reply : throw new \RedisException($failed);
        } finally {
            if ($wait > 0 && $reading > 0) {
                $setReading($reading);
            }
        }
    }

    /** The read timeout of the connection, and what sets it. Without one, PHP's own applies. */
    private function readTimeout($client): array
    {
        $default = (float) ini_get('default_socket_timeout');
        if ($client instanceof \Redis) {
            return [$client->getOption(\Redis::OPT_READ_TIMEOUT) ?: $default,
                fn ($seconds) => $client->setOption(\Redis::OPT_READ_TIMEOUT, $seconds)];
        }
        $connection = $client->getConnection();
        if (! $connection instanceof \Predis\Connection\StreamConnection) {
            return [0, null]; // unknown
        }
        return [$connection->getParameters()->read_write_timeout ?? $default,
            fn ($seconds) => stream_set_timeout($connection->getResource(), (int) ceil($seconds))];
    }
}

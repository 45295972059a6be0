<?php
// examples/adapters/LockproxyLaravel.php with Laravel's cache and Redis components.
//
// usage: php laravel.php HOST PORT phpredis|predis          every step
//        php laravel.php HOST PORT phpredis|predis hold KEY holds KEY until it is killed

foreach (['Support', 'Contracts', 'Cache', 'Redis'] as $component) {
    require "Illuminate/$component/autoload.php";
}
require 'Predis/autoload.php';
require __DIR__ . '/../../../../examples/adapters/LockproxyLaravel.php';

use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Redis\RedisManager;
use LockproxyLaravel\Store;

function check(string $what, mixed $got, mixed $want = true): void
{
    if ($got !== $want) {
        fwrite(STDERR, "FAIL $what: got " . json_encode($got) . "\n");
        exit(1);
    }
}

function manager(array $options = [], array $connection = []): RedisManager
{
    global $argv;
    return new RedisManager(null, $argv[3], ['options' => $options,
        'default' => ['host' => $argv[1], 'port' => (int) $argv[2]] + $connection]);
}

// What has a short read timeout fails when the machine stops for longer: then it is done again.
function impatiently(callable $try): void
{
    for ($tries = 1;; $tries++) {
        try {
            $try();
            return;
        } catch (RedisException | Predis\Connection\ConnectionException $e) {
            if ($tries === 5) {
                throw $e;
            }
        }
    }
}

$manager = manager();

// The parts of an application that register() asks for.
$cache = new class {
    public array $drivers = [];

    public function extend(string $name, callable $make): void
    {
        $this->drivers[$name] = $make;
    }

    public function repository($store)
    {
        return new Illuminate\Cache\Repository($store);
    }
};
$app = ['cache' => $cache, 'redis' => $manager, 'config' => ['cache.prefix' => 'adapter:laravel:']];
Store::register($app);
$store = $cache->drivers['lockproxy']($app, ['driver' => 'lockproxy']);

if (isset($argv[5])) {
    $store->setPrefix('');
    $store->lock($argv[5], 600)->get();
    echo "held\n";
    sleep(600);
}

$store->put('value', 'cached', 10); // everything else is as with a redis store
check('the cache', $store->get('value'), 'cached');

$name = "$argv[3]:report";
check('get', $store->lock($name, 600)->get(fn () => 'done'), 'done');
$a = $store->lock($name, 600);
$b = $store->lock($name, 600);
check('acquire', $a->get());
check('acquire by another', $b->get(), false);
check('release by another', $b->release(), false);
$token = $a->token;
check('token', $token > 0);

check('refresh', $a->refresh(500));
check('refresh by another', $b->refresh(500), false);
check('refresh by restoreLock', $store->restoreLock($name, $a->owner())->refresh());

impatiently(function () use ($name) {
    $store = new Store(manager(connection: ['read_timeout' => 1]), 'adapter:laravel:');
    $began = microtime(true);
    try {
        $store->lock($name, 600)->block(1.3); // longer than the read timeout
        check('block throws', false);
    } catch (LockTimeoutException) {
        check('it has waited', microtime(true) - $began > 1.2);
    }
});
try {
    $store->lock($name, 600)->block(0);
    check('block(0) throws', false);
} catch (LockTimeoutException) {
}

check('restoreLock by another', $store->restoreLock($name, 'nobody')->release(), false);
check('restoreLock', $store->restoreLock($name, $a->owner())->release());
check('released', $a->release(), false);
check('block', $b->block(1, fn () => $b->token > $token));
check('without a time', $store->lock($name)->get());
check('held', $store->lock($name, 1)->get(), false);
$store->lock($name)->forceRelease();
check('forced', $store->lock($name, 1)->get(fn () => true));
try {
    $store->lock($name, 600)->get(fn () => throw new DomainException());
    check('an exception inside is thrown', false);
} catch (DomainException) {
}
check('free after an exception', $a->get());
$store->lock($name)->forceRelease();
check('refresh of a lost lock', $a->refresh(), false);
check('release of a lost lock', $a->release(), false);
try {
    $store->lock($name, 1e9)->get();
    check('an error is thrown', false);
} catch (Exception $e) {
    check('it is the error', str_contains($e->getMessage(), 'timeout is not a float'));
}

// A connection with the library's own read timeout, and a prefix, which Laravel's lock has too.
$prefix = ['prefix' => 'prefix:'];
$manager = manager($prefix);
$laravels = (new Illuminate\Cache\RedisStore($manager, 'adapter'))->lock($name, 600);
impatiently(function () use ($argv, $prefix, $name, $manager, $laravels) {
    $key = 'prefix:' . (new Store($manager, 'adapter'))->getPrefix() . $name;
    $manager->connection()->del(substr($key, strlen('prefix:')));
    check("Laravel's lock", $laravels->get());
    $cli = "redis-cli -h $argv[1] -p $argv[2]";
    $waits = "$cli LOCKINFO $key | grep -A1 '^waiters$' | grep -q '^1$'";
    $other = popen("until $waits; do sleep 0.01; done; sleep 2.5; $cli PEXPIRE $key 1", 'r');
    ini_set('default_socket_timeout', '2'); // shorter than the wait
    $impatient = manager($prefix);
    $lock = (new Store($impatient, 'adapter'))->lock($name, 600);
    check('get while it is held', $lock->get(), false);
    check('block', $lock->block(120));
    pclose($other);
    check("Laravel's lock while it is held", $laravels->get(), false);
    $impatient->connection()->blpop("$name:none", 1);
    check('release', $lock->release());
});
echo "ok\n";

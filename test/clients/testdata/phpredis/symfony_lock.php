<?php
// Takes one lock again and again with Symfony's Lock component.
//
// usage: php symfony_lock.php HOST PORT KEY SECONDS
//
// It prints how often it had the lock, and how often another client had it at the same time: each
// holder counts KEY:inside up and down.

require 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

[, $host, $port, $key, $seconds] = $argv;
$redis = new Redis();
$redis->connect($host, (int) $port);
$factory = new LockFactory(new RedisStore($redis));
$end = microtime(true) + $seconds;
$acquisitions = $violations = 0;
while (microtime(true) < $end) {
    $lock = $factory->createLock($key, 10);
    $lock->acquire(true);
    $acquisitions++;
    if ($redis->incr("$key:inside") !== 1) {
        $violations++;
    }
    usleep(2000);
    $redis->decr("$key:inside");
    $lock->release(); // it throws if that was not its own
}
echo "acquisitions $acquisitions violations $violations\n";

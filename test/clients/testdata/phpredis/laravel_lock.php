<?php
// Takes one lock again and again with Laravel's cache.
//
// usage: php laravel_lock.php HOST PORT KEY SECONDS
//
// It prints how often it had the lock, and how often another client had it at the same time: each
// holder counts KEY:inside up and down.

foreach (['Support', 'Contracts', 'Cache', 'Redis'] as $component) {
    require "Illuminate/$component/autoload.php";
}

use Illuminate\Cache\RedisStore;
use Illuminate\Redis\RedisManager;

[, $host, $port, $key, $seconds] = $argv;
$manager = new RedisManager(null, 'phpredis', ['default' => ['host' => $host, 'port' => (int) $port]]);
$store = new RedisStore($manager);
$end = microtime(true) + $seconds;
$acquisitions = $violations = 0;
while (microtime(true) < $end) {
    $lock = $store->lock($key, 10);
    $lock->block(20);
    $acquisitions++;
    if ($manager->incr("$key:inside") !== 1) {
        $violations++;
    }
    usleep(2000);
    $manager->decr("$key:inside");
    if (!$lock->release()) {
        fwrite(STDERR, "not released\n");
        exit(1);
    }
}
echo "acquisitions $acquisitions violations $violations\n";

<?php
// Takes one lock again and again with Laravel's cache.
//
// usage: php laravel_lock.php HOST PORT KEY NAME
//
// It ends when there is a key KEY:end. It counts how often it had the lock at KEY:NAME, and how often
// another client had it at the same time at KEY:violations: each holder counts KEY:inside up and down.

foreach (['Support', 'Contracts', 'Cache', 'Redis'] as $component) {
    require "Illuminate/$component/autoload.php";
}

use Illuminate\Cache\RedisStore;
use Illuminate\Redis\RedisManager;

[, $host, $port, $key, $name] = $argv;
$manager = new RedisManager(null, 'phpredis', ['default' => ['host' => $host, 'port' => (int) $port]]);
$store = new RedisStore($manager);
do {
    $lock = $store->lock($key, 600);
    $lock->block(600);
    if ($manager->incr("$key:inside") !== 1) {
        $manager->incr("$key:violations");
    }
    usleep(2000);
    $manager->decr("$key:inside");
    $manager->incr("$key:$name");
    if (!$lock->release()) {
        fwrite(STDERR, "not released\n");
        exit(1);
    }
} while (!$manager->exists("$key:end"));

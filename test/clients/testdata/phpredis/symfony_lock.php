<?php
// Takes one lock again and again with Symfony's Lock component.
//
// usage: php symfony_lock.php HOST PORT KEY NAME
//
// It ends when there is a key KEY:end. It counts how often it had the lock at KEY:NAME, and how often
// another client had it at the same time at KEY:violations: each holder counts KEY:inside up and down.

require 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

[, $host, $port, $key, $name] = $argv;
$redis = new Redis();
$redis->connect($host, (int) $port);
$factory = new LockFactory(new RedisStore($redis));
do {
    $lock = $factory->createLock($key, 600);
    $lock->acquire(true);
    if ($redis->incr("$key:inside") !== 1) {
        $redis->incr("$key:violations");
    }
    usleep(2000);
    $redis->decr("$key:inside");
    $redis->incr("$key:$name");
    $lock->release(); // it throws if that was not its own
} while (!$redis->exists("$key:end"));

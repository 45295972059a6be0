<?php
// examples/adapters/LockproxySymfonyStore.php with Symfony's Lock component.
// usage: php symfony.php HOST PORT

require 'Symfony/Component/Lock/autoload.php';
require __DIR__ . '/../../../../examples/adapters/LockproxySymfonyStore.php';

use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;

function check(string $what, mixed $got, mixed $want = true): void
{
    if ($got !== $want) {
        fwrite(STDERR, "FAIL $what: got " . json_encode($got) . "\n");
        exit(1);
    }
}

function store(): LockproxySymfonyStore
{
    global $argv;
    $redis = new Redis();
    $redis->connect($argv[1], (int) $argv[2], 5, null, 0, 1); // 1 s to read, less than it waits
    return new LockproxySymfonyStore($redis);
}

[$one, $two] = [new LockFactory($mine = store()), new LockFactory(store())];
$key = new Key('adapter:symfony');
$a = $one->createLockFromKey($key, 30);
$b = $two->createLock('adapter:symfony', 1.5);

check('acquire', $a->acquire());
check('isAcquired', $a->isAcquired());
check('acquire by another', $b->acquire(), false);
check('acquire again', $a->acquire());
check('remaining lifetime', $a->getRemainingLifetime() > 29);
$token = $mine->token($key);
check('token', $token > 0);

// Another process may have the key, and release by it.
$c = $two->createLockFromKey(unserialize(serialize($key)), 30, false);
check('isAcquired by the key', $c->isAcquired());
$a->refresh(1.2);
$began = microtime(true);
check('acquire that waits', $b->acquire(true));
check('it has waited', microtime(true) - $began > 1);
check('no longer acquired', $a->isAcquired(), false);
$a->release(); // frees nobody else's lock
check('still acquired', $b->isAcquired());
usleep(1600000);
check('expired', $b->isExpired());
check('expired in Redis', $b->isAcquired(), false);
check('acquire after that', $a->acquire());
check('the next token is greater', $mine->token($key) > $token);
$a->release();
check('free', $b->acquire());
$b->release();
echo "ok\n";

<?php
// examples/adapters/LockproxySymfonyStore.php with Symfony's Lock component.
//
// usage: php symfony.php HOST PORT          every step
//        php symfony.php HOST PORT hold KEY holds KEY for 2 s, or until it is killed

require 'Symfony/Component/Lock/autoload.php';
require __DIR__ . '/../../../../examples/adapters/LockproxySymfonyStore.php';

use Symfony\Component\Lock\Exception\LockConflictedException;
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

if (isset($argv[4])) {
    $held = (new LockFactory(store()))->createLock($argv[4], 2);
    $held->acquire();
    echo "held\n";
    sleep(60);
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

// An exception releases the lock, as it goes out of scope.
try {
    (function () use ($one) {
        $lock = $one->createLock('adapter:symfony', 30);
        check('acquire before an exception', $lock->acquire());
        throw new DomainException();
    })();
} catch (DomainException) {
}
check('free after an exception', $b->acquire());

// A lock that somebody else has freed.
$redis = new Redis();
$redis->connect($argv[1], (int) $argv[2]);
check('UNLOCK FORCE', $redis->rawCommand('UNLOCK', 'adapter:symfony', 'FORCE'), 1);
check('isAcquired after it was lost', $b->isAcquired(), false);
try {
    $b->refresh();
    check('refresh of a lost lock throws', false);
} catch (LockConflictedException) {
}
$b->release();

// A connection with phpredis' own read timeout goes on after a wait; and a lock without a time of
// its own is held for $initialTtl from the end of the wait.
$redis = new Redis();
$redis->connect($argv[1], (int) $argv[2]);
$c = (new LockFactory(new LockproxySymfonyStore($redis, 0.5)))->createLock('adapter:symfony', null);
$a->acquire();
$a->refresh(1);
check('acquire after a longer wait than the first time', $c->acquire(true));
check('a command after it', $redis->blPop(['adapter:symfony:none'], 1), []);
echo "ok\n";

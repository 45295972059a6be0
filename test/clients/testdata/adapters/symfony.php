<?php
// examples/adapters/LockproxySymfonyStore.php with Symfony's Lock component.
//
// usage: php symfony.php HOST PORT          every step
//        php symfony.php HOST PORT hold KEY holds KEY until it is killed

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

function store(float $reading = 120): LockproxySymfonyStore
{
    global $argv;
    $redis = new Redis();
    $redis->connect($argv[1], (int) $argv[2], 120, null, 0, $reading);
    return new LockproxySymfonyStore($redis);
}

// What must be done within a second or so fails when the machine stops: then it is done again.
function impatiently(callable $try): void
{
    for ($tries = 1;; $tries++) {
        try {
            $try();
            return;
        } catch (Exception $e) {
            if ($tries === 5) {
                throw $e;
            }
        }
    }
}

if (isset($argv[4])) {
    $held = (new LockFactory(store()))->createLock($argv[4], 600);
    $held->acquire();
    echo "held\n";
    sleep(600);
}

[$one, $two] = [new LockFactory($mine = store()), new LockFactory(store())];
$key = new Key('adapter:symfony');
$a = $one->createLockFromKey($key, 600);
$b = $two->createLock('adapter:symfony', 600);

check('acquire', $a->acquire());
check('isAcquired', $a->isAcquired());
check('acquire by another', $b->acquire(), false);
check('acquire again', $a->acquire());
check('remaining lifetime', $a->getRemainingLifetime() > 300);
$token = $mine->token($key);
check('token', $token > 0);

// Another process may have the key, and release by it.
$c = $two->createLockFromKey(unserialize(serialize($key)), 600, false);
check('isAcquired by the key', $c->isAcquired());
$redis = new Redis();
$redis->connect($argv[1], (int) $argv[2]);
impatiently(function () use ($redis, $a) {
    $redis->rawCommand('UNLOCK', 'adapter:symfony', 'FORCE');
    check('acquire to wait for', $a->acquire());
    // 1 s to read, less than it waits
    $waiter = (new LockFactory(store(1)))->createLock('adapter:symfony', 600);
    $began = microtime(true);
    $a->refresh(1.2);
    check('acquire that waits', $waiter->acquire(true));
    check('it has waited', microtime(true) - $began > 1);
    check('no longer acquired', $a->isAcquired(), false);
    $a->release(); // frees nobody else's lock
    check('still acquired', $waiter->isAcquired());
    $waiter->release();
});
impatiently(function () use ($b) {
    check('acquire for a while', $b->acquire());
    $b->refresh(1.5);
    usleep(1600000);
    check('expired', $b->isExpired());
    check('expired in Redis', $b->isAcquired(), false);
});
check('acquire after that', $a->acquire());
check('the next token is greater', $mine->token($key) > $token);
$a->release();
check('free', $b->acquire());
$b->release();

// An exception releases the lock, as it goes out of scope.
try {
    (function () use ($one) {
        $lock = $one->createLock('adapter:symfony', 600);
        check('acquire before an exception', $lock->acquire());
        throw new DomainException();
    })();
} catch (DomainException) {
}
check('free after an exception', $b->acquire());

// A lock that somebody else has freed.
check('UNLOCK FORCE', $redis->rawCommand('UNLOCK', 'adapter:symfony', 'FORCE'), 1);
check('isAcquired after it was lost', $b->isAcquired(), false);
try {
    $b->refresh();
    check('refresh of a lost lock throws', false);
} catch (LockConflictedException) {
}
$b->release();

// Readers share a lock, and exclude a writer. One of them becomes the writer when it is alone.
$readers = [];
foreach ([$one, $two] as $factory) {
    $readers[] = $reader = $factory->createLock('adapter:symfony:read', 600);
    check('acquireRead', $reader->acquireRead());
    check('read lock is acquired', $reader->isAcquired());
}
$writer = $two->createLock('adapter:symfony:read', 600);
check('a writer next to readers', $writer->acquire(), false);
check('a reader that would write', $readers[0]->acquire(), false);
check('it still reads', $readers[0]->acquireRead());
$readers[1]->release();
check('a reader has left', $readers[1]->isAcquired(), false);
check('the other has not', $readers[0]->isAcquired());
check('alone it may write', $readers[0]->acquire());
check('acquireRead next to a writer', $readers[1]->acquireRead(), false);
check('and read again', $readers[0]->acquireRead());
check('acquireRead that waits', $readers[1]->acquireRead(true));
$readers[0]->release();
$readers[1]->release();
check('free', $writer->acquire());
$writer->release();

// The prefix of phpredis: Symfony's own store excludes this one.
$redis = new Redis();
$redis->connect($argv[1], (int) $argv[2]);
$redis->setOption(Redis::OPT_PREFIX, 'adapter:');
$own = (new LockFactory(new Symfony\Component\Lock\Store\RedisStore($redis)))->createLock('p', 600);
$ours = (new LockFactory(new LockproxySymfonyStore($redis)))->createLock('p', 600);
check("Symfony's own lock", $own->acquire());
check('a lock by the same name', $ours->acquire(), false);
$own->release();
check('after it', $ours->acquire());
check("Symfony's own next to it", $own->acquire(), false);
$ours->release();

// A connection with phpredis' own read timeout goes on after a wait; and a lock without a time of
// its own is held for $initialTtl from the end of the wait.
impatiently(function () use ($argv, $a) {
    $redis = new Redis();
    $redis->connect($argv[1], (int) $argv[2]);
    $store = new LockproxySymfonyStore($redis, 0.5);
    $c = (new LockFactory($store))->createLock('adapter:symfony', null);
    $a->acquire(true);
    $a->refresh(1);
    check('acquire after a longer wait than the first time', $c->acquire(true));
    check('a command after it', $redis->blPop(['adapter:symfony:none'], 1), []);
});
echo "ok\n";

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

// Readers share a lock, and exclude a writer. One of them becomes the writer when it is alone.
$readers = [];
foreach ([$one, $two] as $factory) {
    $readers[] = $reader = $factory->createLock('adapter:symfony:read', 30);
    check('acquireRead', $reader->acquireRead());
    check('read lock is acquired', $reader->isAcquired());
}
$writer = $two->createLock('adapter:symfony:read', 30);
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
$own = (new LockFactory(new Symfony\Component\Lock\Store\RedisStore($redis)))->createLock('p', 30);
$ours = (new LockFactory(new LockproxySymfonyStore($redis)))->createLock('p', 30);
check("Symfony's own lock", $own->acquire());
check('a lock by the same name', $ours->acquire(), false);
$own->release();
check('after it', $ours->acquire());
check("Symfony's own next to it", $own->acquire(), false);
$ours->release();

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

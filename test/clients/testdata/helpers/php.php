<?php
// clients/php/Lockproxy.php with phpredis.
//
// usage: php php.php HOST PORT          every step
//        php php.php HOST PORT hold KEY holds KEY until it is killed; fork KEY also has a child;
//                               wait KEY SECONDS waits for it before

declare(strict_types=1);

require __DIR__ . '/../../../../clients/php/Lockproxy.php';

use Lockproxy\{Claim, Held, Lost, NotAcquired};

use function Lockproxy\{lock, once};

const PREFIX = 'helper:php:';

function connect(): Redis
{
    global $argv;
    $r = new Redis();
    $r->connect($argv[1], (int) $argv[2]);
    return $r;
}

function check(string $what, mixed $got, mixed $want = true): void
{
    if ($got !== $want) {
        fwrite(STDERR, "FAIL $what: got " . json_encode($got) . ', want ' . json_encode($want) . "\n");
        exit(1);
    }
}

function raises(string $what, string $error, callable $call): void
{
    try {
        $call();
    } catch (Throwable $e) {
        check("$what: " . $e->getMessage(), $e::class, $error);
        return;
    }
    check("$what throws", false);
}

function is_free(Redis $r, string $key): bool
{
    return $r->rawCommand('LOCKINFO', $key) === false;
}

if (isset($argv[3])) {
    lock('connect', $argv[4], function (Held $held) use ($argv) {
        if ($argv[3] === 'fork' && pcntl_fork() === 0) {
            $held->leaveToParent();
            sleep(600);
        }
        echo "held\n";
        sleep(600);
    }, timeout: 600, wait: isset($argv[5]) ? (float) $argv[5] : null);
}

$r = connect();
$steps = [
    'acquire' => function () use ($r) {
        $key = PREFIX . 'acquire';
        $result = lock('connect', $key, function (Held $held) use ($r, $key) {
            check('token', $held->token > 0);
            check('free inside', is_free($r, $key), false);
            raises('a second one', NotAcquired::class, fn () => lock('connect', $key, 'time'));
            $held->check();
            return 'done';
        }, owner: 'me');
        check("the function's value", $result, 'done');
        check('free after', is_free($r, $key));
    },
    'wait' => function () use ($r) {
        $key = PREFIX . 'wait';
        $began = microtime(true);
        $token = $r->rawCommand('LOCK', $key, '0.4');
        $next = lock('connect', $key, fn (Held $held) => $held->token, wait: 120);
        check('the next token is greater', $next > $token);
        check('it waited', microtime(true) - $began > 0.3);
        check('WAIT 0', lock('connect', $key, fn () => 1, wait: 0), 1);
    },
    'exception' => function () use ($r) {
        $key = PREFIX . 'exception';
        raises("the function's own error", DomainException::class,
            fn () => lock('connect', $key, fn () => throw new DomainException()));
        check('free after an exception', is_free($r, $key));
    },
    'fence' => function () use ($r) {
        $key = PREFIX . 'fence';
        lock('connect', $key, function (Held $held) use ($r, $key) {
            check('FENCE', in_array($held->fence('SET', "$key:value", '1'), ['OK', true], true));
            raises('an error of the command', RedisException::class,
                fn () => $held->fence('SET', "$key:value"));
            $held->check();
        });
        check('what is written', $r->get("$key:value"), '1');
    },
    'lost' => function () use ($r) {
        $key = PREFIX . 'lost';
        raises('the end of the function', Lost::class, function () use ($r, $key) {
            lock('connect', $key, function (Held $held) use ($r, $key) {
                check('UNLOCK FORCE', $r->rawCommand('UNLOCK', $key, 'FORCE'), 1);
                raises('check', Lost::class, function () use ($held) {
                    while (true) {
                        $held->check();
                    }
                });
                raises('FENCE', Lost::class, fn () => $held->fence('SET', "$key:value", '2'));
            }, timeout: 600);
        });
        check('not written', $r->exists("$key:value"), 0);
    },
    'longest' => function () {
        raises('the end of the function', Lost::class, fn () => lock('connect', PREFIX . 'max',
            function (Held $held) {
                while (true) {
                    $held->check();
                }
            }, timeout: 600, max: 0.3));
    },
    'once' => function () use ($r) {
        $key = PREFIX . 'once';
        $once = function (callable $make, mixed ...$options) use ($r, &$key) {
            return once($r, 'connect', $key, $make, ...$options);
        };
        $fail = fn () => throw new DomainException();
        check('made', $once(function (Claim $claim) use ($once, $fail) {
            check('token', $claim->token > 0);
            raises('a second maker', NotAcquired::class, fn () => $once($fail));
            raises('a wait that ends', NotAcquired::class, fn () => $once($fail, wait: 0.1));
            $claim->check();
            return 'the value';
        }, ttl: 300), 'the value');
        check('how long it lives', $r->ttl($key) > 200);
        check('there', $once($fail), 'the value');
        check('early enough', $once($fail, early: 100), 'the value');
        check('soon gone', $once(function () use ($once, $fail) {
            check('while it is made again', $once($fail, early: 400), 'the value');
            return 'newer';
        }, ttl: 600, early: 400), 'newer');
        check('stored', $r->get($key), 'newer');

        $key = PREFIX . 'once:2';
        raises("the maker's own error", DomainException::class, fn () => $once($fail));
        check('after it', $once(fn () => '5'), '5');
        check('how long it lives', $r->ttl($key), -1);

        $key = PREFIX . 'once:3';
        $token = $r->rawCommand('ONCE', $key, '600'); // another makes it
        $claim = $r->rawCommand('LOCKSCAN', '0', 'MATCH', "$key:once:*", 'COUNT', '100000')[1][0];
        $cli = sprintf('redis-cli -h %s -p %d', $GLOBALS['argv'][1], $GLOBALS['argv'][2]);
        $script = "until $cli LOCKINFO $claim WAITERS | grep -q .; do sleep 0.01; done; "
            . "$cli DONE $key $token theirs";
        $other = popen($script, 'r');
        check('a value that another makes', $once($fail, wait: 0), 'theirs');
        pclose($other);

        $key = PREFIX . 'once:4';
        raises('the end of a lost claim', Lost::class, fn () => $once(function () use ($r, $key) {
            $claim = $r->rawCommand('LOCKSCAN', '0', 'MATCH', "$key:once:*", 'COUNT', '100000')[1][0];
            check('UNLOCK FORCE', $r->rawCommand('UNLOCK', $claim, 'FORCE'), 1);
            return 'late';
        }, timeout: 600));
        check('not stored', $r->exists($key), 0);
        raises('what DONE says', RedisException::class, fn () => $once(fn () => '1', ttl: 0));
    },
    'prefix' => function () use ($r) {
        $prefixed = function () {
            $r = connect();
            $r->setOption(Redis::OPT_PREFIX, PREFIX);
            return $r;
        };
        lock($prefixed, 'prefix', function (Held $held) use ($r, $prefixed) {
            check('with the prefix', is_free($r, PREFIX . 'prefix'), false);
            check('without it', is_free($r, 'prefix'));
            $held->fence('MSET', 'a', 'b', 'b', 'a');
            check('what is written', $prefixed()->mGet(['a', 'b']), ['b', 'a']);
            $held->fence('EVAL', 'return redis.call("SET", KEYS[1], ARGV[1])', '1', 'c', 'd');
            check('what a script writes', $prefixed()->get('c'), 'd');
            raises('a key that may be a value', LogicException::class, fn () => $held->fence(
                'EVAL', 'return 1', '1', 'c', 'c'));
        });
        once($prefixed(), $prefixed, 'value', fn () => 'x', ttl: 300);
        check('a value', $r->get(PREFIX . 'value'), 'x');
    },
];
foreach ($steps as $name => $step) {
    $step();
    echo "ok $name\n";
}

<?php
// Does what it is told with the PHP package: see features in conformance_test.go.

declare(strict_types=1);

require getenv('PROJECT') . '/vendor/autoload.php';

use Lockproxy\{Claim, Held, Lost, NotAcquired};

use function Lockproxy\{lock, once};

class Mine extends RuntimeException {}

function connect(): Redis
{
    global $argv;
    $r = new Redis();
    $ca = getenv('CA');
    $r->connect(($ca ? 'tls://' : '') . $argv[1], (int) $argv[2], 0, null, 0, 0,
        $ca ? ['stream' => ['cafile' => $ca]] : []);
    if (getenv('PASSWORD')) {
        $r->auth([getenv('USERNAME'), getenv('PASSWORD')]);
    }
    if (getenv('PREFIX')) {
        $r->setOption(Redis::OPT_PREFIX, getenv('PREFIX'));
    }
    return $r;
}

function told(): array
{
    $line = trim((string) fgets(STDIN));
    return $line === '' ? [] : explode(' ', $line);
}

function say(string $line): void
{
    echo str_replace("\n", ' ', $line), "\n";
}

function options(array $words): array
{
    $given = [];
    foreach ($words as $word) {
        [$name, $value] = explode('=', $word);
        // Whole seconds as an interval, all others as a number.
        $given[$name] = ctype_digit($value) ? new DateInterval("PT{$value}S") : (float) $value;
    }
    return $given;
}

function step(Claim $held, string $name, string ...$words): void
{
    try {
        switch ($name) {
            case 'fence':
                $reply = $held->fence(...$words);
                say('reply ' . ($reply === true ? 'OK' : $reply));
                break;
            case 'extend':
                $held->extend(new DateInterval("PT{$words[0]}S"));
                say('extended');
                break;
            case 'check':
                $held->check();
                say('ok');
                break;
            case 'await':
                try {
                    while (true) {
                        $held->check();
                        usleep(10_000);
                    }
                } catch (Lost) {
                    say('told');
                }
                break;
            case 'fork':
                if (pcntl_fork() === 0) {
                    $held->leaveToParent();
                    try {
                        $held->check();
                    } catch (Lost) {
                        say('child lost');
                    }
                    sleep(3600);
                }
                break;
            case 'sql':
            case 'begin':
                global $pdo;
                $pdo = new PDO('pgsql:host=127.0.0.1;dbname=postgres', 'postgres');
                $pdo->beginTransaction();
                $held->fenceSql($pdo);
                $pdo->prepare('INSERT INTO writes VALUES (?)')->execute($words);
                if ($name === 'sql') {
                    $pdo->commit();
                }
                say($name === 'sql' ? 'written' : 'begun');
                break;
            case 'commit':
                global $pdo;
                $pdo->commit();
                say('written');
                break;
            case 'raise':
                throw new Mine();
        }
    } catch (Lost) {
        say('lost');
    } catch (RedisException | LogicException $e) {
        say('error ' . $e->getMessage());
    }
}

$commands = [
    'lock' => function (string $key, string ...$words) {
        lock('connect', $key, function (Held $held) {
            say("held $held->token");
            while (($line = told()) !== ['leave']) {
                step($held, ...$line);
            }
        }, ...options($words));
        say('released');
    },
    'once' => function (string $key, string ...$words) {
        static $r = null;
        $r ??= connect();
        say('value ' . once($r, 'connect', $key, function (Claim $claim) {
            say("make $claim->token");
            while (($line = told())[0] !== 'value') {
                step($claim, ...$line);
            }
            return $line[1];
        }, ...options($words)));
    },
];
while (($line = told()) !== []) {
    try {
        $commands[$line[0]](...array_slice($line, 1));
    } catch (NotAcquired) {
        say('refused');
    } catch (Lost) {
        say('lost');
    } catch (Mine) {
        say('raised');
    } catch (Exception $e) {
        say('error ' . $e->getMessage());
    }
}

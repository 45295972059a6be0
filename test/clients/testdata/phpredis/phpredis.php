<?php
// Ordinary commands and locks through lockproxy with the phpredis extension (RESP2).
//
// usage: php phpredis.php HOST PORT
//
// phpredis answers false both for null and for an error reply: getLastError() tells them apart.

[, $host, $port] = $argv + [1 => null, 2 => null];
if ($port === null) {
    exit_with('usage: phpredis.php HOST PORT');
}
const PREFIX = 'client-test:phpredis:';

function exit_with(string $message): never
{
    fwrite(STDERR, "$message\n");
    exit(1);
}

function connect(): Redis
{
    global $host, $port;
    $redis = new Redis();
    $redis->connect($host, (int) $port, 120, null, 0, 120);
    return $redis;
}

function check(string $what, mixed $got, mixed $want): void
{
    if ($got !== $want) {
        exit_with("FAIL $what: got " . var_export($got, true) . ', want ' . var_export($want, true));
    }
}

// Runs $work in a child process: a subscriber and a waiter block the whole PHP process.
function in_background(callable $work): int
{
    $pid = pcntl_fork();
    if ($pid === 0) {
        $work(connect());
        exit(0);
    }
    return $pid;
}

function finish(int $pid): void
{
    pcntl_waitpid($pid, $status);
    check('exit status of the child process', $status, 0);
}

function data(Redis $r, Redis $other): void
{
    [$key, $value] = [PREFIX . 'data', str_repeat("binary \0\r\n\xff", 10000)];
    $r->del($key, "$key:n", "$key:hash");
    check('GET of a missing key', [$r->get($key), $r->getLastError()], [false, null]);
    check('SET', $r->set($key, $value), true);
    check('GET', $other->get($key), $value);
    check('INCR', $r->incr("$key:n"), 1);
    check('HMSET', $r->hMSet("$key:hash", ['a' => '1', 'b' => '2']), true);
    check('HGETALL', $r->hGetAll("$key:hash"), ['a' => '1', 'b' => '2']);
    check('INCR of a hash', [$r->incr("$key:hash"), substr($r->getLastError(), 0, 9)], [false, 'WRONGTYPE']);
    $r->clearLastError();
}

function pipeline(Redis $r): void
{
    $pipe = $r->pipeline();
    $want = [];
    for ($i = 0; $i < 200; $i++) {
        $pipe->set(PREFIX . "pipe:$i", $i)->get(PREFIX . "pipe:$i");
        array_push($want, true, (string) $i);
    }
    check('pipeline', $pipe->exec(), $want);
}

function transaction(Redis $r, Redis $other): void
{
    $key = PREFIX . 'tx';
    check('MULTI/EXEC', $r->multi()->set($key, 1)->incr($key)->exec(), [true, 2]);
    $r->watch($key);
    $other->set($key, 'changed');
    check('EXEC of a changed key', $r->multi()->set($key, 'lost')->exec(), false);
    check('GET after WATCH', $r->get($key), 'changed');
}

function pubsub(Redis $r, Redis $other): void
{
    $channel = PREFIX . 'channel';
    $publisher = in_background(function (Redis $mine) use ($channel) {
        // PUBLISH counts its receivers: 0 until the parent has subscribed.
        while ($mine->publish($channel, 'hello') === 0) {
            usleep(10000);
        }
    });
    $got = $unsubscribed = null;
    try {
        connect()->subscribe([$channel], function (Redis $sub, string $channel, string $message) use (&$got, &$unsubscribed) {
            $got = $message;
            $unsubscribed = $sub->unsubscribe([$channel]);
            $sub->close(); // phpredis 5's subscribe() ends in no other way
        });
    } catch (RedisException $e) {
        check('end of subscribe()', $e->getMessage(), 'Connection closed');
    }
    finish($publisher);
    check('message', $got, 'hello');
    check('UNSUBSCRIBE', $unsubscribed, [$channel => true]);
    check('PUBLISH without subscribers', $other->publish($channel, 'hello'), 0);
}

function script(Redis $r): void
{
    $key = PREFIX . 'script';
    check('EVAL', $r->eval('return {KEYS[1], ARGV[1], 7}', [$key, 'arg'], 1), [$key, 'arg', 7]);
    $sha = $r->script('load', "return redis.call('SET', KEYS[1], ARGV[1])");
    check('EVALSHA', $r->evalSha($sha, [$key, 'by script'], 1), true);
    check('GET', $r->get($key), 'by script');
}

function wait_command(Redis $r): void
{
    check('WAIT', $r->wait(0, 100), 0);
}

function lock(Redis $r, Redis $other): void
{
    $key = PREFIX . 'lock';
    $token = $r->rawCommand('LOCK', $key, 600);
    check("type of LOCK's token", gettype($token), 'integer');
    check('LOCK from another connection', [$other->rawCommand('LOCK', $key, 600), $other->getLastError()], [false, null]);
    check('UNLOCK with a wrong token', $other->rawCommand('UNLOCK', $key, $token + 1), 0);
    check('UNLOCK with the token', $other->rawCommand('UNLOCK', $key, $token), 1);
    check('the next token is greater', $r->rawCommand('LOCK', $key, 600) > $token, true);
    check('UNLOCK by another connection', $other->rawCommand('UNLOCK', $key), 0);
    check('UNLOCK by this connection', $r->rawCommand('UNLOCK', $key), 1);
}

function lock_error(Redis $r): void
{
    $reply = $r->rawCommand('LOCK', PREFIX . 'lock', -1);
    check('LOCK with a negative timeout', [$reply, $r->getLastError()], [false, 'ERR timeout is negative: "-1" (seconds, greater than 0, at most 86400)']);
    $r->clearLastError();
}

function lock_order(Redis $r): void
{
    [$key, $text] = [PREFIX . 'order', 'written under the lock'];
    $replies = $r->pipeline()->rawCommand('LOCK', $key, 600)->set("$key:value", $text)
        ->rawCommand('UNLOCK', $key)->get("$key:value")->exec();
    check("type of LOCK's token", gettype(array_shift($replies)), 'integer');
    check('SET, UNLOCK, GET', $replies, [true, 1, $text]);
}

function lock_wait(Redis $r, Redis $other): void
{
    $key = PREFIX . 'wait';
    $token = $r->rawCommand('LOCK', $key, 600);
    $holder = in_background(function (Redis $mine) use ($key, $token) {
        usleep(200000); // the parent must wait meanwhile
        $replies = $mine->pipeline()->set("$key:value", $token)->rawCommand('UNLOCK', $key, $token)->exec();
        check('SET, UNLOCK', $replies, [true, 1]);
    });
    check("the waiter's token is greater", $other->rawCommand('LOCK', $key, 600, 'WAIT', 60) > $token, true);
    check('what the waiter sees', $other->get("$key:value"), (string) $token);
    check('UNLOCK by the waiter', $other->rawCommand('UNLOCK', $key), 1);
    finish($holder);
}

function lock_shared(Redis $r, Redis $other): void
{
    [$key, $limit, $anna, $ben] = [PREFIX . 'shared', PREFIX . 'limit', PREFIX . 'anna', PREFIX . 'ben'];
    $tokens = [$r->rawCommand('LOCK', $key, 600, 'SHARED')];
    $tokens[] = $other->rawCommand('LOCK', $key, 600, 'SHARED');
    $refused = $r->rawCommand('LOCK', $key, 600);
    check('LOCK next to SHARED', [$refused, $r->getLastError()], [false, null]);
    // Each is a flat list of names and values; the latest is the first.
    $holders = array_column($r->rawCommand('LOCKINFO', $key, 'HOLDERS'), 1);
    check('HOLDERS', array_reverse($holders), $tokens);
    echo "holds $key $tokens[0] $tokens[1]\n";

    check('LIMIT 2', is_int($r->rawCommand('LOCK', $limit, 600, 'LIMIT', 2)), true);
    check('LIMIT 2, the second', is_int($other->rawCommand('LOCK', $limit, 600, 'LIMIT', 2)), true);
    $third = $r->rawCommand('LOCK', $limit, 600, 'LIMIT', 2);
    check('LIMIT 2, the third', [$third, $r->getLastError()], [false, null]);
    check('LIMIT 3', is_int($r->rawCommand('LOCK', $limit, 600, 'LIMIT', 3)), true);
    check('UNLOCK of all', $r->rawCommand('UNLOCK', $limit, 'FORCE'), 1);

    [$one, $two] = [PREFIX . '{all}1', PREFIX . '{all}2'];
    $token = $r->rawCommand('LOCKALL', 600, 2, $one, $two);
    $refused = $other->rawCommand('LOCKALL', 600, 1, $two);
    check('LOCKALL of one that is held', [$refused, $other->getLastError()], [false, null]);
    check('UNLOCKALL', $r->rawCommand('UNLOCKALL', $token, 2, $one, $two), 2);

    $r->rawCommand('LOCK', $anna, 600, 'OWNER', 'anna');
    $waiter = in_background(function (Redis $mine) use ($anna, $ben) {
        $mine->rawCommand('LOCK', $ben, 600, 'OWNER', 'ben');
        $token = $mine->rawCommand('LOCK', $anna, 600, 'WAIT', 60, 'OWNER', 'ben');
        check('UNLOCK by ben', $mine->rawCommand('UNLOCK', $anna, $token), 1);
        check('UNLOCK by ben', $mine->rawCommand('UNLOCK', $ben), 1);
    });
    while (!$r->rawCommand('LOCKINFO', $anna, 'WAITERS')) {
        usleep(10000);
    }
    try { // phpredis throws errors whose code it doesn't know
        $r->rawCommand('LOCK', $ben, 600, 'WAIT', 60, 'OWNER', 'anna');
        exit_with('FAIL two owners wait for each other: no error');
    } catch (RedisException $e) {
        echo 'refused ', $e->getMessage(), "\n";
    }
    check('UNLOCK of what ben waits for', $r->rawCommand('UNLOCK', $anna), 1);
    finish($waiter);
}

function lock_lost(Redis $r, Redis $other): void
{
    global $host, $port;
    $key = PREFIX . 'lost';
    $mine = new Redis();
    $mine->connect($host, (int) $port);
    $token = $mine->rawCommand('LOCK', $key, 600, 'SESSION');
    check('UNLOCK FORCE', $other->rawCommand('UNLOCK', $key, 'FORCE'), 1);
    usleep(500000); // a step of the work. phpredis connects again by itself: only the token tells
    check('RELOCK of a lock that is lost', $mine->rawCommand('RELOCK', $key, $token, 600), 0);
}

$steps = ['data', 'pipeline', 'transaction', 'pubsub', 'script', 'wait_command', 'lock', 'lock_error', 'lock_order', 'lock_wait',
    'lock_shared', 'lock_lost'];
$connections = [connect(), connect()];
foreach ($steps as $step) {
    $step(...$connections);
    echo 'ok ', strtr($step, '_', '-'), "\n";
}

<?php
// Ordinary commands and locks through lockproxy with Predis (RESP2).
//
// usage: php predis.php HOST PORT

require 'Predis/autoload.php'; // Debian puts it on PHP's include path

use Predis\Client;
use Predis\Command\RawCommand;
use Predis\Connection\ConnectionException;
use Predis\Response\ServerException;
use Predis\Response\Status;

[, $host, $port] = $argv + [1 => null, 2 => null];
if ($port === null) {
    exit_with('usage: predis.php HOST PORT');
}
const PREFIX = 'client-test:predis:';

function exit_with(string $message): never
{
    fwrite(STDERR, "$message\n");
    exit(1);
}

function connect(): Client
{
    global $host, $port;
    return new Client(['host' => $host, 'port' => $port, 'timeout' => 120, 'read_write_timeout' => 120]);
}

function plain(mixed $reply): mixed
{
    if (is_array($reply)) {
        return array_map('plain', $reply);
    }
    return $reply instanceof Status ? (string) $reply : $reply;
}

function check(string $what, mixed $got, mixed $want): void
{
    if (plain($got) !== $want) {
        exit_with("FAIL $what: got " . var_export(plain($got), true) . ', want ' . var_export($want, true));
    }
}

function check_error(string $what, callable $command, string $want): void
{
    try {
        $command();
    } catch (ServerException $e) {
        check($what, str_starts_with($e->getMessage(), $want) ? $want : $e->getMessage(), $want);
        return;
    }
    exit_with("FAIL $what: no error");
}

// A command for which Predis has no method. (executeRaw() would return errors as plain strings.)
function command(string ...$words): RawCommand
{
    return new RawCommand($words);
}

function data(Client $r, Client $other): void
{
    [$key, $value] = [PREFIX . 'data', str_repeat("binary \0\r\n\xff", 10000)];
    $r->del([$key, "$key:n", "$key:hash"]);
    check('GET of a missing key', $r->get($key), null);
    check('SET', $r->set($key, $value), 'OK');
    check('GET', $other->get($key), $value);
    check('INCR', $r->incr("$key:n"), 1);
    check('HMSET', $r->hmset("$key:hash", ['a' => '1', 'b' => '2']), 'OK');
    check('HGETALL', $r->hgetall("$key:hash"), ['a' => '1', 'b' => '2']);
    check_error('INCR of a hash', fn () => $r->incr("$key:hash"), 'WRONGTYPE ');
}

function pipeline(Client $r): void
{
    $want = [];
    $replies = $r->pipeline(function ($pipe) use (&$want) {
        for ($i = 0; $i < 200; $i++) {
            $pipe->set(PREFIX . "pipe:$i", $i);
            $pipe->get(PREFIX . "pipe:$i");
            array_push($want, 'OK', (string) $i);
        }
    });
    check('pipeline', $replies, $want);
}

function transaction(Client $r, Client $other): void
{
    $key = PREFIX . 'tx';
    $replies = $r->transaction(function ($tx) use ($key) {
        $tx->set($key, 1);
        $tx->incr($key);
    });
    check('MULTI/EXEC', $replies, ['OK', 2]);
    try {
        $r->transaction(['watch' => $key, 'cas' => true], function ($tx) use ($key, $other) {
            check('GET under WATCH', $tx->get($key), '2');
            $other->set($key, 'changed');
            $tx->multi();
            $tx->set($key, 'lost');
        });
        exit_with('FAIL WATCH: EXEC ran although the key had changed');
    } catch (Predis\Transaction\AbortedMultiExecException) {
        check('GET after WATCH', $r->get($key), 'changed');
    }
}

function pubsub(Client $r, Client $other): void
{
    $channel = PREFIX . 'channel';
    $events = [];
    $loop = $r->pubSubLoop();
    $loop->subscribe($channel);
    foreach ($loop as $event) {
        $events[] = $event->kind;
        if ($event->kind === 'subscribe') {
            check('PUBLISH', $other->publish($channel, 'hello'), 1);
        } elseif ($event->kind === 'message') {
            check('message', $event->payload, 'hello');
            $loop->unsubscribe($channel);
        }
    }
    check('PUBLISH without subscribers', $other->publish($channel, 'hello'), 0);
    check('events', $events, ['subscribe', 'message', 'unsubscribe']);
}

function script(Client $r): void
{
    $key = PREFIX . 'script';
    check('EVAL', $r->eval('return {KEYS[1], ARGV[1], 7}', 1, $key, 'arg'), [$key, 'arg', 7]);
    $sha = $r->script('load', "return redis.call('SET', KEYS[1], ARGV[1])");
    check('EVALSHA', $r->evalsha($sha, 1, $key, 'by script'), 'OK');
    check('GET', $r->get($key), 'by script');
}

function wait_command(Client $r): void
{
    check('WAIT', $r->executeCommand(command('WAIT', 0, 100)), 0);
}

function lock(Client $r, Client $other): void
{
    $key = PREFIX . 'lock';
    $token = $r->executeCommand(command('LOCK', $key, 600));
    check("type of LOCK's token", gettype($token), 'integer');
    check('LOCK from another connection', $other->executeCommand(command('LOCK', $key, 600)), null);
    check('UNLOCK with a wrong token', $other->executeCommand(command('UNLOCK', $key, $token + 1)), 0);
    check('UNLOCK with the token', $other->executeCommand(command('UNLOCK', $key, $token)), 1);
    check('the next token is greater', $r->executeCommand(command('LOCK', $key, 600)) > $token, true);
    check('UNLOCK by another connection', $other->executeCommand(command('UNLOCK', $key)), 0);
    check('UNLOCK by this connection', $r->executeCommand(command('UNLOCK', $key)), 1);
}

function lock_error(Client $r): void
{
    $lock = fn () => $r->executeCommand(command('LOCK', PREFIX . 'lock', -1));
    check_error('LOCK with a negative timeout', $lock, 'ERR timeout is negative');
}

function lock_order(Client $r): void
{
    [$key, $text] = [PREFIX . 'order', 'written under the lock'];
    $replies = $r->pipeline(function ($pipe) use ($key, $text) {
        $pipe->executeCommand(command('LOCK', $key, 600));
        $pipe->set("$key:value", $text);
        $pipe->executeCommand(command('UNLOCK', $key));
        $pipe->get("$key:value");
    });
    check("type of LOCK's token", gettype(array_shift($replies)), 'integer');
    check('SET, UNLOCK, GET', $replies, ['OK', 1, $text]);
}

function lock_wait(Client $r, Client $other): void
{
    $key = PREFIX . 'wait';
    $token = $r->executeCommand(command('LOCK', $key, 600));
    // Sends the command, and reads its reply later: PHP has only one thread.
    $waiter = $other->getConnection();
    $lock = command('LOCK', $key, 600, 'WAIT', 60);
    $waiter->writeRequest($lock);
    [$readable, $none] = [[$waiter->getResource()], null];
    check('the waiter waits', stream_select($readable, $none, $none, 0, 200000), 0);
    $replies = $r->pipeline(function ($pipe) use ($key, $token) {
        $pipe->set("$key:value", $token);
        $pipe->executeCommand(command('UNLOCK', $key));
    });
    check('SET, UNLOCK', $replies, ['OK', 1]);
    check("the waiter's token is greater", $waiter->readResponse($lock) > $token, true);
    check('what the waiter sees', $other->get("$key:value"), (string) $token);
    check('UNLOCK by the waiter', $other->executeCommand(command('UNLOCK', $key)), 1);
}

function lock_lost(Client $r, Client $other): void
{
    global $host, $port;
    $key = PREFIX . 'lost';
    $mine = new Client(['host' => $host, 'port' => $port]);
    $mine->executeCommand(command('LOCK', $key, 600, 'SESSION'));
    check('UNLOCK FORCE', $other->executeCommand(command('UNLOCK', $key, 'FORCE')), 1);
    try {
        for (;;) { // the steps of the work: one of them is told
            $mine->ping();
            usleep(10000);
        }
    } catch (ConnectionException) {
    }
}

$steps = ['data', 'pipeline', 'transaction', 'pubsub', 'script', 'wait_command', 'lock', 'lock_error', 'lock_order', 'lock_wait',
    'lock_lost'];
$connections = [connect(), connect()];
foreach ($steps as $step) {
    $step(...$connections);
    echo 'ok ', strtr($step, '_', '-'), "\n";
}

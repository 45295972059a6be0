<?php
// L4: a timestamp lock published for PHP with Predis and EVAL.
//
//   php l4.php HOST PORT KEY SECONDS-TO-RUN [--fixed] [--pause MS] [--crash]
//
// Value at the key: Unix seconds, now + 3 + 1. Its known faults, which are left in:
//   - the comparison of its release is the wrong way round: it deletes only what has expired, so that it never releases early
//     and every acquisition blocks the key for its whole timeout. --fixed puts it right.
//   - the fixed release can hit another's lock
//   - it goes by the clients' clocks
//   - in a cluster its keys need a hash tag, if there are several

require 'Predis/autoload.php'; // Debian puts it on PHP's include path

const TIMEOUT = 3;
const TRIES = 3;
const PAUSE_OF_CALLER = 10; // ms before the three tries start over, which the recipe leaves to the caller

const ACQUIRE = <<<'LUA'
local now, timeout = tonumber(ARGV[1]), tonumber(ARGV[2])
if redis.call('SETNX', KEYS[1], now + timeout + 1) == 1 then
  redis.call('EXPIRE', KEYS[1], timeout + 1)
  return 0
end
local value = redis.call('GET', KEYS[1])
if not value then return 1 end
if now < tonumber(value) then return 2 end
if redis.call('GETSET', KEYS[1], now + 4 + timeout + 1) == value then
  redis.call('EXPIRE', KEYS[1], timeout + 1)
  return 0
end
return 3
LUA;

const RELEASE = <<<'LUA'
local value = redis.call('GET', KEYS[1])
if value and tonumber(ARGV[1]) > tonumber(value) then return redis.call('DEL', KEYS[1]) end
return 0
LUA;

const RELEASE_FIXED = <<<'LUA'
local value = redis.call('GET', KEYS[1])
if value and tonumber(ARGV[1]) < tonumber(value) then return redis.call('DEL', KEYS[1]) end
return 0
LUA;

[, $host, $port, $key, $seconds] = $argv + [4 => null];
$options = array_slice($argv, 5);
[$fixed, $crash, $pause] = [in_array('--fixed', $options), in_array('--crash', $options), array_search('--pause', $options)];
$pause_ms = $pause === false ? 0 : (int) $options[$pause + 1];
if ($seconds === null) {
    fwrite(STDERR, "usage: l4.php HOST PORT KEY SECONDS-TO-RUN [--fixed] [--pause MS] [--crash]\n");
    exit(2);
}

$r = new Predis\Client(['host' => $host, 'port' => $port, 'timeout' => 5, 'read_write_timeout' => 30]);
$deadline = microtime(true) + (float) $seconds;
$report = ['program' => $fixed ? 'l4 fixed' : 'l4', 'acquisitions' => 0, 'failures' => 0, 'violations' => 0, 'unreleased' => 0, 'longest_wait_ms' => 0];

function acquire(): bool
{
    global $r, $key, $report;
    for ($try = 1; $try <= TRIES; $try++) {
        $result = $r->eval(ACQUIRE, 1, $key, time(), TIMEOUT);
        if ($result === 0) {
            return true;
        }
        $report['failures']++;
        if ($result === 2) {
            sleep((int) 0.3); // PHP makes 0 of the recipe's sleep(0.3)
        }
    }
    return false;
}

function release(): void
{
    global $r, $key, $fixed, $report;
    if ($r->eval($fixed ? RELEASE_FIXED : RELEASE, 1, $key, time()) !== 1) {
        $report['unreleased']++;
    }
}

// The work: is anybody else at it? And a count that gets lost if so.
function inside(): void
{
    global $r, $key, $report;
    if ($r->incr("$key:inside") !== 1) {
        $report['violations']++;
    }
    $n = (int) $r->get("$key:counter");
    usleep(random_int(1000, 3000));
    $r->set("$key:counter", $n + 1);
    $r->decr("$key:inside");
}

while (microtime(true) < $deadline) {
    $began = microtime(true);
    while (!($acquired = acquire()) && microtime(true) < $deadline) {
        usleep(PAUSE_OF_CALLER * 1000);
    }
    $report['longest_wait_ms'] = max($report['longest_wait_ms'], (int) ((microtime(true) - $began) * 1000));
    if (!$acquired) {
        break;
    }
    $report['acquisitions']++;
    inside();
    if ($crash) {
        break;
    }
    release();
    usleep((int) max(0, min($pause_ms * 1000, ($deadline - microtime(true)) * 1e6)));
}
echo json_encode($report), "\n";

#!/usr/bin/ruby
# Ordinary commands and locks through lockproxy with redis-rb (RESP2).
#
# usage: redis_rb.rb HOST PORT

require "redis"

abort "usage: redis_rb.rb HOST PORT" unless ARGV.length == 2
HOST, PORT = ARGV
PREFIX = "client-test:redis-rb:"

def connect
  Redis.new(host: HOST, port: PORT.to_i, timeout: 120, reconnect_attempts: 0)
end

def check(what, got, want)
  abort "FAIL #{what}: got #{got.inspect}, want #{want.inspect}" unless want === got
end

def check_error(what, want)
  yield
  abort "FAIL #{what}: no error"
rescue Redis::CommandError => e
  check(what, e.message, want)
end

def data(r, other)
  key, value = PREFIX + "data", "binary \0\r\n\xff".b * 10_000
  r.del(key, "#{key}:n", "#{key}:hash")
  check("GET of a missing key", r.get(key), nil)
  check("SET", r.set(key, value), "OK")
  check("GET", other.get(key).b, value)
  check("INCR", r.incr("#{key}:n"), 1)
  check("HSET", r.hset("#{key}:hash", "a" => "1", "b" => "2"), 2)
  check("HGETALL", r.hgetall("#{key}:hash"), { "a" => "1", "b" => "2" })
  check_error("INCR of a hash", /\AWRONGTYPE /) { r.incr("#{key}:hash") }
end

def pipeline(r, _other)
  replies = r.pipelined do |pipe|
    200.times do |i|
      pipe.set("#{PREFIX}pipe:#{i}", i)
      pipe.get("#{PREFIX}pipe:#{i}")
    end
  end
  check("pipeline", replies, (0...200).flat_map { |i| ["OK", i.to_s] })
end

def transaction(r, other)
  key = PREFIX + "tx"
  replies = r.multi do |tx|
    tx.set(key, 1)
    tx.incr(key)
  end
  check("MULTI/EXEC", replies, ["OK", 2])
  lost = r.watch(key) do
    other.set(key, "changed")
    r.multi { |tx| tx.set(key, "lost") }
  end
  check("EXEC of a changed key", lost, nil)
  check("GET after WATCH", r.get(key), "changed")
end

def pubsub(r, other)
  channel = PREFIX + "channel"
  events = []
  r.subscribe_with_timeout(120, channel) do |on|
    on.subscribe { check("PUBLISH", other.publish(channel, "hello"), 1) }
    on.message do |_, message|
      events << message
      r.unsubscribe(channel)
    end
    on.unsubscribe { events << "unsubscribed" }
  end
  check("events", events, %w[hello unsubscribed])
  check("PUBLISH without subscribers", other.publish(channel, "hello"), 0)
end

def script(r, _other)
  key = PREFIX + "script"
  check("EVAL", r.eval("return {KEYS[1], ARGV[1], 7}", [key], ["arg"]), [key, "arg", 7])
  sha = r.script(:load, "return redis.call('SET', KEYS[1], ARGV[1])")
  check("EVALSHA", r.evalsha(sha, [key], ["by script"]), "OK")
  check("GET", r.get(key), "by script")
end

def wait_command(r, _other)
  check("WAIT", r.call("WAIT", 0, 100), 0)
end

def lock(r, other)
  key = PREFIX + "lock"
  token = r.call("LOCK", key, 600)
  check("LOCK", token, Integer)
  check("LOCK from another connection", other.call("LOCK", key, 600), nil)
  check("UNLOCK with a wrong token", other.call("UNLOCK", key, token + 1), 0)
  check("UNLOCK with the token", other.call("UNLOCK", key, token), 1)
  check("the next token is greater", r.call("LOCK", key, 600), (token + 1..))
  check("UNLOCK by another connection", other.call("UNLOCK", key), 0)
  check("UNLOCK by this connection", r.call("UNLOCK", key), 1)
end

def lock_error(r, _other)
  check_error("LOCK with a negative timeout", 'ERR timeout is negative: "-1" (seconds, greater than 0, at most 86400)') { r.call("LOCK", PREFIX + "lock", -1) }
end

def lock_order(r, _other)
  key = PREFIX + "order"
  token, *replies = r.pipelined do |pipe|
    pipe.call("LOCK", key, 600)
    pipe.set("#{key}:value", "written under the lock")
    pipe.call("UNLOCK", key)
    pipe.get("#{key}:value")
  end
  check("LOCK", token, Integer)
  check("SET, UNLOCK, GET", replies, ["OK", 1, "written under the lock"])
end

def lock_wait(r, other)
  key = PREFIX + "wait"
  token = r.call("LOCK", key, 600)
  waiter = Thread.new { other.call("LOCK", key, 600, "WAIT", 60) }
  check("the waiter waits", waiter.join(0.2), nil)
  replies = r.pipelined do |pipe|
    pipe.set("#{key}:value", token)
    pipe.call("UNLOCK", key)
  end
  check("SET, UNLOCK", replies, ["OK", 1])
  check("the waiter's token is greater", waiter.value, (token + 1..))
  check("what the waiter sees", other.get("#{key}:value"), token.to_s)
  check("UNLOCK by the waiter", other.call("UNLOCK", key), 1)
end

def lock_shared(r, other)
  key, limit, *both = %w[shared limit {all}1 {all}2].map { |k| PREFIX + k }
  tokens = [r, other].map { |c| c.call("LOCK", key, 600, "SHARED") }
  check("LOCK next to SHARED", r.call("LOCK", key, 600), nil)
  holders = r.call("LOCKINFO", key, "HOLDERS").map { |h| Hash[*h]["token"] }
  check("HOLDERS", holders.sort, tokens)
  puts "holds #{key} #{tokens.join(" ")}"

  [r, other].each { |c| check("LIMIT 2", c.call("LOCK", limit, 600, "LIMIT", 2), Integer) }
  check("LIMIT 2, the third", r.call("LOCK", limit, 600, "LIMIT", 2), nil)
  check("LIMIT 3", r.call("LOCK", limit, 600, "LIMIT", 3), Integer)
  check("UNLOCK of all", r.call("UNLOCK", limit, "FORCE"), 1)

  token = r.call("LOCKALL", 600, 2, *both)
  check("LOCKALL of one that is held", other.call("LOCKALL", 600, 1, both[1]), nil)
  check("UNLOCKALL", r.call("UNLOCKALL", token, 2, *both), 2)

  anna, ben = PREFIX + "anna", PREFIX + "ben"
  r.call("LOCK", anna, 600, "OWNER", "anna")
  other.call("LOCK", ben, 600, "OWNER", "ben")
  waiter = Thread.new { other.call("LOCK", anna, 600, "WAIT", 60, "OWNER", "ben") }
  sleep 0.01 while r.call("LOCKINFO", anna, "WAITERS").empty?
  begin
    r.call("LOCK", ben, 600, "WAIT", 60, "OWNER", "anna")
    abort "FAIL two owners wait for each other: no error"
  rescue Redis::CommandError => e
    puts "refused #{e.message}"
  end
  check("UNLOCK of what ben waits for", r.call("UNLOCK", anna), 1)
  check("UNLOCK by ben", other.call("UNLOCK", anna, waiter.value), 1)
  check("UNLOCK by ben", other.call("UNLOCK", ben), 1)
end

def lock_lost(_r, other)
  key = PREFIX + "lost"
  mine = Redis.new(host: HOST, port: PORT.to_i)
  mine.call("LOCK", key, 600, "SESSION")
  check("UNLOCK FORCE", other.call("UNLOCK", key, "FORCE"), 1)
  # redis-rb connects again by itself, unless it is told not to.
  watcher = Thread.new do
    mine.without_reconnect { loop { mine.ping; sleep 0.25 } }
  rescue Redis::BaseConnectionError
    "lost"
  end
  check("the lock is lost", watcher.value, "lost")
end

steps = %i[data pipeline transaction pubsub script wait_command lock lock_error lock_order lock_wait
           lock_shared lock_lost]
connections = [connect, connect]
$stdout.sync = true
steps.each do |step|
  send(step, *connections)
  puts "ok #{step.to_s.tr('_', '-')}"
end

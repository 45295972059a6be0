# clients/ruby/lockproxy.rb with redis-rb.
#
# usage: ruby ruby.rb HOST PORT          every step
#        ruby ruby.rb HOST PORT hold KEY holds KEY until it is killed; fork KEY also has a child;
#                                wait KEY SECONDS waits for it before
require_relative "../../../../clients/ruby/lockproxy"

HOST, PORT, = ARGV
OPTIONS = { host: HOST, port: Integer(PORT) }.freeze
PREFIX = "helper:ruby:"
R = Redis.new(**OPTIONS)

def check(what, got, want = true)
  abort "FAIL #{what}: got #{got.inspect}, want #{want.inspect}" if got != want
end

def raises(what, error)
  yield
  abort "FAIL #{what}: no #{error}"
rescue error
  nil
end

def free?(key) = R.call("LOCKINFO", key).nil?

def until_waiters(key, count)
  sleep 0.01 until R.call("LOCKINFO", key, "WAITERS")&.size == count
end

def lock(key, **options, &block) = Lockproxy.lock(key, redis: OPTIONS, **options, &block)

if ARGV[2]
  lock(ARGV[3], timeout: 600, wait: ARGV[4]&.to_f) do |held|
    if ARGV[2] == "fork" && fork.nil?
      check "lost to the child", held.lost?
      sleep 600
    end
    puts "held"
    $stdout.flush
    sleep 600
  end
end

def acquire
  key = "#{PREFIX}acquire"
  result = lock(key, owner: "me") do |held|
    check "token", held.token.positive?
    check "free inside", free?(key), false
    raises("a second one", Lockproxy::NotAcquired) { lock(key) { abort "FAIL held twice" } }
    held.check
    raises("a wait in words", TypeError) { lock(key, wait: "5s") { nil } }
    raises("a client", TypeError) { Lockproxy.lock(key, redis: R) { nil } }
    "done"
  end
  check "the block's value", result, "done"
  check "free after", free?(key)
end

def wait
  key, second = "#{PREFIX}wait", nil
  waiter = nil
  first = lock(key) do |held|
    waiter = Thread.new { lock(key, wait: 0) { |other| second = other.token } }
    until_waiters(key, 1)
    check "given meanwhile", second, nil
    held.token
  end
  waiter.join
  check "the waiter's token is greater", second > first
  check "WAIT 0", lock(key, wait: 0) { 1 }, 1
end

def exception
  key = "#{PREFIX}exception"
  raises("the block's own error", ArgumentError) { lock(key) { raise ArgumentError } }
  check "free after an exception", free?(key)
  catch(:done) { lock(key) { throw :done } }
  check "free after a throw", free?(key)
end

def fence
  key, late = "#{PREFIX}fence", nil
  lock(key) do |held|
    check "FENCE", held.fence("SET", "#{key}:value", "1"), "OK"
    late = held.token
    raises("an error of the command", Redis::CommandError) { held.fence("INCR") }
    check "FENCE with an old token", R.call("FENCE", key, late, "PING"), "PONG"
  end
  raises("a late FENCE", Redis::CommandError) { R.call("FENCE", key, late, "SET", "x", "2") }
  check "what is written", R.get("#{key}:value"), "1"
end

def lost
  key, told = "#{PREFIX}lost", Queue.new
  raises("the end of the block", Lockproxy::Lost) do
    lock(key, timeout: 600, on_lost: ->(held) { told << held.key }) do |held|
      check "UNLOCK FORCE", R.call("UNLOCK", key, "FORCE"), 1
      sleep 0.01 until held.lost?
      raises("check", Lockproxy::Lost) { held.check }
      raises("FENCE", Lockproxy::Lost) { held.fence("SET", "#{key}:value", "1") }
    end
  end
  check "on_lost", told.pop, key
end

def longest
  raises("the end of the block", Lockproxy::Lost) do
    lock("#{PREFIX}max", timeout: 600, max: 0.3) { |held| sleep 0.01 until held.lost? }
  end
end

def once(key, **options, &block) = Lockproxy.once(R, key, redis: OPTIONS, **options, &block)

def claim_of(key) = R.call("LOCKSCAN", 0, "MATCH", "#{key}:once:*", "COUNT", 100_000)[1][0]

def made_once
  key, fail = "#{PREFIX}once", ->(_) { raise ArgumentError }
  waiters = []
  value = once(key, ttl: 300) do |claim|
    check "token", claim.token.positive?
    raises("a second maker", Lockproxy::NotAcquired) { once(key, &fail) }
    2.times { waiters << Thread.new { once(key, wait: 0, &fail) } }
    until_waiters(claim_of(key), 2)
    "the value"
  end
  check "made and given", [value, *waiters.map(&:value)], ["the value"] * 3
  check "how long it lives", R.ttl(key) > 200
  check "there", once(key, &fail), "the value"
  check "early enough", once(key, early: 100, &fail), "the value"
  newer = once(key, ttl: 600, early: 400) do
    check "while it is made again", once(key, early: 400, &fail), "the value"
    "newer"
  end
  check "soon gone", [newer, R.get(key)], %w[newer newer]
  raises("the maker's own error", ArgumentError) { once("#{key}:2", &fail) }
  check "after it", once("#{key}:2") { 5 }, "5"
  check "how long it lives", R.ttl("#{key}:2"), -1
  raises("the end of a lost claim", Lockproxy::Lost) do
    once("#{key}:3", timeout: 600) do |claim|
      check "UNLOCK FORCE", R.call("UNLOCK", claim_of(claim.key), "FORCE"), 1
      sleep 0.01 until claim.lost?
    end
  end
  check "not stored", R.exists("#{key}:3"), 0
  raises("what DONE says", Redis::CommandError) { once("#{key}:3", ttl: 0) { 1 } }
end

# A child that leaves the block does not release its parent's lock.
def child
  key, pid = "#{PREFIX}child", nil
  lock(key) do
    pid = fork
    if pid
      check "the child's status", Process.wait2(pid)[1].exitstatus, 3
      check "free while it is held", free?(key), false
    end
  end
  exit! 5 if pid.nil?
rescue Lockproxy::Lost
  exit! 3
end

# The program's own options do not hide the loss behind a new connection.
def reconnecting
  key = "#{PREFIX}reconnecting"
  raises("the end of the block", Lockproxy::Lost) do
    Lockproxy.lock(key, redis: { **OPTIONS, reconnect_attempts: 3 }, timeout: 600) do |held|
      R.call("UNLOCK", key, "FORCE")
      sleep 0.01 until held.lost?
    end
  end
end

# A command that is broken off closes the connection, and with it the lock.
def interrupted
  raises("the end of the block", Lockproxy::Lost) do
    lock("#{PREFIX}interrupted") do |held|
      raises("the timeout", Timeout::Error) do
        Timeout.timeout(0.2) { held.call("BLPOP", "#{PREFIX}none", 600) }
      end
      check "told at once", held.lost?
      raises("check", Lockproxy::Lost) { held.check }
    end
  end
end

# Errors that PING is answered with do not end the watch.
def refused
  refusals = -> { R.call("INFO", "commandstats")[/cmdstat_ping:.*rejected_calls=(\d+)/, 1].to_i }
  key, user = "#{PREFIX}refused", "helper-ruby"
  R.call("ACL", "SETUSER", user, "on", "nopass", "~*", "&*", "+@all", "-ping")
  raises("the end of the block", Lockproxy::Lost) do
    options = { **OPTIONS, username: user, password: "any" }
    Lockproxy.lock(key, redis: options, timeout: 600) do |held|
      sleep 0.01 until refusals.call >= 2
      check "not lost", held.lost?, false
      R.call("UNLOCK", key, "FORCE")
      sleep 0.01 until held.lost?
    end
  end
  R.call("ACL", "DELUSER", user)
end

%i[acquire wait exception fence lost longest made_once child reconnecting interrupted
   refused].each do |step|
  send(step)
  puts "ok #{step.to_s.delete_prefix('made_')}"
end
check "threads that are left", Thread.list.size, 1

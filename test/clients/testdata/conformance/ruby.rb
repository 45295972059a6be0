# What only the Ruby gem has; the arguments are host and port.
require "lockproxy"
require "timeout"
require "active_support"
require "active_support/core_ext/numeric/time"

HOST, PORT, = ARGV
OPTIONS = { host: HOST, port: Integer(PORT) }.freeze
PREFIX = "ruby:"
R = Redis.new(**OPTIONS)
Timeout.timeout(60) { nil } # which can start a thread of its own
THREADS = Thread.list.size

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

def lock(key, **options, &block) = Lockproxy.lock(key, redis: OPTIONS, **options, &block)

def mistakes
  key = "#{PREFIX}mistakes"
  raises("a wait in words", TypeError) { lock(key, wait: "5s") { nil } }
  raises("a client", TypeError) { Lockproxy.lock(key, redis: R) { nil } }
end

# What leaves the block releases the lock, and is passed on.
def results
  key = "#{PREFIX}results"
  check "the block's value", lock(key) { "done" }, "done"
  catch(:done) { lock(key) { throw :done } }
  check "free after a throw", free?(key)
  check "a number", Lockproxy.once(R, key + ":value", redis: OPTIONS) { 5 }, "5"
end

def durations
  key = "#{PREFIX}durations"
  lock(key, timeout: 20.minutes, wait: 1.5.seconds) do |held|
    left = R.call("LOCKINFO", key).each_slice(2).to_h["remaining_ms"]
    check "held for 20 minutes", (1_100_000..1_200_000).cover?(left)
    held.renew(30.minutes)
  end
end

# Threads take and release locks at the same time.
def threads
  20.times.map { |i| Thread.new { 20.times { lock("#{PREFIX}thread:#{i}") { nil } } } }.each(&:join)
end

def told
  key, told = "#{PREFIX}told", Queue.new
  raises("the end of the block", Lockproxy::Lost) do
    lock(key, timeout: 600, on_lost: ->(held) { told << held.key }) do |held|
      R.call("UNLOCK", key, "FORCE")
      sleep 0.01 until held.lost?
      raises("FENCE", Lockproxy::Lost) { held.fence("SET", "#{key}:value", "1") }
    end
  end
  check "on_lost", told.pop, key
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

%i[mistakes results durations threads told child reconnecting interrupted refused].each { send(_1) }
check "threads that are left", Thread.list.size, THREADS

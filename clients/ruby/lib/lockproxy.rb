# Locks of lockproxy for redis-rb.
#
#   Lockproxy.lock("report", redis: { port: 6380 }, wait: 5) do |held|
#     held.fence("SET", "report:state", "done")  # refused if the lock was lost
#     held.check                                 # raises Lockproxy::Lost if the lock was lost
#   end
#   body = Lockproxy.once(r, "report:7", redis: { port: 6380 }, ttl: 300, wait: 20) { build(7) }
#
# The lock lasts until the block ends, however that is, or until the program dies. It has a
# connection of its own. Thread#raise ends a wait, as Timeout does.
require "redis"
require "securerandom"
require "socket"

module Lockproxy
  # Another client holds the lock, or still held it when the wait ended.
  class NotAcquired < StandardError
    def initialize(key, does = "holds the lock") = super("another client #{does} #{key.inspect}")
  end

  # The lock was lost while the block ran: another client can hold it.
  class Lost < StandardError
    def initialize(key = nil) = super("the lock #{key.inspect} was lost")
  end

  # A lock that is held. Its token rises with every acquisition: it fences other databases too.
  class Held
    attr_reader :key, :token

    def initialize(key, token, session)
      @key, @token, @session, @lost = key, token, session, false
    end

    def lost? = @lost

    def check = lost? ? raise(Lost, key) : self

    # Runs a command in Redis only if the lock is still held.
    def fence(*command)
      call("FENCE", key, token, *command)
    rescue Redis::CommandError => e
      raise e.message.start_with?("FENCED") ? Lost.new(key) : e
    end

    # From now on a crashed proxy can leave the lock behind for so many seconds.
    def renew(timeout)
      call("RELOCK", key, token, Lockproxy.seconds(:timeout, timeout)) == 1 ? self : raise(Lost, key)
    end

    # Whether the lock was held until it was released here.
    def release
      !lost? && call("UNLOCK", key, token) == 1
    rescue Redis::BaseError, Lost
      false
    end

    # The value will not be made here.
    def give_up
      call("DONE", key, token)
    rescue Redis::BaseError, Lost
      nil # the end of the connection also gives up
    end

    # Sends a command by the lock's connection, which closes when the lock is lost. redis-rb also
    # closes it when a command is broken off, and would open another one for the next command.
    def call(*command)
      answered = false
      raise Lost, key if lost?

      reply = @session.call(*command) # for ANSWER_WITHIN at most
      answered = true
      reply
    rescue Redis::CommandError
      answered = true
      raise
    rescue Redis::BaseConnectionError
      raise Lost, key
    ensure
      @lost = true unless answered
    end

    # In a child after a fork the lock is its parent's, and ends with that.
    def leave_to_parent
      @lost = true
      @session.close # without a word
    end
  end

  @held = {}.compare_by_identity # locks, by the connections that have them
  @changing = Mutex.new

  # Closes the connections in a child after a fork.
  module Forks
    def _fork = super.tap { |pid| Lockproxy.leave_to_parent if pid.zero? }
  end
  Process.singleton_class.prepend(Forks)

  # Only the thread that has forked goes on in the child.
  def self.leave_to_parent
    @changing = Mutex.new
    @held.each_value(&:leave_to_parent)
    @held.clear
  end

  LOOK_EVERY = 0.25 # seconds
  ANSWER_WITHIN = 10
  AWAY_WITHIN = 30 # a proxy that is being restarted or replaced is back by then
  NOT_LOCKPROXY = "this is a Redis, not lockproxy: connect to lockproxy's port, 6380 by default"

  # Holds a lock while the block runs, and returns what that returns.
  #
  # redis:: options of Redis.new
  # timeout:: how long a crashed proxy can leave the lock behind, in seconds
  # wait:: seconds; 0 waits forever, nil doesn't wait
  # max:: how long the lock is held at most, in seconds, also if the block hangs; nil is forever
  # owner:: who holds the lock, for people; nil is this program, its host and its process
  # note:: why, for people, in at most 256 bytes
  # on_lost:: called from another thread when the lock is lost. At the end of the block Lost is
  #           raised then.
  def self.lock(key, redis: {}, timeout: 10, wait: nil, max: nil, owner: nil,
                note: nil, on_lost: nil)
    command = ["LOCK", key, timeout, *(["NOTE", note] if note)]
    in_session(redis, command, wait, max, owner) do |session, token|
      held = hold(key, token || raise(NotAcquired, key), session)
      begin
        result = watch(held, on_lost) { yield held }
      ensure
        released = held.release
      end
      released ? result : raise(Lost, key)
    end
  end

  # Returns the value of key. If there is none, one client makes it, and all have it.
  #
  # The block returns the value, which is stored as a string. It is given what that of lock is. If
  # it raises, the claim is given up and the error passed on. Clients that ask meanwhile wait for
  # the value; at the end of the wait NotAcquired is raised. If the claim is lost nothing is stored,
  # and Lost is raised.
  #
  # r:: a connection for values that are there; the claim has one of its own
  # ttl:: for how many seconds the value is stored; nil is until it is deleted
  # early:: so many seconds before the value expires one client makes it again, while all others
  #         get the present one
  #
  # The rest is as for lock.
  def self.once(r, key, ttl: nil, early: 0, redis: {}, timeout: 10, wait: nil, max: nil, owner: nil,
                on_lost: nil)
    value = r.get(key)
    lives = value && early.positive? ? r.pttl(key) : -1
    return value if value && !(0...early * 1000).cover?(lives)

    command = ["ONCE", key, timeout, *(["EARLY", seconds(:early, early)] if early.positive?)]
    in_session(redis, command, wait, max, owner) do |session, token|
      raise NotAcquired.new(key, "makes the value of") if token.nil?
      next token unless token.is_a?(Integer)

      claim = hold(key, token, session)
      begin
        value = watch(claim, on_lost) { yield claim }.to_s
      ensure
        claim.give_up if value.nil?
      end
      lives = ttl ? ["PX", (ttl * 1000).round] : []
      claim.call("DONE", key, token, value, *lives) == 1 ? value : raise(Lost, key)
    end
  end

  # A plain number: redis-rb 5 does not send ActiveSupport's durations.
  def self.seconds(name, value)
    return value.to_f if value.is_a?(Numeric)

    raise TypeError, "#{name}: wants seconds, a number, not #{value.inspect}"
  end

  # Yields the lock's connection, which closes at the end, and the reply to LOCK or ONCE.
  def self.in_session(redis, command, wait, max, owner)
    unless redis.respond_to?(:to_hash)
      raise TypeError, "redis: wants options of Redis.new, as { port: 6380 }, not #{redis.class}"
    end
    command[2] = seconds(:timeout, command[2])
    command.push("SESSION", "OWNER", owner || my_name)
    command.push("MAX", seconds(:max, max)) if max
    session, reply = ask(redis, command, wait && seconds(:wait, wait))
    yield session, reply
  ensure
    @changing.synchronize { @held.delete(session) }
    session&.close
  end
  private_class_method :in_session

  # Asks by a new connection, which it returns with the reply. If the proxy is restarted or replaced
  # meanwhile, it asks again for the rest of the wait, by the same owner. A command whose wait was
  # ended has had no effect; a lock whose connection is lost is released, or given to its owner
  # again.
  def self.ask(redis, command, wait)
    began = away = now
    rest = wait
    loop do
      asked = now
      session = Redis.new(**redis, reconnect_attempts: 0, read_timeout: ANSWER_WITHIN)
      reply = wait_for(session, rest, [*command, *(["WAIT", rest] if rest)])
      answered = true
      return session, reply
    rescue Redis::BaseError => e
      raise e.class, NOT_LOCKPROXY if e.message.start_with?("ERR unknown command")

      away = now if now - asked > ANSWER_WITHIN # it has been there meanwhile
      ends = wait&.positive? ? [away + AWAY_WITHIN, began + wait].min : away + AWAY_WITHIN
      raise if wait.nil? || now >= ends || !away?(e)

      session&.close
      sleep [rand(0.05..0.5), ends - now].min.clamp(0, 1) # not all who wait at once
      rest = [began + wait - now, 0.001].max.round(3) if wait.positive?
    ensure
      session&.close unless answered
    end
  end
  private_class_method :ask

  # The reply can take as long as the wait, which is nil or in seconds; 0 is forever.
  def self.wait_for(session, wait, command)
    return session.call(*command) if wait.nil?

    session._client.then do |client|
      if client.respond_to?(:blocking_call_v) # of redis-rb 5
        client.blocking_call_v(wait, command)
      else
        client.call_with_timeout(command, wait).tap { |it| raise it if it.is_a?(Exception) }
      end
    end
  end
  private_class_method :wait_for

  # Whether the proxy has ended a wait, or cannot be reached. Other errors are replies, or mistakes; in
  # redis-rb 5 a login that is refused is a CannotConnectError.
  def self.away?(error)
    is_reply = error.message.match?(/\A[A-Z]{2,} /)
    is_reply ? error.message.start_with?("TRYAGAIN") : error.is_a?(Redis::BaseConnectionError)
  end
  private_class_method :away?

  def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  private_class_method :now

  # A lock that a child after a fork leaves to its parent.
  def self.hold(key, token, session)
    Held.new(key, token, session).tap { |it| @changing.synchronize { @held[session] = it } }
  end
  private_class_method :hold

  # Says which program this is; the random part is this lock's, since owners share theirs.
  def self.my_name
    "#{File.basename($PROGRAM_NAME)}@#{Socket.gethostname}:#{Process.pid}:#{SecureRandom.hex(4)}"
  end
  private_class_method :my_name

  # Looks every quarter of a second, while the block runs, whether the lock is lost.
  def self.watch(held, on_lost)
    ended, ending = IO.pipe
    watcher = Thread.new do
      until IO.select([ended], nil, nil, LOOK_EVERY)
        begin
          held.call("PING")
        rescue Redis::CommandError # the connection is there
        end
      end
    rescue Lost
      on_lost&.call(held)
    end
    yield
  ensure
    ending.close
    watcher.join
    ended.close
  end
  private_class_method :watch
end

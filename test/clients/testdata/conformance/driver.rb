# Does what it is told with the Ruby gem: see features in conformance_test.go.
require "lockproxy"

class Mine < StandardError; end
class Cancelled < StandardError; end

OPTIONS = { host: ARGV[0], port: Integer(ARGV[1]) }
OPTIONS.merge!(ssl: true, ssl_params: { ca_file: ENV["CA"] }) if ENV["CA"]
OPTIONS.merge!(username: ENV["USERNAME"], password: ENV["PASSWORD"]) if ENV["PASSWORD"]
R = Redis.new(**OPTIONS)
$stdout.sync = true

def told = $stdin.gets.to_s.split

def options(words)
  words.grep(/=/).to_h do |word|
    name, value = word.split("=")
    [name.to_sym, value.include?(".") ? Float(value) : Integer(value)]
  end
end

def step(held, name, *words)
  case name
  when "fence" then puts "reply #{held.fence(*words)}"
  when "extend"
    held.renew(Integer(words[0]))
    puts "extended"
  when "check"
    held.check
    puts "ok"
  when "await"
    sleep 0.01 until held.lost?
    puts "told"
  when "fork"
    if fork.nil?
      puts "child #{held.lost? ? "lost" : "held"}"
      sleep 3600
    end
  when "raise" then raise Mine
  end
rescue Lockproxy::Lost
  puts "lost"
rescue Redis::CommandError => e
  puts "error #{e.message}"
end

def lock(key, *words)
  if words.include?("cancel")
    waiter = Thread.current
    Thread.new do
      told
      waiter.raise(Cancelled)
    end
  end
  Lockproxy.lock(key, redis: OPTIONS, **options(words)) do |held|
    puts "held #{held.token}"
    while (line = told) != ["leave"]
      step(held, *line)
    end
  end
  puts "released"
end

def once(key, *words)
  value = Lockproxy.once(R, key, redis: OPTIONS, **options(words)) do |claim|
    puts "make #{claim.token}"
    while (line = told)[0] != "value"
      step(claim, *line)
    end
    line[1]
  end
  puts "value #{value}"
end

until (line = told).empty?
  begin
    send(*line)
  rescue Lockproxy::NotAcquired
    puts "refused"
  rescue Lockproxy::Lost
    puts "lost"
  rescue Mine
    puts "raised"
  rescue Cancelled
    puts "cancelled"
  rescue StandardError => e
    puts "error #{e.message.tr("\n", " ")}"
  end
end

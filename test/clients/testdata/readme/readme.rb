# The program of clients/ruby/README.md, and what it uses of the program around it.
require "lockproxy"
r = Redis.new(port: 6380)
def build(day) = "report #{day}"
# the program of README.md

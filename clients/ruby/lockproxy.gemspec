Gem::Specification.new do |spec|
  spec.name = "lockproxy"
  spec.version = "1.0.0"
  spec.summary = "Locks of lockproxy for redis-rb"
  spec.authors = ["lockproxy maintainers"]
  spec.license = "Nonstandard"
  spec.files = ["lib/lockproxy.rb", "README.md"]
  spec.required_ruby_version = ">= 3.1"
  spec.add_dependency "redis", ">= 4.8"
end

#!/bin/bash
# Installs the missing ones of the Redis clients and the tools that the tests of clients use.
set -euo pipefail
cd "$(dirname "$0")"

# command that succeeds if it is there | Debian packages
# (python3 -I, because the directory hiredis here is no Python module)
needed=(
  'command -v redis-server | redis-server'
  'command -v redis-cli | redis-tools'
  'command -v cc | gcc libc6-dev'
  'test -e /usr/include/hiredis/hiredis.h | libhiredis-dev'
  '/usr/bin/python3 -I -c "import redis" | python3-redis'
  '/usr/bin/python3 -I -c "import setuptools, wheel, pip" | python3-pip python3-setuptools python3-wheel'
  '/usr/bin/php -r "exit((int) !class_exists(\"Redis\"));" | php-cli php-redis'
  'command -v composer | composer'
  '/usr/bin/php -r "require \"Predis/autoload.php\";" | php-cli php-predis'
  '/usr/bin/php -r "require \"Symfony/Component/Lock/autoload.php\";" | php-cli php-symfony-lock'
  '/usr/bin/php -r "require \"Illuminate/Redis/autoload.php\";" | php-cli php-illuminate-cache php-illuminate-redis'
  '/usr/bin/php -r "require \"Illuminate/Queue/autoload.php\"; require \"Illuminate/Events/autoload.php\"; require \"Illuminate/Bus/autoload.php\";" | php-cli php-illuminate-queue php-illuminate-events php-illuminate-bus'
  '/usr/bin/ruby -e "require %q(redis)" | ruby ruby-redis'
  '/usr/bin/ruby -e "require %q(sidekiq)" | ruby ruby-sidekiq'
  '/usr/bin/python3 -I -c "import celery" | python3-celery'
  '/usr/bin/python3 -I -c "import rq" | python3-rq'
  '/usr/bin/python3 -I -c "import django" | python3-django'
  '/usr/bin/python3 -I -c "import django_redis" | python3-django-redis'
  '/usr/bin/ruby -e "require %q(rails); require %q(active_record); require %q(sqlite3)" | ruby ruby-railties ruby-activerecord ruby-sqlite3'
  '/usr/bin/perl -MRedis -e 1 | libredis-perl'
  'command -v javac | default-jdk-headless'
  'ls /usr/lib/postgresql/*/bin/initdb | postgresql'
  '/usr/bin/python3 -I -c "import psycopg2, psycopg" | python3-psycopg2 python3-psycopg'
  '/usr/bin/php -r "exit((int) !extension_loaded(\"pdo_pgsql\"));" | php-pgsql'
  'test -e /usr/share/java/postgresql.jar | libpostgresql-jdbc-java'
  'test -e /usr/share/java/spring3-context.jar | libspring-context-java libcommons-logging-java'
  'command -v mvn | maven'
  'ls /usr/share/maven-repo/org/apache/maven/plugins/maven-{compiler,jar,resources,install,surefire}-plugin | libmaven-compiler-plugin-java libmaven-jar-plugin-java libmaven-resources-plugin-java libmaven-install-plugin-java libsurefire-java'
  'command -v cargo | cargo'
  'command -v mcs | mono-mcs mono-runtime'
  'command -v npm | nodejs npm'
)

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

packages=()
for line in "${needed[@]}"; do
  eval "${line% | *}" >/dev/null 2>&1 || packages+=(${line#* | })
done
if ((${#packages[@]})); then
  as_root=()
  ((EUID == 0)) || as_root=(sudo)
  echo "install.sh: installing ${packages[*]}"
  "${as_root[@]}" apt-get update -qq || fail 'apt-get update failed'
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" ||
    fail "can't install ${packages[*]}"
fi
for line in "${needed[@]}"; do
  eval "${line% | *}" >/dev/null || fail "not found though its package is installed: ${line% | *}"
done

node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || fail "Node.js 20 or later is needed, not $(node --version)"
# npm ls fails if node_modules is not what package.json asks for.
(cd node && { npm ls >/dev/null 2>&1 || npm ci --ignore-scripts; }) || fail "can't install the Node.js clients"
for module in go conformance/go; do
  (cd "$module" && go mod download) || fail "can't download the Go clients of $module"
done

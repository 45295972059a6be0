//go:build clients

package clients_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// recipes are the programs of docs/patterns.md in a directory, next to the helpers.
type recipes struct {
	t    *testing.T
	dir  string
	env  []string
	port string // lockproxy's
	keys *testredis.Server
}

var recipeProgram = regexp.MustCompile(
	"(?ms)^ *```(?:python|ruby|js)\n *(?:#|//) (\\S+)\n(.*?)^ *```$")

// cook writes the page's programs and these files, with a lockproxy's own port in them.
func cook(t *testing.T, files map[string]string) *recipes {
	t.Helper()
	keys := testredis.Start(t)
	r := cookFor(t, keys.URL(), files)
	r.keys = keys
	return r
}

// cookFor does so in front of an upstream.
func cookFor(t *testing.T, upstream string, files map[string]string) *recipes {
	t.Helper()
	r := &recipes{t: t, dir: t.TempDir()}
	bin, port := proxytest.Binary(t), strconv.Itoa(testredis.FreePort(t))
	r.port = port
	startForClients(t, port, bin, "--listen", "127.0.0.1:"+port, "--upstream", upstream)
	page, err := os.ReadFile("../../docs/patterns.md")
	if err != nil {
		t.Fatal(err)
	}
	indent := regexp.MustCompile(`(?m)^   `)
	all := map[string]string{}
	for _, m := range recipeProgram.FindAllStringSubmatch(string(page), -1) {
		if all[m[1]] = m[2]; strings.HasPrefix(m[2], "   ") {
			all[m[1]] = indent.ReplaceAllString(m[2], "")
		}
	}
	for name, path := range map[string]string{
		"lockproxy.rb":          "clients/ruby/lib/lockproxy.rb",
		"lockproxy_redis_py.py": "examples/adapters/lockproxy_redis_py.py",
	} {
		text, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		text = strings.ReplaceAll(text, "6380", port)
		path := filepath.Join(r.dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"bin/lockproxy": bin, "lockproxy": "../../clients/python/lockproxy",
		"node_modules/lockproxy": "../../clients/node",
	} {
		path := filepath.Join(r.dir, name)
		to, err := filepath.Abs(to)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if err == nil {
			err = os.Symlink(to, path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.env = append(os.Environ(), "LOCKPROXY_URL=redis://127.0.0.1:"+port,
		"PATH="+r.dir+"/bin:"+r.dir+":/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
	return r
}

// background is a command that goes on until the test has ended.
type background struct {
	*exec.Cmd
	log   string // its output is in this file
	ended chan struct{}
}

func (r *recipes) start(name, command string) *background {
	r.t.Helper()
	b := &background{exec.Command("sh", "-c", "exec "+command), filepath.Join(r.dir, name+".log"),
		make(chan struct{})}
	out, err := os.Create(b.log)
	if err != nil {
		r.t.Fatal(err)
	}
	b.Dir, b.Env, b.Stdout, b.Stderr = r.dir, r.env, out, out
	b.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { // ends with the process, which Cleanup ends
		defer close(b.ended)
		b.Wait()
		out.Close()
	}()
	r.t.Cleanup(func() {
		b.Process.Signal(syscall.SIGTERM) // lockproxy run ends its command by it
		testwait.Holds(b.hasEnded)
		syscall.Kill(-b.Process.Pid, syscall.SIGKILL)
		<-b.ended
		if r.t.Failed() {
			r.t.Logf("output of %s:\n%s", name, b.said())
		}
	})
	return b
}

func (b *background) said() string {
	text, _ := os.ReadFile(b.log)
	return string(text)
}

func (b *background) hasEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// untilWaiters waits until so many programs wait for the lock called key.
func (r *recipes) untilWaiters(key string, n int64) {
	r.t.Helper()
	rdb := proxytest.GoRedis(r.t, "127.0.0.1:"+r.port)
	testwait.Until(r.t, fmt.Sprintf("%d wait for %s", n, key), func() bool {
		info, _ := rdb.Do(proxytest.Ctx, "LOCKINFO", key).Val().(map[any]any)
		return info["waiters"] == n
	})
}

// run runs a command to its end.
func (r *recipes) run(command string) string {
	r.t.Helper()
	b := r.start("run", command)
	testwait.For(r.t, command+" ends", b.ended)
	if !b.ProcessState.Success() {
		r.t.Fatalf("%s: %v\n%s", command, b.ProcessState, b.said())
	}
	return b.said()
}

// onlyOne is work in Python that notes when two do it at the same time.
const onlyOne = `
import redis, time
r = redis.Redis(port=6380)
def build(day):
    if r.incr("inside") > 1:
        r.incr("twice")
    time.sleep(0.3)
    r.decr("inside")
    r.incr("built")
    return day
`

// retriesSoon lets a program of Celery try again sooner.
func (r *recipes) retriesSoon(program string) {
	r.t.Helper()
	path := filepath.Join(r.dir, program)
	text, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	soon := strings.Replace(string(text), "countdown=30", "countdown=0.2", 1)
	if err := os.WriteFile(path, []byte(soon), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// Two workers, and six tasks of the same name.
func TestRecipeCelery(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{"reports.py": onlyOne})
	r.retriesSoon("tasks.py")
	for _, name := range []string{"one", "two"} {
		r.start(name, "/usr/bin/python3 -m celery -A tasks worker -l info -P threads -c 2 -n "+name)
	}
	r.run(`/usr/bin/python3 -c 'import tasks
for _ in range(6): tasks.report.delay("monday")'`)
	testwait.Until(t, "six reports", func() bool { return r.keys.Ask("GET", "built") == "6" })
	if twice := r.keys.Ask("EXISTS", "twice"); twice != ":0" {
		t.Errorf("two workers were inside at once: %s", twice)
	}
	if result := r.keys.Ask("GET", "report:monday:result"); result != "monday" {
		t.Errorf("the result is %q", result)
	}
}

// Of two schedulers one starts, and the other one when that ends.
func TestRecipeCeleryBeat(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{"reports.py": onlyOne})
	const command = "lockproxy run --key celery-beat --wait 0 -- " +
		"/usr/bin/python3 -m celery -A tasks beat -l info -s "
	r.takesOver("celery-beat", "beat: Starting", command+"one.db", command+"two.db")
}

// takesOver starts two schedulers, of which the first runs until it ends, and then the second, which
// waits for the lock called key until then.
func (r *recipes) takesOver(key, starts, first, second string) {
	r.t.Helper()
	one := r.start("one", first)
	testwait.Until(r.t, "the first starts", func() bool {
		return strings.Contains(one.said(), starts)
	})
	two := r.start("two", second)
	r.untilWaiters(key, 1)
	if strings.Contains(two.said(), starts) {
		r.t.Errorf("the second starts next to the first:\n%s", two.said())
	}
	one.Process.Signal(syscall.SIGTERM)
	testwait.Until(r.t, "the second starts", func() bool {
		return strings.Contains(two.said(), starts)
	})
}

func TestRecipeRQ(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{"reports.py": onlyOne})
	const enqueue = `/usr/bin/python3 -c 'import redis, rq, jobs
q = rq.Queue(connection=redis.Redis(port=PORT))
for _ in range(4): q.enqueue(jobs.report, "monday")'`
	r.run(strings.Replace(enqueue, "PORT", r.port, 1))
	for _, name := range []string{"one", "two"} {
		r.start(name, "/usr/bin/python3 -m rq.cli worker --url redis://127.0.0.1:"+r.port)
	}
	testwait.Until(t, "four reports", func() bool { return r.keys.Ask("GET", "built") == "4" })
	if twice := r.keys.Ask("EXISTS", "twice"); twice != ":0" {
		t.Errorf("two workers were inside at once: %s", twice)
	}
}

// RQ's own scheduler runs in one of the workers, chosen by RQ's lock, through lockproxy.
func TestRecipeRQWithScheduler(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{"reports.py": onlyOne})
	const schedules, listens = "Scheduler for default started", "Listening on default"
	var workers []*background
	for _, name := range []string{"one", "two"} { // one after the other: the first has the lock
		b := r.start(name,
			"/usr/bin/python3 -m rq.cli worker --with-scheduler --url redis://127.0.0.1:"+
				r.port)
		testwait.Until(t, name+" listens", func() bool { return strings.Contains(b.said(), listens) })
		workers = append(workers, b)
	}
	one, two := workers[0], workers[1]
	testwait.Until(t, "one schedules", func() bool { return strings.Contains(one.said(), schedules) })
	const show = "redis-cli -u $LOCKPROXY_URL LOCKINFO rq:scheduler-lock:default"
	if said := r.run(show); !strings.Contains(said, "kind\nother\n") {
		t.Errorf("%s:\n%s", show, said)
	}
	const enqueue = `/usr/bin/python3 -c 'import datetime, redis, rq, jobs
q = rq.Queue(connection=redis.Redis(port=PORT))
for _ in range(3): q.enqueue_in(datetime.timedelta(seconds=1), jobs.report, "monday")'`
	r.run(strings.Replace(enqueue, "PORT", r.port, 1))
	testwait.Until(t, "three reports", func() bool { return r.keys.Ask("GET", "built") == "3" })
	for _, b := range workers { // what they have begun they finish
		b.Process.Signal(syscall.SIGTERM)
		testwait.For(t, "a worker ends", b.ended)
	}
	if strings.Contains(two.said(), schedules) {
		t.Error("both schedule")
	}
	for ask, want := range map[string]string{"GET built": "3", "LLEN rq:queue:default": ":0",
		"ZCARD rq:scheduled:default": ":0", "ZCARD rq:finished:default": ":3"} {
		if got := r.keys.Ask(strings.Fields(ask)...); got != want {
			t.Errorf("%s: %s, want %s", ask, got, want)
		}
	}
}

// rq-scheduler is no package of Debian: a program stands in for it that runs until SIGTERM, too.
func TestRecipeRQScheduler(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{"rqscheduler": "#!/bin/sh\necho it starts\nexec sleep 300\n"})
	const command = "lockproxy run --key rq-scheduler --wait 0 -- rqscheduler"
	r.takesOver("rq-scheduler", "it starts", command, command)
}

func TestRecipeSidekiq(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{"test.rb": `
require "sidekiq"
require "sidekiq/testing"
require_relative "report_job"
Sidekiq::Testing.server_middleware { |chain| chain.add OneAtATime }
Sidekiq::Testing.inline!
INSIDE = []
module Reports
  def self.build(day)
    INSIDE << day
    abort "twice" if INSIDE.size > 1
    sleep 0.3
    INSIDE.pop
    print day, " "
  end
end
4.times.map { |day| Thread.new { ReportJob.perform_async(day) } }.each(&:join)
redis = Redis.new(port: 6380)
token = redis.call("LOCK", "sidekiq:report", 600)
begin
  ReportJob.perform_async(5)
  abort "it ran while another had the lock"
rescue Lockproxy::NotAcquired
  redis.call("UNLOCK", "sidekiq:report", token)
end
`})
	if printed := r.run("/usr/bin/ruby test.rb"); len(strings.Fields(printed)) != 4 {
		t.Errorf("four jobs print %q", printed)
	}
}

// Two instances start: one migrates, the other finds nothing to do.
func TestRecipeDjango(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{"manage.py": `
import sys
from django.conf import settings
settings.configure(SECRET_KEY="x", INSTALLED_APPS=["django.contrib.contenttypes",
    "django.contrib.auth"], DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3",
    "NAME": "db.sqlite3"}}, DEFAULT_AUTO_FIELD="django.db.models.AutoField", USE_TZ=True)
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
`})
	const command = "lockproxy run --key migrate --wait 600 -- " +
		"/usr/bin/python3 manage.py migrate --no-input"
	applied, nothing := 0, 0
	for _, said := range r.twice(command) {
		if strings.Contains(said, "Applying auth.0001_initial... OK") {
			applied++
		}
		if strings.Contains(said, "No migrations to apply") {
			nothing++
		}
	}
	if applied != 1 || nothing != 1 {
		t.Errorf("%d have migrated, %d found nothing to do", applied, nothing)
	}
}

func TestRecipeRails(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{
		"bin/rails": `#!/usr/bin/ruby
APP_PATH = File.expand_path("../config/application", __dir__)
require "rails/commands"
`,
		"Rakefile": `require_relative "config/application"
Rails.application.load_tasks
`,
		"config/application.rb": `require "rails"
require "active_record/railtie"
class App < Rails::Application
  config.eager_load = false
  config.secret_key_base = "x"
end
`,
		"config/environment.rb": `require_relative "application"
Rails.application.initialize!
`,
		"config/database.yml": "development: { adapter: sqlite3, database: db.sqlite3 }\n",
		"db/migrate/20260101000000_create_reports.rb": `
class CreateReports < ActiveRecord::Migration[6.1]
  def change
    create_table(:reports) { |t| t.text :body }
    sleep 1
  end
end
`})
	const command = "lockproxy run --key migrate --wait 600 -- bin/rails db:migrate"
	migrated := 0
	for _, said := range r.twice(command) {
		if strings.Contains(said, "CreateReports: migrated") {
			migrated++
		} else if strings.Contains(said, "CreateReports") {
			t.Errorf("one of them says:\n%s", said)
		}
	}
	if migrated != 1 {
		t.Errorf("%d have migrated", migrated)
	}
}

// twice runs a command twice at the same time, and returns what both say.
func (r *recipes) twice(command string) (said []string) {
	r.t.Helper()
	for _, b := range []*background{r.start("one", command), r.start("two", command)} {
		testwait.For(r.t, command+" ends", b.ended)
		if !b.ProcessState.Success() {
			r.t.Errorf("%v\n%s", b.ProcessState, b.said())
		}
		said = append(said, b.said())
	}
	return said
}

// One leads; another takes over when it is killed, and when its lock is taken from it.
func TestRecipeLeader(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{"work.py": `
import os, time
def step(held):
    held.fence("SET", "leads", os.environ["NAME"])
    time.sleep(0.05)
`})
	leads := func(name string) func() bool {
		return func() bool { return r.keys.Ask("GET", "leads") == name }
	}
	one := r.start("one", "env NAME=one /usr/bin/python3 leader.py")
	testwait.Until(t, "one leads", leads("one"))
	r.start("two", "env NAME=two /usr/bin/python3 leader.py")
	r.untilWaiters("leader", 1)
	if !leads("one")() {
		t.Error("two leads next to one")
	}
	one.Process.Kill()
	testwait.Until(t, "two leads", leads("two"))
	r.start("three", "env NAME=three /usr/bin/python3 leader.py")
	r.untilWaiters("leader", 1)
	r.run("redis-cli -u $LOCKPROXY_URL UNLOCK leader FORCE")
	testwait.Until(t, "three leads", leads("three"))
}

// Programs before, between and after the steps exclude each other.
func TestRecipeMovingFromRedisPy(t *testing.T) {
	t.Parallel()
	r := cook(t, map[string]string{"step1.py": `
import redis, sys
r = redis.Redis(port=6380)
lock = r.lock("report", timeout=600)
if not lock.acquire(blocking=False):
    sys.exit("held by another")
`})
	r.run("/usr/bin/python3 step1.py") // ends without releasing the old lock
	two, three := r.start("two", "/usr/bin/python3 step2.py"), r.start("three",
		"/usr/bin/python3 step3.py")
	r.untilWaiters("report", 2)
	if said := two.said() + three.said(); said != "" {
		t.Errorf("next to the old lock:\n%s", said)
	}
	r.keys.Ask("DEL", "report")
	for _, b := range []*background{two, three} {
		testwait.For(t, "a program ends", b.ended)
		if !strings.HasPrefix(b.said(), "held with token ") {
			t.Errorf("it says %q", b.said())
		}
	}
	r.run("redis-cli -u $LOCKPROXY_URL LOCK report 600")
	old := r.start("old", "/usr/bin/python3 step1.py")
	testwait.For(t, "the old program ends", old.ended)
	if old.said() != "held by another\n" {
		t.Errorf("the old lock next to LOCK: %q", old.said())
	}
}

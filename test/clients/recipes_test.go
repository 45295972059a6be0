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

// recipes are the programs of docs/patterns.md in a directory, which find an installed package.
type recipes struct {
	t    *testing.T
	dir  string
	env  []string
	port string // lockproxy's
	keys *testredis.Server
}

var recipeProgram = regexp.MustCompile(
	"(?ms)^ *```(?:python|ruby|js|php|java)\n *(?:#|//) (\\S+)\n(.*?)^ *```$")

// cook writes the page's programs and these files, with a lockproxy's own port in them. They use the
// package of clients of this name, as its tools have installed it, or none.
func cook(t *testing.T, uses string, files map[string]string) *recipes {
	t.Helper()
	keys := testredis.Start(t)
	r := cookFor(t, keys.URL(), uses, files)
	r.keys = keys
	return r
}

// cookFor does so in front of an upstream.
func cookFor(t *testing.T, upstream, uses string, files map[string]string) *recipes {
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
	adapter, err := os.ReadFile("../../examples/adapters/lockproxy_redis_py.py")
	if err != nil {
		t.Fatal(err)
	}
	all["lockproxy_redis_py.py"] = string(adapter)
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		text = strings.ReplaceAll(text, "6380", port)
		if strings.HasSuffix(name, ".php") {
			text = "<?php\n" + text
		}
		path := filepath.Join(r.dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(r.dir+"/bin", 0o700); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"bin/lockproxy": bin}
	r.env = append(os.Environ(), "LOCKPROXY_URL=redis://127.0.0.1:"+port,
		"PATH="+r.dir+"/bin:"+r.dir+":/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
	if uses != "" {
		project := installed(t, uses)
		links["vendor"], links["node_modules"] = project+"/vendor", project+"/node_modules"
		r.env = append(r.env, "PYTHONPATH="+project, "GEM_HOME="+project,
			"CLASSPATH="+r.dir+":"+strings.ReplaceAll(javaPath, "{out}", project))
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
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

// replaces changes a program of the page.
func (r *recipes) replaces(program, old, by string) {
	r.t.Helper()
	path := filepath.Join(r.dir, program)
	text, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(text), old) {
		r.t.Fatalf("%s has no %s", program, old)
	}
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), old, by, 1)), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// retriesSoon lets a program of Celery try again sooner.
func (r *recipes) retriesSoon(program string) {
	r.t.Helper()
	r.replaces(program, "countdown=30", "countdown=0.2")
}

// oneByOne waits until so much has been built, and never two at a time.
func (r *recipes) oneByOne(built int) {
	r.t.Helper()
	testwait.Until(r.t, fmt.Sprintf("%d are built", built), func() bool {
		n, _ := strconv.Atoi(r.keys.Ask("GET", "built"))
		return n >= built
	})
	if twice := r.keys.Ask("EXISTS", "twice"); twice != ":0" {
		r.t.Errorf("two were inside at once: %s", twice)
	}
}

// Two workers, and six tasks of the same name.
func TestRecipeCelery(t *testing.T) {
	t.Parallel()
	r := cook(t, "python", map[string]string{"reports.py": onlyOne})
	r.retriesSoon("tasks.py")
	for _, name := range []string{"one", "two"} {
		r.start(name, "/usr/bin/python3 -m celery -A tasks worker -l info -P threads -c 2 -n "+name)
	}
	r.run(`/usr/bin/python3 -c 'import tasks
for _ in range(6): tasks.report.delay("monday")'`)
	r.oneByOne(6)
	if result := r.keys.Ask("GET", "report:monday:result"); result != "monday" {
		t.Errorf("the result is %q", result)
	}
}

// Of two schedulers one starts, and the other one when that ends.
func TestRecipeCeleryBeat(t *testing.T) {
	t.Parallel()
	r := cook(t, "python", map[string]string{"reports.py": onlyOne})
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
	r := cook(t, "python", map[string]string{"reports.py": onlyOne})
	const enqueue = `/usr/bin/python3 -c 'import redis, rq, jobs
q = rq.Queue(connection=redis.Redis(port=PORT))
for _ in range(4): q.enqueue(jobs.report, "monday")'`
	r.run(strings.Replace(enqueue, "PORT", r.port, 1))
	for _, name := range []string{"one", "two"} {
		r.start(name, "/usr/bin/python3 -m rq.cli worker --url redis://127.0.0.1:"+r.port)
	}
	r.oneByOne(4)
}

// RQ's own scheduler runs in one of the workers, chosen by RQ's lock, through lockproxy.
func TestRecipeRQWithScheduler(t *testing.T) {
	t.Parallel()
	r := cook(t, "python", map[string]string{"reports.py": onlyOne})
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
	r := cook(t, "", map[string]string{"rqscheduler": "#!/bin/sh\necho it starts\nexec sleep 300\n"})
	const command = "lockproxy run --key rq-scheduler --wait 0 -- rqscheduler"
	r.takesOver("rq-scheduler", "it starts", command, command)
}

// Two of Sidekiq's processes, and four jobs. A job whose lock another client holds is tried again.
func TestRecipeSidekiq(t *testing.T) {
	t.Parallel()
	r := cook(t, "ruby", map[string]string{"work.rb": `
require_relative "report_job"
module Reports
  R = Redis.new(port: 6380)
  def self.build(day)
    R.incr("twice") if R.incr("inside") > 1
    sleep 0.3
    R.decr("inside")
    R.incr("built")
  end
end
`})
	r.env = append(r.env, "REDIS_URL=redis://127.0.0.1:"+r.port)
	for _, name := range []string{"one", "two"} {
		r.start(name, "/usr/bin/sidekiq -r ./work.rb")
	}
	const enqueue = "/usr/bin/ruby -r ./work.rb -e '%d.times { |day| ReportJob.perform_async(day) }'"
	r.run(fmt.Sprintf(enqueue, 4))
	r.oneByOne(4)
	r.run("redis-cli -u $LOCKPROXY_URL LOCK sidekiq:report 600")
	r.run(fmt.Sprintf(enqueue, 1))
	testwait.Until(t, "Sidekiq tries the job again", func() bool {
		again := r.run("redis-cli -u $LOCKPROXY_URL ZRANGE retry 0 -1")
		return strings.Contains(again, "Lockproxy::NotAcquired")
	})
	r.oneByOne(4)
}

// Two workers of Laravel's queue, and six jobs of the same day. A job whose lock another client holds
// is put back into the queue.
func TestRecipeLaravel(t *testing.T) {
	t.Parallel()
	r := cook(t, "php", map[string]string{"app.php": `
require 'vendor/autoload.php';
foreach (['Container', 'Contracts', 'Support', 'Events', 'Pipeline', 'Bus', 'Redis', 'Queue'] as $part) {
    require "Illuminate/$part/autoload.php";
}
require 'OneAtATime.php';
require 'BuildReport.php';

class Reports
{
    public static function build(string $day): void
    {
        $r = new Redis();
        $r->connect('127.0.0.1', 6380);
        if ($r->incr('inside') > 1) {
            $r->incr('twice');
        }
        usleep(300_000);
        $r->decr('inside');
        $r->incr('built');
    }
}

$app = new Illuminate\Container\Container();
Illuminate\Container\Container::setInstance($app);
$app->instance(Illuminate\Contracts\Container\Container::class, $app);
$app->instance('redis', new Illuminate\Redis\RedisManager($app, 'phpredis',
    ['default' => ['host' => '127.0.0.1', 'port' => 6380]]));
$app->instance('events', new Illuminate\Events\Dispatcher($app));
$app->bind(Illuminate\Contracts\Events\Dispatcher::class, fn () => $app['events']);
$app->bind(Illuminate\Contracts\Bus\Dispatcher::class, fn () => new Illuminate\Bus\Dispatcher($app));
$queue = new Illuminate\Queue\Capsule\Manager($app);
$queue->addConnection(['driver' => 'redis', 'connection' => 'default', 'queue' => 'default']);
`, "work.php": `
require 'app.php';

$errors = new class implements Illuminate\Contracts\Debug\ExceptionHandler {
    public function report(Throwable $e) { echo $e, "\n"; }
    public function shouldReport(Throwable $e) { return true; }
    public function render($request, Throwable $e) {}
    public function renderForConsole($output, Throwable $e) {}
};
$worker = new Illuminate\Queue\Worker($queue->getQueueManager(), $app['events'], $errors, fn () => false);
$worker->daemon('default', 'default', new Illuminate\Queue\WorkerOptions());
`, "enqueue.php": `
require 'app.php';
for ($i = 0; $i < (int) $argv[1]; $i++) {
    $queue->getConnection()->push(new BuildReport('monday'));
}
`})
	for _, name := range []string{"one", "two"} {
		r.start(name, "/usr/bin/php work.php")
	}
	r.run("/usr/bin/php enqueue.php 6")
	r.oneByOne(6)
	r.run("redis-cli -u $LOCKPROXY_URL LOCK report:monday 600")
	r.run("/usr/bin/php enqueue.php 1")
	testwait.Until(t, "the job is put back", func() bool {
		return r.keys.Ask("ZCARD", "queues:default:delayed") == ":1"
	})
	r.oneByOne(6)
}

// Two programs whose schedulers call the method all the time: one runs it, and when that is killed
// the other one does. The bean is what @EnableScheduling brings, by a class that Debian's Spring, next
// to Debian's ASM, cannot load.
func TestRecipeSpring(t *testing.T) {
	t.Parallel()
	r := cook(t, "java", map[string]string{"App.java": `
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.scheduling.annotation.ScheduledAnnotationBeanPostProcessor;

public class App {
    public static void main(String[] args) {
        new AnnotationConfigApplicationContext(ScheduledAnnotationBeanPostProcessor.class,
            ReportJob.class);
    }
}
`, "Reports.java": `
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;

class Reports {
    static int ask(String command) throws IOException {
        try (Socket socket = new Socket("127.0.0.1", 6380)) {
            socket.getOutputStream().write((command + "\r\nQUIT\r\n").getBytes());
            String reply = new String(socket.getInputStream().readAllBytes());
            return Integer.parseInt(reply.substring(1, reply.indexOf('\r')));
        }
    }

    static void build() throws IOException {
        if (ask("INCR inside") > 1) {
            ask("INCR twice");
        }
        System.out.println("it builds");
        try {
            Thread.sleep(100);
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
        ask("DECR inside");
        ask("INCR built");
    }
}
`})
	jars, _ := filepath.Glob("/usr/share/java/spring3-*.jar")
	for i, entry := range r.env {
		if strings.HasPrefix(entry, "CLASSPATH=") {
			r.env[i] += ":" + strings.Join(append(jars, "/usr/share/java/commons-logging.jar"), ":")
		}
	}
	r.replaces("ReportJob.java", `cron = "0 5 3 * * *"`, "fixedDelay = 50")
	r.run("javac App.java ReportJob.java Reports.java")
	one := r.start("one", "java App")
	two := r.start("two", "java App")
	const builds, passes = "it builds", "another client holds the lock"
	for _, b := range []*background{one, two} {
		testwait.Until(t, "each runs the method, and passes", func() bool {
			return strings.Contains(b.said(), builds) && strings.Contains(b.said(), passes)
		})
	}
	r.oneByOne(6)
	one.Process.Kill()
	<-one.ended
	r.keys.Ask("DEL", "inside")
	built, _ := strconv.Atoi(r.keys.Ask("GET", "built"))
	r.oneByOne(built + 3)
}

// Two instances start: one migrates, the other finds nothing to do.
func TestRecipeDjango(t *testing.T) {
	t.Parallel()
	r := cook(t, "", map[string]string{"manage.py": `
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
	r := cook(t, "", map[string]string{
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
	r := cook(t, "python", map[string]string{"work.py": `
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
	r := cook(t, "python", map[string]string{"step1.py": `
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

//go:build clients

package clients_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// through asks the cluster by way of lockproxy.
func (r *recipes) through(command string) string {
	r.t.Helper()
	return strings.TrimSpace(r.run("redis-cli -u $LOCKPROXY_URL " + command))
}

// Two workers and six tasks of the same name, with their results, on three masters.
func TestRecipeCeleryOnACluster(t *testing.T) {
	t.Parallel()
	r := cookFor(t, testredis.StartCluster(t, 3, 0).URL(), "python", map[string]string{"reports.py": onlyOne})
	r.retriesSoon("cluster_tasks.py")
	for _, name := range []string{"one", "two"} {
		r.start(name, "/usr/bin/python3 -m celery -A cluster_tasks worker -l info -P threads -c 2 -n "+
			name)
	}
	r.run(`/usr/bin/python3 -c 'import celery, cluster_tasks
days = celery.group(cluster_tasks.report.s("monday") for _ in range(6))().get()
assert days == ["monday"] * 6, days'`)
	for command, want := range map[string]string{"GET built": "6", "EXISTS twice": "0",
		"GET {report:monday}:result": "monday"} {
		if got := r.through(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// A worker that takes four jobs at a time and another one; of a day's jobs one runs.
func TestRecipeBullMQOnACluster(t *testing.T) {
	t.Parallel()
	bullMQ(t, testredis.StartCluster(t, 3, 0).URL(), `"{bull}"`)
}

// The same with one Redis and BullMQ's own prefix.
func TestRecipeBullMQ(t *testing.T) {
	t.Parallel()
	bullMQ(t, testredis.Start(t).URL(), "undefined")
}

func bullMQ(t *testing.T, upstream, prefix string) {
	r := cookFor(t, upstream, "node", map[string]string{
		"reports.mjs": `
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
const r = new Redis(6380);
export async function build(day) {
  if (await r.incr("inside") > 1) await r.incr("twice");
  await sleep(100);
  await r.decr("inside");
  await r.incr("built");
  return day;
}
`,
		"enqueue.mjs": `
import { Queue } from "bullmq";
import { Redis } from "ioredis";
const connection = new Redis(6380, { maxRetriesPerRequest: null });
const queue = new Queue("reports", { connection, prefix: PREFIX });
for (let i = 0; i < 6; i++) await queue.add("report", { day: "monday" });
process.exit();
`})
	r.replaces("worker.mjs", `"{bull}"`, prefix)
	r.replaces("enqueue.mjs", "PREFIX", prefix)
	for _, name := range []string{"one", "two"} {
		r.start(name, "node worker.mjs")
	}
	r.run("node enqueue.mjs")
	testwait.Until(t, "six reports", func() bool { return r.through("GET built") == "6" })
	for command, want := range map[string]string{"EXISTS twice": "0",
		"GET {report:monday}:result": "monday"} {
		if got := r.through(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

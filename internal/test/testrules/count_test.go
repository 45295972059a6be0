package testrules

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// Each file has no more than exceptions.txt allows it. LOCKPROXY_TEST_RULES is the root of another
// tree to count in, which is printed only.
func TestRules(t *testing.T) {
	other := os.Getenv("LOCKPROXY_TEST_RULES")
	counts, err := Count(cmp.Or(other, "../../.."))
	if err != nil {
		t.Fatal(err)
	}
	var total Counts
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		total = total.plus(counts[name])
		t.Log(line(name, counts[name]))
	}
	t.Logf("%d files: %d bounds of time, %d sleeps, %d timeouts, %d short leases", len(counts),
		total.Times, total.Sleeps, total.Timeouts, total.Leases)
	if other != "" {
		return
	}
	allowed := exceptions(t)
	for name, c := range counts {
		if !c.within(allowed[name]) {
			t.Errorf("%s: more than allowed (%s):\n%s", name, line(name, allowed[name]),
				"assert what happened, not when, and wait with testwait: see CONTRIBUTING.md")
		}
	}
	for name := range allowed {
		if counts[name] == (Counts{}) {
			t.Errorf("%s needs no exception any more", name)
		}
	}
}

// line is a line of exceptions.txt, without its reason.
func line(name string, c Counts) string {
	return fmt.Sprintf("%s %d %d %d %d", name, c.Times, c.Sleeps, c.Timeouts, c.Leases)
}

func exceptions(t *testing.T) map[string]Counts {
	file, err := os.Open("exceptions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	allowed := map[string]Counts{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if lines.Text() == "" || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		facts, reason, _ := strings.Cut(lines.Text(), "  ")
		var name string
		var c Counts
		if _, err := fmt.Sscan(facts, &name, &c.Times, &c.Sleeps, &c.Timeouts,
			&c.Leases); err != nil || strings.TrimSpace(reason) == "" {
			t.Errorf("%q: want a file, four numbers, two blanks and a reason", lines.Text())
		}
		allowed[name] = c
	}
	return allowed
}

// What is counted, and what not.
func TestCount(t *testing.T) {
	body := func(lines string) string {
		return "package p\nimport \"time\"\nfunc f() {\n" + lines + "\n}"
	}
	for src, want := range map[string]Counts{
		body(`if took := time.Since(began); took > time.Second || took < 2 {}`):              {Times: 2},
		body(`if end.Sub(began) > time.Second {}; if a.n > 3 {}`):                            {Times: 1},
		body(`if left := time.Until(end); left < time.Second {}`):                            {Times: 1},
		body(`if n, took := 1, time.Since(a).Seconds(); took*2 <= 1 {}`):                     {Times: 1},
		body(`time.Sleep(1); sleep.Sleep(2)`):                                                {Sleeps: 1},
		body(`ctx, cancel := context.WithTimeout(c, d); <-time.After(d)`):                    {Timeouts: 2},
		body(`nc.SetDeadline(time.Now().Add(5)); a.b.SetReadDeadline(x)`):                    {Timeouts: 2},
		body(`nc.SetDeadline(testwait.Deadline()); b.SetDeadline(time.Time{})`):              {},
		body(`for time.Now().Before(end) {}; if a.After(b) {}`):                              {Timeouts: 1},
		body(`c.Send("LOCK job 30 WAIT 5", "LOCK job 300", "PING")`):                         {Leases: 1},
		body(`c.Do("RELOCK a 7 0.5"); c.Do("LOCKALL 59 2 a b")`):                             {Leases: 2},
		body(`c.Lock("job 59.9 SESSION"); c.Lock(key+" 5"); c.Lock("a 300")`):                {Leases: 2},
		body(`c.Do(ctx, "LOCK", key, 30); m.ask("", "LOCKALL", "9.5", "2", a, b)`):           {Leases: 2},
		body(`_ = []string{"RELOCK", key, token, "59"}; c.Do("ONCE", key, 300)`):             {Leases: 1},
		body(`run("--key", "a", "--timeout", "5"); run("--timeout", "300")`):                 {Leases: 1},
		body(`c.Do("LOCK " + key + " 30 WAIT " + wait, "LOCK a 5" + more)`):                  {Leases: 2},
		body(`c.Do("LOCK " + key + " 300", "WAIT " + key + " 5", key+" 30")`):                {},
		body(`c.Lock(fmt.Sprintf("%s 600 WAIT 30", key)); mu.Lock()`):                        {},
		"package p\nfunc (c conn) SetDeadline(t time.Time) { c.near.SetDeadline(t) }":        {},
		"//go:build !race\n\n" + body(`time.Sleep(1)`):                                       {Sleeps: 1},
		"//go:build admin\n\n" + body(`s.lock(c, "a", 100, "SESSION"); s.lock(c, "b", 300)`): {Leases: 1},
		"//go:build linux\n\n" + body(`time.Sleep(1)`):                                       {Sleeps: 1},
		"//go:build faults && linux\n\n" + body(`outlast(t, 1); return time.Since(t) > 1`):   {Times: 1, Sleeps: 1},
		"package p\nimport \"testing/synctest\"\nfunc f() { time.Sleep(1) }":                 {},
	} {
		got, err := countFile("f.go", src)
		if err != nil || got != want {
			t.Errorf("%+v, %v, not %+v in\n%s", got, err, want, src)
		}
	}
}

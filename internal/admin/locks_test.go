package admin_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

type lock struct {
	ID        string
	DB        int
	Key       string
	Token     int64
	Owner     string
	Client    string
	Held      int64 `json:"held_ms"`
	Remaining int64 `json:"remaining_ms"`
	Full      int64 `json:"full_ms"`
	Session   bool
	Makes     string
	Waiters   int
}

type lockList struct {
	Locks           []lock
	Matching, Total int
	Complete        bool
	AtMS            int64 `json:"at_ms"` // when the last step of the survey ended
	Error           string
}

func (s *site) locks(query string) (list lockList) {
	s.t.Helper()
	status, text := s.get("/api/locks" + query)
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != 200 {
		s.t.Fatalf("/api/locks%s: %d, %v\n%s", query, status, err, text)
	}
	return list
}

func (l lockList) keys() string {
	var keys []string
	for _, lock := range l.Locks {
		keys = append(keys, lock.Key)
	}
	return strings.Join(keys, " ")
}

func TestLocks(t *testing.T) {
	s := startSite(t, nil)
	c := s.client()
	token := s.lock(c, "reports", 1000, "OWNER", "anna")
	s.lock(c, "imports", 3600)
	s.lock(c, "session", 300, "SESSION")
	s.lock(c, "odd\n\xff<b>", 2000)
	waiter := s.waiter()
	go waiter.Do(ctx, "LOCK", "reports", 600, "WAIT", 3600) // ends with the proxy
	other := startSiteAt(t, s.redis, nil)                   // another proxy finds them by scanning
	testwait.Until(t, "a waiter", func() bool {
		l := s.locks("?filter=anna").Locks
		return len(l) == 1 && l[0].Waiters == 1
	})
	for _, at := range []*site{s, other} {
		testwait.Until(t, "the locks",
			func() bool { l := at.locks(""); return l.Complete && l.Total == 4 })
		for query, want := range map[string]string{
			"":                               `imports odd\n\xff<b> reports session`,
			"?sort=key&desc=1":               `session reports odd\n\xff<b> imports`,
			"?sort=remaining":                `session reports odd\n\xff<b> imports`,
			"?sort=remaining&desc=1&limit=2": `imports odd\n\xff<b>`,
			"?filter=PORT":                   "imports reports",
			"?filter=anna":                   "reports",
			"?sort=nonsense&limit=x":         `imports odd\n\xff<b> reports session`,
		} {
			if got := at.locks(query).keys(); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
		l := at.locks("?filter=reports").Locks[0]
		if l.Token != token || l.Owner != "anna" || !strings.HasPrefix(l.Client, "127.0.0.1:") ||
			l.Session || l.DB != 0 ||
			l.Remaining > 1000000 || l.Remaining <= 0 || l.Full < 990000 || l.Full > 1010000 ||
			l.Held < 0 || l.Held > 1000000 {
			t.Errorf("%+v", l)
		}
		id, _ := base64.RawURLEncoding.DecodeString(at.locks("?filter=odd").Locks[0].ID)
		if string(id) != "odd\n\xff<b>" {
			t.Errorf("id %q", id)
		}
		if !at.locks("?filter=session").Locks[0].Session {
			t.Error("a session lock isn't shown as one")
		}
	}
	c.Do(ctx, "ONCE", "report:7", 600)
	testwait.Until(t, "the claim of a value", func() bool { return s.locks("").Total == 5 })
	if l := s.locks("?filter=report:7:once:").Locks; len(l) != 1 || l[0].Makes != "report:7" {
		t.Errorf("the claim of a value: %+v", l)
	}
	c.Do(ctx, "UNLOCK", "imports", "FORCE")
	testwait.Until(t, "its end",
		func() bool { return other.locks("?filter=imports").Total == 4 })
}

// Locks of other databases are shown too, once the proxy knows of one there.
func TestLocksOfOtherDatabases(t *testing.T) {
	s := startSite(t, nil)
	c := s.client().Conn()
	defer c.Close()
	c.Select(ctx, 3)
	c.Do(ctx, "LOCK", "a", 300)
	testwait.Until(t, "the lock",
		func() bool { l := s.locks(""); return len(l.Locks) == 1 && l.Locks[0].DB == 3 })
}

// Without rights at the upstream, the proxy shows what it knows by itself, and why that is all.
func TestLocksWithoutRights(t *testing.T) {
	redis := testredis.Start(t, "--requirepass", "secret")
	s := startSiteAt(t, redis, nil)
	c := s.client().Conn()
	defer c.Close()
	if err := c.Auth(ctx, "secret").Err(); err != nil {
		t.Fatal(err)
	}
	c.Do(ctx, "LOCK", "a", 300, "OWNER", "me")
	testwait.Until(t, "the lock, and that the upstream has refused to tell more", func() bool {
		l := s.locks("")
		return len(l.Locks) == 1 && l.Locks[0].Owner == "me" && l.Locks[0].Client != "" &&
			strings.Contains(l.Error, "NOAUTH")
	})
}

// While no page is open the upstream isn't scanned, and otherwise only within the budget: by steps
// of 10000 keys, which do not follow closely on each other, however often pages ask.
func TestScansAreBounded(t *testing.T) {
	redis := testredis.Start(t)
	s := startSiteAt(t, redis, nil)
	c := s.client()
	pipe := c.Pipeline()
	for i := range 60000 {
		pipe.Set(ctx, fmt.Sprint("key:", i), 1, 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	scans := func() (n int) {
		fmt.Sscanf(infoStat(c.Info(ctx, "commandstats").Val(), "cmdstat_scan"), "calls=%d", &n)
		return n
	}
	if n := scans(); n != 0 {
		t.Errorf("%d scans with no page open", n)
	}
	const freshMS = 890 // a step is fresh for 900
	steps, last := 0, int64(0)
	testwait.Until(t, "another step", func() bool {
		l := s.locks("")
		if l.AtMS != last {
			if last > 0 && l.AtMS-last < freshMS {
				t.Errorf("a step %d ms after another", l.AtMS-last)
			}
			steps, last = steps+1, l.AtMS
		}
		if l.Complete {
			t.Errorf("%d steps can't have looked through 60000 keys", steps)
		}
		return steps == 2
	})
	if n := scans(); n < 1 || n > 20*steps {
		t.Errorf("%d scans of 500 keys in %d steps", n, steps)
	}
}

func infoStat(info, name string) string {
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return value
		}
	}
	return ""
}

// The page is whole: each file that it names is there, and no other.
func TestPageFiles(t *testing.T) {
	s := startSite(t, nil)
	_, html := s.get("/")
	for _, name := range []string{"page.css", "text.js", "plot.js", "table.js", "seen.js",
		"session.js", "page.js", "lock.js", "icon.svg"} {
		if status, _ := s.get("/" + name); status != 200 || !strings.Contains(html, name) {
			t.Errorf("%s: %d", name, status)
		}
	}
	for _, name := range []string{"/page/", "/page.js.map", "/index.html"} {
		if status, _ := s.get(name); status != 404 {
			t.Errorf("%s: %d", name, status)
		}
	}
	for _, outside := range []string{"http:", "https:", "//"} {
		for _, file := range []string{"/", "/page.css"} {
			if _, text := s.get(file); strings.Contains(text, outside) {
				t.Errorf("%s loads from outside", file)
			}
		}
	}
}

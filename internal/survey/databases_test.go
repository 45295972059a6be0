package survey_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/survey"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/proxy"
)

func TestMain(m *testing.M) { proxytest.Main(m) }

// locksOf finds the locks in a proxy's Redis as the user in its URL, like the live page.
type locksOf struct{ proxy *proxy.Server }

func (l locksOf) as(db int) names.Identity {
	id := l.proxy.Identity()
	id.DB = db
	return id
}

func (l locksOf) Snapshot() []lockinfo.Info { return l.proxy.Locks().Snapshot(2000) }

func (l locksOf) Scan(
	ctx context.Context, db int, cursor uint64, count int,
) (uint64, []string, error) {
	return l.proxy.Locks().Scan(ctx, l.as(db), cursor, count)
}

func (l locksOf) Inspect(
	ctx context.Context, db int, keys []string,
) ([]lockinfo.Info, error) {
	return l.proxy.Locks().Inspect(ctx, l.as(db), keys)
}

// oneDatabase starts a proxy whose URL's user may use no database but 0, and another in front of
// the same Redis. Each has a client that may use all.
func oneDatabase(t *testing.T) (p *proxytest.Proxy, client, elsewhere *proxytest.Conn) {
	server := testredis.Start(t)
	if got := server.Ask("ACL", "SETUSER", "page", "on", ">pw", "~*", "&*", "+@all",
		"-select"); got != "+OK" {
		t.Fatal(got)
	}
	p = proxytest.Start(t, "redis://page:pw@"+server.Addr(), nil)
	client = proxytest.Dial(t, p.Addr)
	client.Expect("AUTH default any", "+OK\r\n")
	return p, client, proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
}

// A database that cannot be scanned does not stop the scan of the others.
func TestScanPastADatabase(t *testing.T) {
	p, client, elsewhere := oneDatabase(t)
	s := survey.New(locksOf{p.Server}, 0, survey.DefaultBudget)
	client.Expect("SELECT 3", "+OK\r\n")
	client.Lock("there 600")
	for i := range 3 {
		key := fmt.Sprintf("here:%d", i)
		elsewhere.Lock(key + " 600") // only a scan finds it
		s.Step(t.Context())
		v := s.View(survey.Query{Filter: key}, time.Now())
		if len(v.Rows) != 1 || v.Err == nil || v.Complete {
			t.Errorf("step %d shows %d locks %s, complete %v, error %v", i, len(v.Rows), key,
				v.Complete, v.Err)
		}
	}
}

// Locks that the user may not see do not stop the scan for others.
func TestScanPastLocksOfOthers(t *testing.T) {
	server := testredis.Start(t)
	if got := server.Ask("ACL", "SETUSER", "page", "on", ">pw", "~ours:*", "&*",
		"+@all"); got != "+OK" {
		t.Fatal(got)
	}
	p := proxytest.Start(t, "redis://page:pw@"+server.Addr(), nil)
	elsewhere := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
	for i := range 20 {
		elsewhere.Lock(fmt.Sprintf("theirs:%d 600", i))
	}
	s := survey.New(locksOf{p.Server}, 0, survey.Budget{Scan: 500, Inspect: 4})
	s.Step(t.Context()) // it knows the names of theirs
	elsewhere.Lock("ours:1 600")
	for range 30 {
		s.Step(t.Context())
	}
	if v := s.View(survey.Query{}, time.Now()); v.Total != 1 || v.Err == nil {
		t.Errorf("%d locks are shown, error %v", v.Total, v.Err)
	}
}

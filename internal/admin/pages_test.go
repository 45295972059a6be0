package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/admin"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
	"lockproxy/proxy"
)

// pages are the links that the live page shows: name, address, and "this" for its own.
func (s *site) pages() (list []string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, lines := s.stream(ctx)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var state struct {
			Pages []struct {
				Name, URL string
				This      bool
			}
		}
		if err := json.Unmarshal([]byte(data), &state); err != nil || state.Pages == nil {
			s.t.Fatalf("%s: %v", data, err)
		}
		for _, p := range state.Pages {
			list = append(list, fmt.Sprint(p.Name, " ", p.URL, " ", p.This))
		}
		return list
	}
	s.t.Fatal("no event")
	return nil
}

func (s *site) waitForPages(want ...string) {
	s.t.Helper()
	var got []string
	defer func() {
		s.t.Helper()
		if s.t.Failed() {
			s.t.Logf("pages: %q", got)
		}
	}()
	testwait.Until(s.t, fmt.Sprintf("%q", want), func() bool {
		got = s.pages()
		return slices.Equal(got, want)
	})
}

// announcing has a page to announce, and perhaps a change of the upstream's URL.
func announcing(page string, url ...string) func(*admin.Config, *proxy.Config) {
	return func(a *admin.Config, p *proxy.Config) {
		a.Page = page
		for _, url := range url {
			p.Upstream, _ = upstream.Parse(url)
			p.Locks.Cluster = p.Upstream.IsCluster()
		}
	}
}

// The pages of proxies in front of the same Redis link to each other, as long as they run.
func TestProxiesSeeEachOther(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	var second *admin.Server
	a := startSiteAt(t, redis, announcing("http://10.0.0.1:6390/"))
	a.waitForPages("10.0.0.1:6390 http://10.0.0.1:6390/ true")
	b := startSiteAt(t, redis, announcing("https://ops.example/two/"),
		func(s *admin.Server) { second = s })
	c := startSiteAt(t, redis, nil) // it has none
	a.waitForPages("10.0.0.1:6390 http://10.0.0.1:6390/ true",
		"ops.example/two https://ops.example/two/ false")
	b.waitForPages("10.0.0.1:6390 http://10.0.0.1:6390/ false",
		"ops.example/two https://ops.example/two/ true")
	c.waitForPages("10.0.0.1:6390 http://10.0.0.1:6390/ false",
		"ops.example/two https://ops.example/two/ false")
	second.Close()
	a.waitForPages("10.0.0.1:6390 http://10.0.0.1:6390/ true")
	redis.Kill()
	redis.Restart()
	c.waitForPages("10.0.0.1:6390 http://10.0.0.1:6390/ false") // announced again
}

// In a cluster, too, whichever node is a master.
func TestProxiesOfAClusterSeeEachOther(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 3)
	a := startSiteAt(t, cluster.Nodes[0], announcing("http://a/", cluster.URL()))
	b := startSiteAt(t, cluster.Nodes[0], announcing("http://b/", cluster.URL()))
	a.waitForPages("a http://a/ true", "b http://b/ false")
	b.waitForPages("a http://a/ false", "b http://b/ true")
	cluster.Failover(cluster.MasterOf(0))
	a.waitForPages("a http://a/ true", "b http://b/ false")
}

// A user who may not announce a page, or ask for others, is told so once, and can wait for locks as
// before.
func TestPageIsNotAnnouncedWithoutRights(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	// The channels of proxies have 16 hexadecimal digits.
	if got := server.Ask("ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels",
		"&lockproxy:wake:????????????????", "&lockproxy:wake:{waits}", "+@all",
		"-pubsub|channels"); got != "+OK" {
		t.Fatal(got)
	}
	url := strings.Replace(server.URL(), "://", "://app:secret@", 1)
	logged := &testredis.LogBuffer{}
	with := func(a *admin.Config, p *proxy.Config) {
		announcing("http://a/", url)(a, p)
		p.Logger = hclog.New(&hclog.LoggerOptions{Output: logged})
	}
	a, b := startSiteAt(t, server, with), startSiteAt(t, server, announcing("", url))
	a.waitForPages()
	testwait.Until(t, "a warning", func() bool {
		return strings.Contains(logged.String(), "may not subscribe: admin_url=http://a/")
	})
	for range 3 { // it tries again
		a.pages()
	}
	if n := strings.Count(logged.String(), "WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, logged)
	}

	token := b.lock(b.client(), "x", 600)
	waited := make(chan error, 1)
	go func() { waited <- a.waiter().Do(ctx, "LOCK", "x", 600, "WAIT", 600).Err() }()
	testwait.Until(t, "a subscription", func() bool {
		return strings.Contains(server.Ask("PUBSUB", "CHANNELS"), "lockproxy:wake:"+a.proxy.ID())
	})
	b.client().Do(ctx, "UNLOCK", "x", token)
	if err := testwait.For(t, "the waiter's lock", waited); err != nil {
		t.Error(err)
	}
}

// Anyone who can subscribe can announce anything: only what can be a page is shown, and not too much.
func TestHostilePagesAreNotShown(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := startSiteAt(t, server, announcing("http://a/"))
	s.waitForPages("a http://a/ true")
	hostile := redis.NewClient(testredis.Patient(&redis.Options{Addr: server.Addr()}))
	defer hostile.Close()
	announce := func(pages ...string) func() {
		var channels []string
		for _, page := range pages {
			channels = append(channels, "lockproxy:wake:page:"+page)
		}
		sub := hostile.Subscribe(ctx, channels...)
		if _, err := sub.Receive(ctx); err != nil {
			t.Fatal(err)
		}
		return func() { sub.Close() }
	}
	announce("", "javascript:alert(1)", "data:text/html,<script>", "//b/", "b:6390", "http:///x",
		"http://user:password@b/", "http://b/?q", "http://b/#f", "http://b/\n", "http://b/ x",
		"http://b\x00/", "http://b/\xff", "http://b/\u202e", "http://bücher/", "http://%zz/",
		"http://b/"+strings.Repeat("x", 512), "ftp://b/", `http://b/"><script>`)
	s.waitForPages("a http://a/ true",
		"b/%22%3E%3Cscript%3E http://b/%22%3E%3Cscript%3E false")

	var many []string
	for i := range 120 {
		many = append(many, fmt.Sprintf("http://many/%03d/", i))
	}
	end := announce(many...)
	testwait.Until(t, "100 pages", func() bool { return len(s.pages()) == 100 })
	flood := announce(strings.Repeat("x", 100<<10)) // more than is read
	for range 3 {
		s.pages()
	}
	if n := len(s.pages()); n != 100 {
		t.Errorf("%d pages, want the 100 that were found before", n)
	}
	end()
	flood()
	s.waitForPages("a http://a/ true",
		"b/%22%3E%3Cscript%3E http://b/%22%3E%3Cscript%3E false")
}

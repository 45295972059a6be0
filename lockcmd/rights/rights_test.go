package rights

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testredis"
)

// Each right that is missing is named, with its purpose; trying leaves nothing behind.
func TestTryNamesMissingRights(t *testing.T) {
	server := testredis.Start(t)
	acl := func(rules ...string) {
		t.Helper()
		if got := server.Ask(append([]string{"ACL", "SETUSER", "app"}, rules...)...); got != "+OK" {
			t.Fatal(got)
		}
	}
	p := Purpose{User: "app", Lock: "app:x", Links: true}
	try := func(p Purpose) Found {
		t.Helper()
		client := redis.NewClient(testredis.Patient(&redis.Options{Addr: server.Addr(),
			Username: "app", Password: "pw"}))
		defer client.Close()
		found, err := Try(t.Context(), client, p)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	known := slices.DeleteFunc(slices.Clone(rights), func(r right) bool {
		cluster := []string{"spublish", "ssubscribe", "asking", "cluster|nodes"}
		return slices.Contains(cluster, r.command) ||
			r.command == "waitaof" && !server.KnowsWaitaof()
	})
	acl("on", ">pw", "~app:*", "resetchannels", "&lockproxy:wake:*")
	for _, r := range known {
		acl("+" + r.command)
	}
	if found := try(p); len(found.Lacks) > 0 || found.Confined {
		t.Errorf("all of the rights: %+v", found)
	}
	if found := try(Purpose{User: "app"}); len(found.Lacks) > 0 || !found.Confined {
		t.Errorf("a key that nobody uses: %+v", found)
	}
	for _, r := range known {
		acl("-" + r.command)
		p := p
		p.Replicas, p.Fsync = r.command == "wait", r.command == "waitaof"
		found := try(p)
		found.Lacks = slices.DeleteFunc(found.Lacks, func(l Lack) bool {
			return l.About == "persistence" // it has no appendonly
		})
		lacks := "user app lacks +" + r.command + ", for "
		if len(found.Lacks) == 0 || !strings.HasPrefix(found.Lacks[0].Text, lacks) ||
			found.Lacks[0].Fails != bool(r.level) || found.Lacks[0].About != "rights" {
			t.Errorf("without +%s: %+v", r.command, found)
		}
		if r.command != "subscribe" && len(found.Lacks) > 1 { // that is for two purposes
			t.Errorf("without +%s more than that is missing: %+v", r.command, found)
		}
		acl("+" + r.command)
	}
	for _, c := range []struct {
		rules []string
		want  Lack
	}{
		{[]string{"resetchannels"}, Lack{"rights", "user app lacks &lockproxy:wake:*", false}},
		{[]string{"&lockproxy:wake:*", "resetkeys", "~app:x"},
			Lack{"rights", "user app lacks a key pattern that covers", true}},
	} {
		acl(c.rules...)
		found := try(p)
		if len(found.Lacks) != 1 || !strings.HasPrefix(found.Lacks[0].Text, c.want.Text) ||
			found.Lacks[0].Fails != c.want.Fails {
			t.Errorf("%q: %+v, want %+v", c.rules, found, c.want)
		}
	}
	if keys := server.Ask("DBSIZE"); keys != ":0" {
		t.Errorf("%s keys were left behind", keys)
	}
}

// docs/operations.md documents just these rights.
func TestRightsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## The user that locks\n")
	_, section, _ = strings.Cut(section, "\n| right | for |\n")
	section, _, _ = strings.Cut(section, "\n\n")
	if !ok {
		t.Fatal("docs/operations.md has no such section")
	}
	section = strings.ReplaceAll(section, `\|`, "|")
	documented := regexp.MustCompile(`\+[a-z|]+[a-z]`).FindAllString(section, -1)
	known := []string{"+select"}
	for _, r := range rights {
		known = append(known, "+"+r.command)
	}
	slices.Sort(documented)
	slices.Sort(known)
	documented, known = slices.Compact(documented), slices.Compact(known)
	if !slices.Equal(documented, known) {
		t.Errorf("docs/operations.md has %v\nlockproxy check has %v", documented, known)
	}
}

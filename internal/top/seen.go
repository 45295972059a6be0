package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/survey"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/script"
)

// The answers of LOCKTOP, LOCKLOG and LOCKINFO.

// listed is how many locks or events it asks for.
const listed = 200

// cost is a line of LOCKTOP.
type cost struct {
	key                      string
	wait, longest, hold      time.Duration
	waits, acquired, refused int64
	blame                    string
}

// event is a line of LOCKLOG.
type event struct {
	at         time.Time
	what, key  string
	who        string
	wait, hold time.Duration
}

// detail is one lock.
type detail struct {
	holders []string
	queue   []string
	events  []event
}

// named is a client by its owner's name and its address, as far as they are known.
func named(owner, client string) string {
	switch {
	case owner == "":
		return survey.Printable(client)
	case client == "":
		return survey.Printable(owner)
	}
	return survey.Printable(owner) + " at " + survey.Printable(client)
}

// quoted is a note behind a name, if there is one.
func quoted(note string) string {
	if note == "" {
		return ""
	}
	return " “" + survey.Printable(note) + "”"
}

// maps are the maps of a reply.
func (s proxySource) maps(ctx context.Context, args ...any) (list [][]any, err error) {
	reply, err := s.client.Do(ctx, args...).Slice()
	if err != nil {
		return nil, explain(err)
	}
	for _, one := range reply {
		if one, ok := one.([]any); ok {
			list = append(list, one)
		}
	}
	return list, nil
}

// costs is LOCKTOP.
func (s proxySource) costs(ctx context.Context, by string, shapes bool) (list []cost, err error) {
	args := []any{"LOCKTOP", "BY", by, "COUNT", listed}
	if shapes {
		args = append(args, "SHAPES")
	}
	lines, err := s.maps(ctx, args...)
	for _, line := range lines {
		text, number := fields(line)
		list = append(list, cost{
			key: text["key"], waits: number["waits"], acquired: number["acquired"],
			refused: number["refused"], wait: script.FromMS(number["wait_ms"]),
			longest: script.FromMS(number["longest_wait_ms"]), hold: script.FromMS(number["hold_ms"]),
			blame: blamed(line),
		})
	}
	return list, err
}

// blamed names the holders that others waited for.
func blamed(line []any) string {
	var parts []string
	for i := 0; i+1 < len(line); i += 2 {
		list, _ := line[i+1].([]any)
		for k := 0; k+1 < len(list) && line[i] == "blame"; k += 2 {
			who, _ := list[k].(string)
			ms, _ := list[k+1].(int64)
			parts = append(parts, survey.Printable(who)+" "+Span(script.FromMS(ms)))
		}
	}
	return strings.Join(parts, ", ")
}

// events is LOCKLOG, of one lock or of all.
func (s proxySource) events(ctx context.Context, key ...any) (list []event, err error) {
	lines, err := s.maps(ctx, append(append([]any{"LOCKLOG"}, key...), "COUNT", listed)...)
	for _, line := range lines {
		text, number := fields(line)
		list = append(list, event{
			at: time.UnixMilli(number["at_ms"]), what: text["event"], key: text["key"],
			who:  named(text["owner"], text["client"]) + quoted(text["note"]),
			wait: script.FromMS(number["wait_ms"]), hold: script.FromMS(number["hold_ms"]),
		})
	}
	return list, err
}

// holderLine describes a holder.
func holderLine(h lockinfo.Info) string {
	line := named(h.Whose(), h.Client) + quoted(h.Note)
	if h.Kind != "lockproxy" {
		by := survey.Printable(cmp.Or(h.Library, h.Kind))
		line = strings.TrimSpace(line + " (not by LOCK: " + by + ")")
	}
	if h.Age >= 0 {
		line += ", held for " + Span(h.Age)
	}
	if h.Refused > 0 {
		line += fmt.Sprintf(", others refused %d times", h.Refused)
	}
	if h.Session {
		return line + ", renewed"
	}
	return line + ", " + Span(h.Remaining) + " left"
}

// holders are those of a shared lock. now is by the upstream's clock.
func (s proxySource) holders(
	ctx context.Context, key string, now time.Time,
) (list []string, err error) {
	lines, err := s.maps(ctx, "LOCKINFO", key, "HOLDERS")
	for _, line := range lines {
		text, number := fields(line)
		list = append(list, holderLine(lockinfo.Info{
			Kind: "lockproxy", Owner: text["owner"], Name: text["name"], Client: text["client"],
			Note:      text["note"],
			Age:       now.Sub(time.UnixMilli(number["acquired_ms"])),
			Remaining: time.UnixMilli(number["expires_ms"]).Sub(now),
			Session:   number["session"] == 1,
		}))
	}
	return list, err
}

// lock asks who holds a lock, who waits for it, and what happened to it.
func (s proxySource) lock(ctx context.Context, key string) (d detail, err error) {
	info, err := s.client.Do(ctx, "LOCKINFO", key).Slice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return d, explain(err)
	}
	now := time.Now()
	if h, ok := asHeld(info); ok {
		d.holders = append(d.holders, holderLine(h))
		_, number := fields(info)
		now = time.UnixMilli(number["expires_ms"] - number["remaining_ms"]) // the upstream's
		if h.Holders > 1 {
			if d.holders, err = s.holders(ctx, key, now); err != nil {
				return d, err
			}
		}
	}
	waiters, err := s.maps(ctx, "LOCKINFO", key, "WAITERS")
	if err != nil {
		return d, err
	}
	for _, line := range waiters {
		text, number := fields(line)
		who := named(cmp.Or(text["owner"], text["name"]), text["client"])
		waited := Span(max(now.Sub(time.UnixMilli(number["since_ms"])), 0))
		switch until := number["until_ms"]; {
		case text["proxy"] != "":
			d.queue = append(d.queue, fmt.Sprintf("the proxy %s, which has waiters",
				survey.Printable(text["proxy"])))
		case until == 0:
			d.queue = append(d.queue, who+", for "+waited)
		default:
			d.queue = append(d.queue, fmt.Sprintf("%s, for %s, up to %s more",
				who, waited,
				Span(max(time.UnixMilli(until).Sub(now), 0))))
		}
	}
	for i := 0; i+1 < len(info); i += 2 {
		list, _ := info[i+1].([]any)
		for _, one := range list {
			if one, ok := one.([]any); ok && info[i] == "trying" {
				text, number := fields(one)
				library := ""
				if text["library"] != "" {
					library = " (" + survey.Printable(text["library"]) + ")"
				}
				d.queue = append(d.queue, fmt.Sprintf(
					"%s%s, in no queue: tries for %s, refused %d times",
					named(text["owner"], text["client"]), library,
					Span(max(now.Sub(time.UnixMilli(number["since_ms"])), 0)), number["refused"]))
			}
		}
	}
	d.events, err = s.events(ctx, key)
	return d, err
}

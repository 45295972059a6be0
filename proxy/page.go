package proxy

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/loopguard"
)

// pageChannel begins the names of the channels by which proxies in front of one Redis know each
// other's pages: each subscribes to the one that ends with the address of its page. Nothing is
// stored, and a proxy that has ended is forgotten. The pattern of the channels by which waiters are
// woken covers these names, so users need no other.
const pageChannel = "lockproxy:wake:page:"

const (
	pageTimeout = 2 * time.Second // until the reply
	pageRetry   = 5 * time.Second
)

// AnnouncePage lets other proxies know the address of this one's page, until ctx ends. It has a
// connection to itself: if the user may not subscribe to this channel, waiters do not suffer.
func (s *Server) AnnouncePage(ctx context.Context, page string) {
	loopguard.MayWait()
	for warned := false; ctx.Err() == nil; {
		err := s.subscribe(ctx, pageChannel+page)
		if (redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "NOAUTH")) && !warned {
			warned = true
			s.log.Warn("other proxies cannot link to this one's page: the user in --upstream may "+
				"not subscribe", "admin_url", page, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pageRetry):
		}
	}
}

// subscribe keeps a subscription until ctx ends or it fails.
func (s *Server) subscribe(ctx context.Context, channel string) error {
	once, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	sub := s.prober.Subscribe(once, channel)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	_, err := sub.Receive(once)
	for err == nil {
		_, err = sub.Receive(ctx) // no message is expected there
	}
	return err
}

// Pages are the addresses that proxies in front of the same Redis announce, this one among them.
// Any client that may subscribe there can announce anything.
func (s *Server) Pages(ctx context.Context) (pages []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	pages, err = s.prober.PubSubChannels(ctx, pageChannel+"*").Result()
	for i, channel := range pages {
		pages[i] = strings.TrimPrefix(channel, pageChannel)
	}
	return pages, err
}

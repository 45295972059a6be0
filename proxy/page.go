package proxy

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// pageChannel begins the names of the channels by which proxies in front of one Redis know each
// other's pages: each subscribes to the one that ends with the address of its page. Nothing is
// stored, and a proxy that has ended is forgotten. The pattern of the channels by which waiters are
// woken covers these names, so users need no other.
const pageChannel = "lockproxy:wake:page:"

const (
	pageTimeout = 2 * time.Second // until the reply
	pageRetry   = 5 * time.Second
	// pageReview is how long a subscription lasts in a cluster, where only masters are asked for
	// channels: the one where it is can become a replica.
	pageReview = 15 * time.Second
	// maxPages bounds the reply that names all pages, bytes. Clients that may subscribe add some.
	maxPages = 64 << 10
)

// AnnouncePage lets other proxies know the address of this one's page, until ctx ends. It has a
// connection to itself: if the user may not subscribe to this channel, waiters do not suffer.
func (s *Server) AnnouncePage(ctx context.Context, page string) {
	for warned := false; ctx.Err() == nil; {
		err := s.subscribe(ctx, pageChannel+page)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		var refused *upstream.Refused
		if errors.As(err, &refused) && strings.HasPrefix(refused.Reply, "NO") && !warned {
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

// subscribe keeps a subscription until ctx ends, it fails, or it must be made again.
func (s *Server) subscribe(ctx context.Context, channel string) error {
	conn, _, err := s.ask(ctx, "SUBSCRIBE", channel)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if s.cfg.Upstream.IsCluster() {
		conn.SetReadDeadline(time.Now().Add(pageReview))
	}
	for err == nil {
		_, _, err = resp.ReadReply(conn, maxPages) // no message is expected there
	}
	return err
}

// Pages are the addresses that proxies in front of the same Redis announce, this one among them.
// Any client that may subscribe there can announce anything.
func (s *Server) Pages(ctx context.Context) (pages []string, err error) {
	conn, reply, err := s.ask(ctx, "PUBSUB", "CHANNELS", pageChannel+"*")
	if err != nil {
		return nil, err
	}
	conn.Close()
	v, err := resp.ParseValue(reply)
	for _, channel := range v.Elems {
		pages = append(pages, strings.TrimPrefix(string(channel.Text), pageChannel))
	}
	return pages, err
}

// ask sends a request as the URL's user, by a new connection. An error reply is an
// *upstream.Refused.
func (s *Server) ask(ctx context.Context, words ...string) (net.Conn, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	conn, err := s.cfg.Upstream.Dial(ctx, upstream.Setup{Identity: s.cfg.Upstream.Initial})
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	var raw []byte
	var head resp.Head
	if _, err = conn.Write(resp.AppendCommand(nil, words...)); err == nil {
		raw, head, err = resp.ReadReply(conn, maxPages)
	}
	switch {
	case err == nil && head.IsError():
		err = &upstream.Refused{Addr: s.cfg.Upstream.String(), Step: words[0],
			Reply: string(head.Line)}
	case !stop() && err == nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, raw, nil
}

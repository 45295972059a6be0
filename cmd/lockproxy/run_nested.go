package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// heldVariable is the variable in which a command finds the locks that it runs under, each as
// key=token: its own, and those of each lockproxy run around it.
const heldVariable = "LOCKPROXY_HELD"

// heldVariable is the setting of that variable for the command.
func (c *runCommand) heldVariable(token int64) string {
	list := strings.Fields(os.Getenv(heldVariable))
	for _, key := range c.Key {
		list = append(list, url.QueryEscape(key)+"="+strconv.FormatInt(token, 10))
	}
	return heldVariable + "=" + strings.Join(list, " ")
}

// refuseNested fails if this program itself runs under one of its locks in a way that keeps it from
// ever having it. The environment can name a lock that has ended, so it asks.
func (c *runCommand) refuseNested(ctx context.Context, conn *sessionConn) error {
	for _, key := range c.Key {
		var tokens []string
		for _, entry := range strings.Fields(os.Getenv(heldVariable)) {
			escaped, token, _ := strings.Cut(entry, "=")
			if name, err := url.QueryUnescape(escaped); err == nil && name == key {
				tokens = append(tokens, token)
			}
		}
		if len(tokens) > 0 {
			if err := c.refuseWithin(ctx, conn, key, tokens); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuseWithin does so for a key whose tokens are those of the runs around this one.
func (c *runCommand) refuseWithin(
	ctx context.Context, conn *sessionConn, key string, tokens []string,
) error {
	reply, err := conn.ask(ctx, "LOCKINFO", key, "HOLDERS")
	if err != nil {
		return err
	}
	held, exclusive := 0, !c.Shared && c.Limit == 0
	for _, holder := range reply.Elems {
		fields := infoFields(holder)
		for _, token := range tokens {
			if fields["token"] == token {
				held++
				exclusive = exclusive || fields["mode"] == "exclusive"
			}
		}
	}
	if held == 0 || !exclusive && (c.Shared || c.Limit > held) {
		return nil
	}
	return refusal(fmt.Sprintf("this command already runs under the lock %q (LOCKPROXY_HELD): it "+
		"would wait for itself", key))
}

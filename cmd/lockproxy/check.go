package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
)

// checkCommand is lockproxy check: it checks the configuration and what the upstream offers,
// and changes nothing there.
type checkCommand struct {
	options

	Lock string `group:"Checking" env:"-" placeholder:"NAME"`
	JSON bool   `name:"json" group:"Checking" env:"-"`
}

// Help is printed below the command's help line.
func (c *checkCommand) Help() string {
	return "Takes the flags of serving, and uses the login in --upstream. Give it the login of a " +
		"user that locks, and it reports which rights that user lacks. " +
		"The exit status is 1 if a line says FAIL, and 0 otherwise."
}

// usageStatus is the exit status if the configuration is not valid.
func (c *checkCommand) usageStatus() int { return exitFailure }

// Levels of a finding.
const (
	levelPass = "PASS"
	levelWarn = "WARN" // it works, and something may be lost
	levelFail = "FAIL" // it doesn't work
)

// finding is the result of one check.
type finding struct {
	Level string `json:"level"` // PASS, WARN or FAIL
	About string `json:"about"` // one word: what was checked
	Text  string `json:"text"`
}

// findings are the results, in the order of the checks.
type findings []finding

func (f *findings) add(level, about, format string, args ...any) {
	*f = append(*f, finding{level, about, fmt.Sprintf(format, args...)})
}

func (f findings) ok() bool {
	for _, found := range f {
		if found.Level == levelFail {
			return false
		}
	}
	return true
}

func (c *checkCommand) execute(stdout, _ io.Writer) int {
	found := c.checkAll()
	if c.JSON {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.Encode(struct {
			OK       bool     `json:"ok"`
			Findings findings `json:"findings"`
		}{found.ok(), found})
	} else {
		for _, f := range found {
			fmt.Fprintf(stdout, "%s  %-12s %s\n", f.Level, f.About, f.Text)
		}
	}
	if !found.ok() {
		return exitFailure
	}
	return 0
}

// checkAll makes all checks that can still be made when an earlier one has failed.
func (c *checkCommand) checkAll() (found findings) {
	redis.SetLogger(redisLog{hclog.NewNullLogger()})
	source := "flags and environment"
	if c.Config != "" {
		source = c.Config + ", flags and environment"
	}
	found.add(levelPass, "config", "%s are valid", source)
	certs, err := loadCertificates(&c.options)
	switch {
	case err != nil:
		found.add(levelFail, "tls", "%v", err)
		return found
	case len(certs.notNow) > 0:
		for _, text := range certs.notNow {
			found.add(levelFail, "tls", "%s", text)
		}
	case certs.used():
		found.add(levelPass, "tls", "all files can be used")
	}
	if c.upstream == nil {
		found.add(levelWarn, "upstream", "the embedded in-memory store keeps and shares nothing: "+
			"name a Redis with --upstream")
		return found
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.DialTimeout+checkWithin)
	defer cancel()
	defer c.follow(ctx, cancel)()
	c.checkUpstream(ctx, &found)
	return found
}

// checkWithin bounds all questions to the upstream together, without connecting.
const checkWithin = 5 * time.Second

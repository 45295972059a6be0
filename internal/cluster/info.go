package cluster

// INFO of several masters.

import (
	"fmt"
	"strconv"
	"strings"

	"lockproxy/internal/resp"
)

// summedSections are the sections of INFO that are sums over all masters. Others are one master's.
var summedSections = map[string]bool{
	"clients": true, "stats": true, "commandstats": true, "errorstats": true, "keyspace": true,
}

// info is INFO. All masters are asked if a section is to be summed; those that can't be reached are
// left out.
func info(c *Conn, q *query) {
	summed := len(q.args) == 1
	for _, arg := range q.args[1:] {
		switch name := strings.ToLower(string(arg)); name {
		case "default", "all", "everything":
			summed = true
		default:
			summed = summed || summedSections[name]
		}
	}
	dflt := c.nodes.defaultNode()
	nodes := []*node{dflt}
	if summed && c.nodes.slots != nil {
		for _, n := range c.nodes.atAll(c.nodes.slots.masters) {
			if n != dflt {
				nodes = append(nodes, n)
			}
		}
	}
	c.askAll(nodes, q.raw, func(replies [][]byte) []byte {
		var from string
		var texts []string
		kind := byte('$')
		for i, raw := range replies {
			if v, err := resp.ParseValue(raw); err == nil && (v.Type == '$' || v.Type == '=') {
				if len(texts) == 0 {
					from, kind = nodes[i].addr, raw[0]
				}
				texts = append(texts, string(v.Text))
			}
		}
		if len(texts) == 0 {
			return failureOf(replies)
		}
		text := joinInfo(texts, from)
		if kind == '=' {
			text = "txt:" + text
		}
		joined := bulk(text)
		joined[0] = kind
		return joined
	})
}

// joinInfo is one INFO out of those of several masters, of which the first is at from.
func joinInfo(texts []string, from string) string {
	var b strings.Builder
	first, said := splitInfo(texts[0]), false
	for i, title := range first.titles {
		lines := first.lines[title]
		if summedSections[title] {
			for _, text := range texts[1:] {
				lines = sumLines(lines, splitInfo(text).lines[title])
			}
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(first.headings[title])
		if !summedSections[title] && !said {
			said = true
			fmt.Fprintf(&b, "info_node:%s\r\ninfo_masters:%d\r\n", from, len(texts))
		}
		for _, line := range lines {
			b.WriteString(line + "\r\n")
		}
	}
	return b.String()
}

// infoText is the text of an INFO by sections, whose titles are in lower case.
type infoText struct {
	titles   []string
	headings map[string]string
	lines    map[string][]string
}

func splitInfo(text string) infoText {
	t := infoText{headings: map[string]string{}, lines: map[string][]string{}}
	title := ""
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "txt:"), "\r\n") {
		name, isTitle := strings.CutPrefix(line, "# ")
		switch {
		case isTitle:
			title = strings.ToLower(name)
			t.titles = append(t.titles, title)
			t.headings[title] = line + "\r\n"
		case line != "":
			t.lines[title] = append(t.lines[title], line)
		}
	}
	return t
}

// sumLines adds the lines of another master to those with the same names.
func sumLines(lines, more []string) []string {
	at := map[string]int{}
	for i, line := range lines {
		name, _, _ := strings.Cut(line, ":")
		at[name] = i
	}
	for _, line := range more {
		name, value, _ := strings.Cut(line, ":")
		if i, known := at[name]; known {
			before := strings.TrimPrefix(lines[i], name+":")
			if strings.Contains(name, "max") || strings.HasPrefix(name, "latest") {
				lines[i] = name + ":" + greatest(before, value)
			} else {
				lines[i] = name + ":" + sumValues(before, value)
			}
		} else {
			lines = append(lines, line)
		}
	}
	return lines
}

// sumValues adds two values, which are numbers, or lists as calls=1,usec=2. A mean becomes that of
// both.
func sumValues(a, b string) string {
	as, bs := strings.Split(a, ","), strings.Split(b, ",")
	if len(as) != len(bs) {
		return a
	}
	var inA, inB = map[string]float64{}, map[string]float64{} // by name
	for i := range as {
		name, x, isPair := strings.Cut(as[i], "=")
		_, y, _ := strings.Cut(bs[i], "=")
		if !isPair {
			name, x, y = "", as[i], bs[i]
		}
		inA[name], _ = strconv.ParseFloat(x, 64)
		inB[name], _ = strconv.ParseFloat(y, 64)
		mean := func(of string, digits int) string {
			total := inA[name]*inA[of] + inB[name]*inB[of]
			return strconv.FormatFloat(total/max(1, inA[of]+inB[of]), 'f', digits, 64)
		}
		sum := addNumbers(x, y)
		switch name { // counts come before their means
		case "avg_ttl":
			sum = mean("expires", 0)
		case "usec_per_call":
			sum = mean("calls", 2)
		}
		if isPair {
			sum = name + "=" + sum
		}
		as[i] = sum
	}
	return strings.Join(as, ",")
}

// greatest is the greater of two numbers.
func greatest(a, b string) string {
	x, _ := strconv.ParseFloat(a, 64)
	y, _ := strconv.ParseFloat(b, 64)
	if y > x {
		return b
	}
	return a
}

// addNumbers adds two numbers; if one isn't a number it returns x.
func addNumbers(x, y string) string {
	p, err := strconv.ParseInt(x, 10, 64)
	q, err2 := strconv.ParseInt(y, 10, 64)
	if err == nil && err2 == nil {
		return strconv.FormatInt(p+q, 10)
	}
	f, err := strconv.ParseFloat(x, 64)
	g, err2 := strconv.ParseFloat(y, 64)
	if err != nil || err2 != nil {
		return x
	}
	return strconv.FormatFloat(f+g, 'f', 2, 64)
}

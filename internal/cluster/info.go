package cluster

// INFO of several masters.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
			if text, ok := textOf(raw); ok {
				if len(texts) == 0 {
					from, kind = nodes[i].addr, raw[0]
				}
				texts = append(texts, text)
			}
		}
		if len(texts) == 0 {
			return failureOf(replies)
		}
		return textReply(kind, joinInfo(texts, from))
	})
}

// joinInfo is one INFO out of those of several masters, of which the first is at from.
func joinInfo(texts []string, from string) string {
	others := map[string][]string{} // the lines of the other masters, by the heading of a section
	for _, text := range texts[1:] {
		for _, lines := range infoSections(text) {
			others[lines[0]] = append(others[lines[0]], lines[1:]...)
		}
	}
	said := false
	var joined []string
	for _, lines := range infoSections(texts[0]) {
		title, _ := strings.CutPrefix(strings.ToLower(lines[0]), "# ")
		switch {
		case summedSections[title]:
			lines = sumLines(lines, others[lines[0]])
		case !said:
			said = true
			lines = slices.Insert(lines, 1, "info_node:"+from, fmt.Sprint("info_masters:", len(texts)))
		}
		joined = append(joined, strings.Join(lines, "\r\n")+"\r\n")
	}
	return strings.Join(joined, "\r\n")
}

// infoSections is the lines of each section of an INFO, of which the first is the heading.
func infoSections(text string) (sections [][]string) {
	for line := range strings.SplitSeq(text, "\r\n") {
		if strings.HasPrefix(line, "# ") {
			sections = append(sections, []string{line})
		} else if last := len(sections) - 1; line != "" && last >= 0 {
			sections[last] = append(sections[last], line)
		}
	}
	return sections
}

// sumLines adds the lines of other masters to those with the same names.
func sumLines(lines, more []string) []string {
	at := map[string]int{}
	for i, line := range lines {
		name, _, _ := strings.Cut(line, ":")
		at[name] = i
	}
	for _, line := range more {
		name, value, _ := strings.Cut(line, ":")
		i, known := at[name]
		if !known {
			at[name] = len(lines)
			lines = append(lines, line)
			continue
		}
		before := strings.TrimPrefix(lines[i], name+":")
		if strings.Contains(name, "max") || strings.HasPrefix(name, "latest") {
			lines[i] = name + ":" + greatest(before, value)
		} else {
			lines[i] = name + ":" + sumValues(before, value)
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

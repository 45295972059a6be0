package main

import (
	"fmt"
	"strings"

	"lockproxy/cmd/lockbench/chart"
)

// colorOf keeps what is compared in the same colour in all figures.
func colorOf(name string) chart.Color {
	for prefix, color := range map[string]chart.Color{
		viaLockproxy: chart.Blue, "LOCK": chart.Blue, viaHAProxy: chart.Orange,
		"SETNX": chart.Orange, viaTwemproxy: chart.Green, "rueidislock": chart.Green,
	} {
		if strings.HasPrefix(name, prefix) {
			return color
		}
	}
	return chart.Plain
}

// byWays names the cases of workloads, each of which is run in several ways.
func byWays[W any](workloads []W, ways []string) (names []string) {
	for _, w := range workloads {
		for _, way := range ways {
			names = append(names, fmt.Sprintf("%v, %s", w, way))
		}
	}
	return names
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

// thousands writes a number with commas.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func inBytes(n int) string {
	if n >= 1<<10 {
		return fmt.Sprintf("%d KB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

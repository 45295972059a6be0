package main

import (
	"os"
	"testing"
	"time"
)

func TestParseCPU(t *testing.T) {
	stat := "4711 (a (strange) name) S 1 4711 4711 0 -1 4194560 1000 0 0 0 150 27 0 0 20 0 9 0 " +
		"100 1000000 500 18446744073709551615\n"
	got, err := parseCPU([]byte(stat))
	if err != nil || got != 1770*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "1 (x) S 1 2",
		"1 (x) S 1 4711 4711 0 -1 4194560 1000 0 0 0 many 27 0"} {
		if got, err := parseCPU([]byte(bad)); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestParseResident(t *testing.T) {
	got, err := parseResident("Name:\tredis-server\nVmHWM:\t   99999 kB\nVmRSS:\t    8124 " +
		"kB\nRssAnon:\t    1 kB\n")
	if err != nil || got != 8124<<10 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "VmHWM:\t 1 kB\n", "VmRSS:\t much kB\n"} {
		if got, err := parseResident(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestProcess(t *testing.T) {
	p := process{os.Getpid()}
	files, err := p.files()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if more, err := p.files(); err != nil || more != files+1 {
		t.Errorf("%d files, with one more open %d: %v", files, more, err)
	}
	resident, err := p.resident()
	if err != nil || resident < 1<<20 {
		t.Errorf("%d bytes resident: %v", resident, err)
	}
	for { // ends once its work has used some
		if used, err := p.cpu(); err != nil {
			t.Fatal(err)
		} else if used > 0 {
			return
		}
	}
}

func TestParseMachineCPU(t *testing.T) {
	for stat, want := range map[string]time.Duration{
		"cpu  100 20 3 9999 50 60 70 4 0 0\ncpu0 1 1 1 1\n": 1270 * time.Millisecond,
		"intr 1 2 3\n": 0,
		"":             0,
	} {
		if got := parseMachineCPU(stat); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
}

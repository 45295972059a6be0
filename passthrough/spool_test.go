package passthrough

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// A spool gives back what it was given, in order, in memory and beyond.
func TestSpoolAgainstModel(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	source := make([]byte, 4*spoolMemory)
	rand.NewChaCha8([32]byte{}).Read(source)
	rapid.Check(t, func(t *rapid.T) {
		var s spool
		var model []byte
		buf := make([]byte, rapid.IntRange(1, spoolMemory).Draw(t, "buffer"))
		defer s.clear()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "append") {
				from := rapid.IntRange(0, len(source)).Draw(t, "from")
				b := source[from:rapid.IntRange(from, min(len(source), from+2*spoolMemory)).Draw(t, "to")]
				if err := s.append(b); err != nil {
					t.Fatal(err)
				}
				model = append(model, b...)
			} else if got, err := s.take(buf); err != nil || len(got) > len(model) || !bytes.Equal(got, model[:len(got)]) || len(got) == 0 && len(model) > 0 {
				t.Fatalf("took %d bytes, %v; %d are there", len(got), err, len(model))
			} else {
				model = model[len(got):]
			}
			if s.len() != int64(len(model)) || len(s.mem) > spoolMemory {
				t.Fatalf("%d bytes, %d in memory; want %d", s.len(), len(s.mem), len(model))
			}
		}
	})
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("files stay behind: %q, %v", left, err)
	}
}

// The memory and the file go with what was in them, and there is a limit.
func TestSpoolBounds(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var s spool
	if err := s.append(make([]byte, spoolMemory)); err != nil || s.file != nil {
		t.Fatalf("what fits into memory: %v", err)
	}
	if err := s.append(make([]byte, 1)); err != nil || s.file == nil {
		t.Fatalf("a byte more: %v", err)
	}
	s.write += maxSpool - s.len() // as if so much had been written
	if err := s.append(make([]byte, 1)); err == nil {
		t.Error("it has no limit")
	}
	if s.clear(); s.len() != 0 || s.file != nil {
		t.Error("clear leaves something")
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "not there"))
	if err := s.append(make([]byte, spoolMemory+1)); err == nil {
		t.Error("no room for a file is no error")
	}
}

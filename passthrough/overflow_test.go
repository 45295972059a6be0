//go:build !race

package passthrough

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// put is append, and the spill that follows.
func (o *overflow) put(b []byte) error {
	if err := o.append(b); err != nil {
		return err
	}
	return o.spillAll()
}

func (o *overflow) spillAll() error {
	job, due := o.beginSpill()
	if !due {
		return nil
	}
	job.write()
	return o.endSpill(job)
}

// take is next, after the spill that it waits for, and the reading of the file.
func (o *overflow) take(buf []byte) ([]byte, error) {
	defer o.written()
	b, from := o.next()
	if b == nil && from == nil {
		if err := o.spillAll(); err != nil {
			return nil, err
		}
		b, from = o.next()
	}
	if from == nil {
		return b, nil
	}
	n, err := from.file.ReadAt(buf[:min(int64(len(buf)), from.n)], from.at)
	if n > 0 {
		err = nil
	}
	if unused := o.hasRead(n); unused != nil {
		unused.Close()
	}
	return buf[:n], err
}

// empty is clear, and the end of the file.
func (o *overflow) empty() {
	if file := o.clear(); file != nil {
		file.Close()
	}
}

// An overflow gives back what it was given, in order, in memory and beyond.
func TestOverflowAgainstModel(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	source := make([]byte, 4*overflowMemory)
	rand.NewChaCha8([32]byte{}).Read(source)
	rapid.Check(t, func(t *rapid.T) {
		o := overflow{all: &unreadTotal{limit: 1 << 30}, openFile: unnamedFile}
		var model []byte
		buf := make([]byte, rapid.IntRange(1, overflowMemory).Draw(t, "buffer"))
		defer o.empty()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			what := rapid.IntRange(0, 2).Draw(t, "what")
			if what == 0 {
				if err := o.spillAll(); err != nil {
					t.Fatal(err)
				}
			} else if what == 1 {
				from := rapid.IntRange(0, len(source)).Draw(t, "from")
				b := source[from:rapid.IntRange(from,
					min(len(source), from+2*overflowMemory)).Draw(t, "to")]
				if err := o.append(b); err != nil {
					t.Fatal(err)
				}
				model = append(model, b...)
			} else if got, err := o.take(buf); err != nil || len(got) > len(model) ||
				!bytes.Equal(got, model[:len(got)]) || len(got) == 0 && len(model) > 0 {
				t.Fatalf("took %d bytes, %v; %d are there", len(got), err, len(model))
			} else {
				model = model[len(got):]
			}
			if o.len() != int64(len(model)) || len(o.mem) > overflowMemory {
				t.Fatalf("%d bytes, %d in memory; want %d", o.len(), len(o.mem), len(model))
			}
		}
	})
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("files stay behind: %q, %v", left, err)
	}
}

// The memory and the file go with what was in them, and there is a limit.
func TestOverflowBounds(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o := overflow{all: &unreadTotal{limit: 1 << 40}, openFile: unnamedFile}
	if err := o.put(make([]byte, overflowMemory)); err != nil || o.file != nil {
		t.Fatalf("what fits into memory: %v", err)
	}
	if err := o.put(make([]byte, 1)); err != nil || o.file == nil {
		t.Fatalf("a byte more: %v", err)
	}
	o.writeAt += maxOverflow - o.len() // as if so much had been written
	if err := o.put(make([]byte, 1)); err == nil {
		t.Error("it has no limit")
	}
	if o.empty(); o.len() != 0 || o.file != nil {
		t.Error("clear leaves something")
	}
}

// What all clients leave unread together has a limit, and a client that reads makes room again.
func TestOverflowsShareALimit(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	all := &unreadTotal{limit: 4 * overflowMemory}
	a, b := overflow{all: all, openFile: unnamedFile}, overflow{all: all, openFile: unnamedFile}
	if err := a.put(make([]byte, 3*overflowMemory)); err != nil {
		t.Fatal(err)
	}
	if err := b.put(make([]byte, 2*overflowMemory)); err == nil {
		t.Error("more than there is room for was taken")
	}
	b.empty()
	if err := b.put(make([]byte, overflowMemory+1)); err == nil &&
		all.inFiles.Load() > all.limit {
		t.Error("more than there is room for was taken")
	}
	b.empty()
	a.empty()
	if got := all.inFiles.Load(); got != 0 {
		t.Errorf("%d bytes are still counted", got)
	}
	if err := b.put(make([]byte, 4*overflowMemory)); err != nil {
		t.Errorf("room that was given back: %v", err)
	}
	b.empty()
}

// Where no file can be made, memory takes its place, up to a bound for all clients.
func TestOverflowsWithoutFiles(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "not there"))
	all := &unreadTotal{limit: 1 << 30}
	a, b := overflow{all: all, openFile: unnamedFile}, overflow{all: all, openFile: unnamedFile}
	if err := a.put(make([]byte, maxInMemory-overflowMemory)); err != nil {
		t.Fatal(err)
	}
	if err := b.put(make([]byte, 2*overflowMemory)); err == nil {
		t.Error("more than there is memory for was taken")
	}
	if got, err := a.take(nil); err != nil || len(got) != maxInMemory-overflowMemory ||
		all.inMemory.Load() != 0 {
		t.Errorf("took %d bytes, %v; %d are still counted", len(got), err, all.inMemory.Load())
	}
	if err := b.put(make([]byte, 2*overflowMemory)); err != nil {
		t.Error(err)
	}
	b.empty()
	if got := all.inMemory.Load(); got != 0 {
		t.Errorf("%d bytes are still counted", got)
	}
}

// Where no file can be made, what is being written to a client counts as kept in memory until it
// has been written: others are given no room for it.
func TestWhatIsBeingWrittenIsInMemory(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "not there"))
	all := &unreadTotal{limit: 1 << 30}
	a, b := overflow{all: all, openFile: unnamedFile}, overflow{all: all, openFile: unnamedFile}
	if err := a.put(make([]byte, maxInMemory-overflowMemory)); err != nil {
		t.Fatal(err)
	}
	a.next()
	if err := b.put(make([]byte, 2*overflowMemory)); err == nil {
		t.Error("more than there is memory for was taken while the rest was being written")
	}
	b.empty()
	if a.written(); all.inMemory.Load() != 0 {
		t.Errorf("%d bytes are still counted", all.inMemory.Load())
	}
}

// What an event loop reads at once is kept in memory.
func TestOverflowOfOneRead(t *testing.T) {
	o := overflow{all: &unreadTotal{limit: 1 << 30}, openFile: unnamedFile}
	defer o.empty()
	if err := o.put(make([]byte, loopBuf)); err != nil || o.file != nil {
		t.Errorf("a file is made (%v)", err)
	}
}

// What comes behind the file's last bytes is taken while the file is read: an empty overflow keeps
// neither the file nor what is counted for it.
func TestEmptyOverflowKeepsNoFile(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o := overflow{all: &unreadTotal{limit: 1 << 30}, openFile: unnamedFile}
	defer o.empty()
	large := make([]byte, 2*overflowMemory)
	if err := o.put(large); err != nil {
		t.Fatal(err)
	}
	_, from := o.next()
	if err := o.append([]byte("behind")); err != nil {
		t.Fatal(err)
	}
	if unused := o.hasRead(int(from.n)); unused != nil {
		t.Fatal("it is empty before all is taken")
	}
	got, err := o.take(large)
	if string(got) != "behind" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if o.len() != 0 || o.file != nil || o.all.inFiles.Load() != 0 {
		t.Errorf("%d bytes are left, a file %v, %d bytes are counted", o.len(), o.file != nil,
			o.all.inFiles.Load())
	}
}

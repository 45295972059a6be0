package virtualtest

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"io"
	"maps"

	"github.com/alicebob/miniredis/v2/server"
)

// unparsed answers SCRIPT LOAD, and has miniredis load a script when it is first asked for by its
// name: it parses what it loads, each time, and most scripts that a proxy loads are not run in the
// same test. It is called before each command.
func (s *Store) unparsed(
	serving *server.Server, client *server.Peer, name string, args []string,
) (done bool) {
	s.mu.Lock()
	first := map[string]string{} // to be parsed now
	switch {
	case name == "EVALSHA" && len(args) > 0:
		if text, ok := s.scripts[args[0]]; ok {
			first[args[0]] = text
		}
	case name != "SCRIPT" || len(args) == 0:
	case args[0] == "FLUSH":
		clear(s.scripts)
	case args[0] == "LOAD" && len(args) == 2:
		sum := sha1.Sum([]byte(args[1]))
		sha := hex.EncodeToString(sum[:])
		s.scripts[sha] = args[1]
		client.WriteBulk(sha)
		done = true
	default:
		maps.Copy(first, s.scripts)
	}
	s.mu.Unlock() // miniredis holds its own lock when a script's commands come here
	for sha, text := range first {
		loader := server.NewPeer(bufio.NewWriter(io.Discard))
		loader.ClientName = loaderName
		serving.Dispatch(loader, []string{"SCRIPT", "LOAD", text})
		s.mu.Lock()
		delete(s.scripts, sha) // not before: others ask for it meanwhile
		s.mu.Unlock()
	}
	return done
}

// loaderName is how the store knows what unparsed asks for, which is not counted.
const loaderName = "virtualtest"

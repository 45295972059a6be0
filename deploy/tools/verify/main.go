// Command verify looks at what deploy has for others, by the libraries of those that read it. It
// takes neither a container engine nor a cluster, and is a module of its own, since lockproxy needs
// none of these libraries.
//
//	verify manifests FILE…                    Kubernetes manifests, as the API server reads them
//	verify containers DOCKERFILE COMPOSE_FILE  as BuildKit and docker compose read them
package main

import (
	"fmt"
	"os"
)

func main() {
	files := os.Args[min(2, len(os.Args)):]
	switch {
	case len(files) > 0 && os.Args[1] == "manifests":
		for _, name := range files {
			verify(name, verifyManifests)
		}
	case len(files) == 2 && os.Args[1] == "containers":
		verify(files[0], verifyDockerfile)
		verify(files[1], verifyCompose)
	default:
		fmt.Fprintln(os.Stderr, "usage: verify manifests FILE…, verify containers DOCKERFILE "+
			"COMPOSE_FILE")
		os.Exit(2)
	}
}

// verify ends the program if a file is not as it should be.
func verify(name string, by func(name string) error) {
	if err := by(name); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

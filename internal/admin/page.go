package admin

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed page
var pageFiles embed.FS

// servePage serves the live page and nothing that isn't part of it.
func servePage(mux *http.ServeMux) {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // embedded above
	}
	server := http.FileServerFS(files)
	mux.Handle("GET /{$}", server)
	for _, name := range []string{"page.css", "page.js", "plot.js", "lock.js", "icon.svg"} {
		mux.Handle("GET /"+name, server)
	}
}

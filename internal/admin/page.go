package admin

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed page
var pageFiles embed.FS

// servePage serves the files of the live page.
func servePage(mux *http.ServeMux) {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // embedded above
	}
	names, err := fs.Glob(files, "*")
	if err != nil {
		panic(err)
	}
	server := http.FileServerFS(files)
	mux.Handle("GET /{$}", server)
	for _, name := range names {
		if name != "index.html" { // it is at / only
			mux.Handle("GET /"+name, server)
		}
	}
}

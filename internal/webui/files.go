package webui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// dist is what "make ui" builds from web/. It is committed, so that Go alone builds a manager with its page.
//
//go:embed all:dist
var dist embed.FS

// file is one of the page.
type file struct {
	plain, packed []byte
	kind          string // of its content
	tag           string
	forever       bool // its name changes with its content
}

// files are those of the page, by path.
type files map[string]*file

// newFiles reads all files below dist, and packs them once.
func newFiles(from fs.FS) (files, error) {
	all := files{}
	err := fs.WalkDir(from, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		plain, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(plain)
		name = strings.TrimPrefix(name, "dist/")
		all[Root+name] = &file{
			plain: plain, packed: pack(plain), kind: mime.TypeByExtension(path.Ext(name)),
			tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, forever: strings.HasPrefix(name, "assets/"),
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the files of the web page: %w", err)
	}
	if all[Root] = all[Root+"index.html"]; all[Root] == nil {
		return nil, fmt.Errorf("the web page has no index.html: run make ui")
	}
	return all, nil
}

func pack(plain []byte) []byte {
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is known
	w.Write(plain)                                             //nolint:errcheck // a Buffer takes all
	w.Close()
	return packed.Bytes()
}

// ServeHTTP serves one of them.
func (all files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := all[r.URL.Path]
	if f == nil {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "no-cache")
	if f.forever {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	header.Set("ETag", f.tag)
	header.Set("Vary", "Accept-Encoding")
	header.Set("Content-Type", f.kind)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	content := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		content = f.packed
	}
	header.Set("Content-Length", fmt.Sprint(len(content)))
	w.Write(content) //nolint:errcheck // the client is gone
}

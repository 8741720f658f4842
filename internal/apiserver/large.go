package apiserver

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/limits"
)

// isLarge says whether a request of that size, negative where it does not tell it, is, or may become, one of those that
// few are taken of at once. It reads the body of one that it can't tell of otherwise, and leaves it there to be read.
func isLarge(r *http.Request, procedure string, size int64) bool {
	b := limits.Of(procedure)
	if strings.HasPrefix(procedure, "/"+weirv1connect.SyncServiceName+"/") { // of nodes, whose number of messages has its reasons
		return b.Large() && (size < 0 || size > limits.LargeBytes || packed(r))
	}
	switch {
	case b.Messages <= limits.LargeMessages:
		return false
	case size > limits.LargeBytes || packed(r):
		return true
	case size >= 0 && size <= limits.MinMessage*limits.LargeMessages:
		return false
	}
	head := 0
	kind := r.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "application/grpc") {
		head = limits.MessageHead
	}
	// What fails is read again by who parses it, and fails there.
	begin, _ := io.ReadAll(io.LimitReader(r.Body, int64(head)+limits.LargeBytes+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), r.Body), r.Body}
	message := begin[min(head, len(begin)):]
	if len(message) > limits.LargeBytes {
		return true
	}
	json := strings.Contains(kind, "json") || strings.HasPrefix(r.URL.Path, restRoot)
	return limits.Weight(message, json, limits.InputOf(procedure)) > limits.LargeMessages
}

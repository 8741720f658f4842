package apiserver

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/limits"
)

// isLarge says whether a request of that size, negative where it does not tell it, is, or may become, one of those that
// few are taken of at once. It reads the body of one that it can't tell of otherwise, and leaves it there to be read.
func isLarge(r *http.Request, kind limits.Kind, procedure string, size int64) bool {
	b := limits.Of(procedure)
	if ofNode(kind) && strings.HasPrefix(procedure, "/"+weirv1connect.SyncServiceName+"/") { // whose number of messages has its reasons
		return b.Large() && (size < 0 || size > limits.LargeBytes || packed(r))
	}
	switch {
	case b.Messages <= limits.LargeMessages:
		return false
	case size > limits.LargeBytes:
		return true
	case size >= 0 && size <= limits.MinMessage*limits.LargeMessages && !packed(r):
		return false
	}
	message, whole := peek(r)
	if !whole {
		return true
	}
	json := strings.Contains(contentType(r), "json") || strings.HasPrefix(r.URL.Path, restRoot)
	return limits.Weight(message, json, limits.InputOf(procedure)) > limits.LargeMessages
}

func ofNode(kind limits.Kind) bool {
	return kind == limits.Mux || kind == limits.Host || kind == limits.Switch
}

// peek reads the message of a request, unpacked, and leaves the body there to be read. It is not whole if it has more than
// limits.LargeBytes, or can't be unpacked. What fails is read again by who parses it, and fails there.
func peek(r *http.Request) (message []byte, whole bool) {
	head := 0
	if isGRPC(r) {
		head = limits.MessageHead
	}
	begin, _ := io.ReadAll(io.LimitReader(r.Body, int64(head)+limits.LargeBytes+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), r.Body), r.Body}
	message = begin[min(head, len(begin)):]
	if packed(r) && len(begin) > 0 && (head == 0 || begin[0]&1 == 1) { // gRPC packs each message, or not
		plain, err := gzip.NewReader(bytes.NewReader(message))
		if err != nil {
			return nil, false
		}
		message, _ = io.ReadAll(io.LimitReader(plain, limits.LargeBytes+1))
	}
	return message, len(message) <= limits.LargeBytes
}

// contentType is that of a request, as package connect reads it: without parameters, in lower case.
func contentType(r *http.Request) string {
	name, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return strings.ToLower(r.Header.Get("Content-Type"))
	}
	return name
}

func isGRPC(r *http.Request) bool { return strings.HasPrefix(contentType(r), "application/grpc") }

package rpc

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/iotest"
)

// A message that is streamed leaves in one piece with its envelope, whatever pieces it was written in; what has a length
// is left alone.
func TestMessagesLeaveWhole(t *testing.T) {
	one, two := []byte("\x00\x00\x00\x00\x03abc"), []byte("\x00\x00\x00\x00\x00")
	body := io.NopCloser(iotest.OneByteReader(bytes.NewReader(append(append(bytes.Clone(one), two...), one...))))
	r, err := http.NewRequest(http.MethodPost, "http://m", body)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = -1
	sent := coalesceMessages(r)
	if r.Body != body {
		t.Error("the caller's request was written to")
	}
	buffer := make([]byte, 100)
	for i, want := range [][]byte{one, two, one} {
		if n, err := sent.Body.Read(buffer); err != nil || !bytes.Equal(buffer[:n], want) {
			t.Errorf("message %d: %q, %v", i, buffer[:n], err)
		}
	}
	if n, err := sent.Body.Read(buffer); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d bytes, %v", n, err)
	}

	r.ContentLength, r.Body = 8, io.NopCloser(bytes.NewReader(one))
	if coalesceMessages(r) != r {
		t.Error("a request with a length was wrapped")
	}

	// What reads with little room has all of it too.
	r.ContentLength, r.Body = -1, io.NopCloser(bytes.NewReader(append(bytes.Clone(one), one...)))
	all, err := io.ReadAll(iotest.OneByteReader(coalesceMessages(r).Body))
	if err != nil || len(all) != 2*len(one) {
		t.Errorf("byte by byte: %q, %v", all, err)
	}
}

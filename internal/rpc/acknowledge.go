package rpc

import (
	"context"
	"encoding/binary"
	"io"
	"net/http"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// Acknowledgements are a call that lasts, by which a mux tells which generations it runs.
type Acknowledgements = connect.ClientStreamForClientSimple[weirv1.AcknowledgeMuxRequest, weirv1.AcknowledgeMuxResponse]

// Acknowledger makes that call when there is something to tell, and anew when it ended. It is for one goroutine.
type Acknowledger struct {
	Name string // of the mux
	Open func(context.Context) (*Acknowledgements, error)

	stream *Acknowledgements
	end    context.CancelFunc
}

// Send tells a generation, and the one that runs but for what waits for long prefix lists. When it fails, the manager
// may not have heard of those before either.
func (a *Acknowledger) Send(ctx context.Context, generation, ahead uint64) error {
	if a.stream == nil {
		ctx, end := context.WithCancel(ctx)
		stream, err := a.Open(ctx)
		if err != nil {
			end()
			return translate(err)
		}
		a.stream, a.end = stream, end
	}
	err := a.stream.Send(&weirv1.AcknowledgeMuxRequest{Name: a.Name, Generation: generation, Ahead: ahead})
	if err == nil {
		return nil
	}
	if _, reason := a.stream.CloseAndReceive(); reason != nil {
		err = reason
	}
	a.Close()
	return translate(err)
}

// Close ends the call, if there is one.
func (a *Acknowledger) Close() {
	if a.stream != nil {
		a.end()
		a.stream = nil
	}
}

// coalesceMessages has each message of a call that streams leave as one frame of HTTP/2: package connect writes what
// stands before a message by itself.
func coalesceMessages(r *http.Request) *http.Request {
	if r.Body == nil || r.ContentLength >= 0 {
		return r
	}
	r = r.WithContext(r.Context()) // a copy, as a RoundTripper must not write to it
	r.Body = &coalescingBody{ReadCloser: r.Body}
	return r
}

// coalescingBody reads messages, each with the envelope before it.
type coalescingBody struct {
	io.ReadCloser

	envelope [5]byte // flags, and the size of the message
	head     []byte  // of the envelope, what was not read yet
	left     int     // likewise, of the message
}

// Read reads a message, or a part of it where p has no room for all.
func (m *coalescingBody) Read(p []byte) (n int, err error) {
	if len(m.head) == 0 && m.left == 0 {
		if _, err := io.ReadFull(m.ReadCloser, m.envelope[:]); err != nil {
			return 0, err
		}
		m.head, m.left = m.envelope[:], int(binary.BigEndian.Uint32(m.envelope[1:]))
	}
	n = copy(p, m.head)
	m.head = m.head[n:]
	more, err := io.ReadFull(m.ReadCloser, p[n:min(len(p), n+m.left)])
	m.left -= more
	return n + more, err
}

package apiserver

import (
	"net/http"
	"sync"
	"time"
)

// DefaultSlowReader bounds how long a client may read nothing of what is written to it.
const DefaultSlowReader = 30 * time.Second

// watchedWriter notes the status of an answer, and ends one that its client does not read.
type watchedWriter struct {
	http.ResponseWriter

	slow time.Duration // that a write may last
	code int
}

// Unwrap is for http.ResponseController.
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
func (w *watchedWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// maxWrite is how much of an answer is written in the time of one write, in bytes: a slow reader of a long answer is cut off
// only if it takes less.
const maxWrite = 256 << 10

func (w *watchedWriter) Write(data []byte) (n int, err error) {
	for {
		written, err := w.writePart(data[n:min(len(data), n+maxWrite)])
		if n += written; err != nil || n == len(data) {
			return n, err
		}
	}
}

// writePart writes within the time of one write.
func (w *watchedWriter) writePart(data []byte) (n int, err error) {
	defer w.bound()()
	return w.ResponseWriter.Write(data)
}

// Flush sends what was written.
func (w *watchedWriter) Flush() {
	defer w.bound()()
	http.NewResponseController(w.ResponseWriter).Flush() // the next write tells
}

// bound bounds the time of one write. In between there is none. The connection's own deadline is set only when
// that time is over: to set it and to take it back wakes who serves the connection, six times for each message.
func (w *watchedWriter) bound() (done func()) {
	var mu sync.Mutex
	written := false
	timer := time.AfterFunc(w.slow, func() {
		mu.Lock()
		defer mu.Unlock()
		if !written {
			http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(-time.Second)) //nolint:errcheck // not all writers have one
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		written = true
	}
}

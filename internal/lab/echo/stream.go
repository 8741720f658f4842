package echo

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
)

// How a client asks for a stream: an HTTP request to upgrade. From then on both sides send Pattern, the
// server as many bytes as it got.
const (
	StreamPath     = "/stream"
	StreamProtocol = "weir-stream"
)

const streamBuffer = 2 << 10

func stream(w http.ResponseWriter, r *http.Request, backend string) {
	if r.Header.Get("Upgrade") != StreamProtocol {
		http.Error(w, "must ask to upgrade to "+StreamProtocol, http.StatusUpgradeRequired)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n",
		StreamProtocol, BackendHeader, backend)
	if err == nil {
		_ = answerStream(buffered, conn) // the client sees how it ended
	}
}

// answerStream sends as many bytes of Pattern as it gets. It ends with the first that is wrong.
func answerStream(from io.Reader, conn net.Conn) error {
	var due, sent Pattern
	in, want := make([]byte, streamBuffer), make([]byte, streamBuffer)
	for {
		n, err := from.Read(in)
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(&due, want[:n]); err != nil {
			return err
		}
		if !bytes.Equal(in[:n], want[:n]) {
			return fmt.Errorf("answer stream of %s: wrong bytes", conn.RemoteAddr())
		}
		if _, err := io.CopyN(conn, &sent, int64(n)); err != nil {
			return err
		}
	}
}

package manager

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/trust"
)

// wireCaller calls managers by gRPC and REST over HTTP/2, and sees their answers as they are.
type wireCaller struct {
	token  string // bearer token; empty: none
	client *http.Client
}

// newWireCaller shows the credential, or none if it is nil, and the bearer token, if there is one.
func newWireCaller(t *testing.T, m *Manager, credential *trust.Credential, token string) wireCaller {
	t.Helper()
	config := trust.ClientTLS(m.identity.Authority().Certificate, func() *trust.Credential { return credential }, time.Now)
	transport := &http.Transport{TLSClientConfig: config, Protocols: &http.Protocols{}}
	transport.Protocols.SetHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return wireCaller{token: token, client: &http.Client{Transport: transport}}
}

func (c wireCaller) do(ctx context.Context, t *testing.T, method, url, kind string, body []byte) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return answer
}

// call makes one call by gRPC, of any kind of streaming, with one request.
func (c wireCaller) call(ctx context.Context, t *testing.T, url, procedure string, request proto.Message) *http.Response {
	t.Helper()
	message, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return c.do(ctx, t, http.MethodPost, url+procedure, "application/grpc+proto", append(body, message...))
}

// grpcAnswer is how a call by gRPC went: whether a message came, and, if none did or all are read, its status.
type grpcAnswer struct {
	message bool
	code    connect.Code // 0: ok
	reason  string
}

// firstOf reads an answer of gRPC up to the head of its first message.
func firstOf(answer *http.Response) grpcAnswer {
	if _, err := io.ReadFull(answer.Body, make([]byte, limits.MessageHead)); err == nil {
		return grpcAnswer{message: true}
	}
	return statusOf(answer)
}

// endOf reads an answer of gRPC to its end.
func endOf(answer *http.Response) grpcAnswer {
	io.Copy(io.Discard, answer.Body) // the status tells
	return statusOf(answer)
}

func statusOf(answer *http.Response) grpcAnswer {
	for _, h := range []http.Header{answer.Header, answer.Trailer} {
		if status := h.Get("Grpc-Status"); status == "0" {
			return grpcAnswer{}
		} else if status != "" {
			code, err := strconv.ParseUint(status, 10, 32)
			if err != nil {
				return grpcAnswer{code: connect.CodeUnknown, reason: "the status " + status}
			}
			return grpcAnswer{code: connect.Code(code), reason: h.Get("Grpc-Message")}
		}
	}
	return grpcAnswer{code: connect.CodeUnknown, reason: "no status of gRPC came"}
}

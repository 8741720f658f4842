package probe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/internal/model"
)

// messageLimit bounds the message of an answer, which is a few bytes long.
const messageLimit = 4096

// askHealth calls grpc.health.v1.Health/Check as the one stream of a connection. A client of gRPC is not used: it would
// resolve, balance, retry and start goroutines, all of which a check must not.
func askHealth(conn net.Conn, service, authority string, secure bool) error {
	limited := &io.LimitedReader{R: conn, N: answerLimit}
	framer := http2.NewFramer(conn, limited)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = answerLimit
	framer.SetMaxReadFrameSize(16 << 10) // what a server may send, as nothing else was agreed on
	if err := sendCheck(conn, framer, service, authority, secure); err != nil {
		return err
	}
	answer, err := readAnswer(framer)
	switch {
	case err == nil:
		return answer.verdict()
	case limited.N == 0:
		return fmt.Errorf("answer is longer than %d bytes", answerLimit)
	case errors.Is(err, http2.ErrFrameTooLarge):
		return errors.New("the server speaks no HTTP/2")
	}
	return err
}

func sendCheck(conn io.Writer, framer *http2.Framer, service, authority string, secure bool) error {
	message, err := proto.Marshal(&healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return err
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	var head bytes.Buffer
	fields := hpack.NewEncoder(&head)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", scheme},
		{":path", healthpb.Health_Check_FullMethodName},
		{":authority", authority},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"user-agent", "weir-agent"},
	} {
		if err := fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) // not compressed
	_, err = io.WriteString(conn, http2.ClientPreface)
	return errors.Join(err,
		framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}),
		framer.WriteData(1, true, append(frame, message...)))
}

// healthAnswer is what a server said.
type healthAnswer struct {
	httpStatus, grpcStatus, grpcMessage string
	message                             []byte
}

// readAnswer reads frames until the stream ends.
func readAnswer(framer *http2.Framer) (answer healthAnswer, err error) {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return answer, err
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = framer.WritePing(true, f.Data)
			}
		case *http2.GoAwayFrame:
			if f.LastStreamID < 1 {
				err = fmt.Errorf("the server ended the connection: %s", f.ErrCode)
			}
		case *http2.RSTStreamFrame:
			err = fmt.Errorf("the server reset the stream: %s", f.ErrCode)
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				answer.note(field.Name, field.Value)
			}
		case *http2.DataFrame:
			if answer.message = append(answer.message, f.Data()...); len(answer.message) > messageLimit {
				err = fmt.Errorf("answer's message is longer than %d bytes", messageLimit)
			}
		}
		if err != nil {
			return answer, err
		}
		if frame.Header().StreamID == 1 && isEnd(frame) {
			return answer, nil
		}
	}
}

func isEnd(frame http2.Frame) bool {
	ends, is := frame.(interface{ StreamEnded() bool })
	return is && ends.StreamEnded()
}

func (a *healthAnswer) note(name, value string) {
	switch name {
	case ":status":
		a.httpStatus = value
	case "grpc-status":
		a.grpcStatus = value
	case "grpc-message":
		a.grpcMessage = value
	}
}

// verdict says why the answer is not that the service serves.
func (a healthAnswer) verdict() error {
	if a.httpStatus != "200" {
		return fmt.Errorf("status %s", a.httpStatus)
	}
	if a.grpcStatus != "0" {
		return a.refusal()
	}
	const prefix = 5 // whether it is compressed, and how long it is
	if len(a.message) < prefix || a.message[0] != 0 || uint64(binary.BigEndian.Uint32(a.message[1:])) != uint64(len(a.message)-prefix) {
		return errors.New("malformed message")
	}
	var said healthpb.HealthCheckResponse
	if err := proto.Unmarshal(a.message[prefix:], &said); err != nil {
		return errors.New("malformed message")
	}
	if said.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("status %s", said.GetStatus())
	}
	return nil
}

func (a healthAnswer) refusal() error {
	n, err := strconv.ParseUint(a.grpcStatus, 10, 32)
	if err != nil {
		return errors.New("answer has no grpc-status")
	}
	switch code := codes.Code(n); code {
	case codes.NotFound:
		return errors.New("the server does not know the service")
	case codes.Unimplemented:
		return errors.New("the server has no grpc.health.v1.Health")
	default:
		return fmt.Errorf("%s: %s", code, a.grpcMessage)
	}
}

// askedService is how a check of gRPC is named in reasons.
func askedService(check *model.HealthCheck) string {
	if check.Service == "" {
		return "Check"
	}
	return "Check of " + check.Service
}

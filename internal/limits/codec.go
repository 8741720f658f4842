package limits

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Codecs are those of package connect, but count the messages of a request before they parse it. The one of JSON
// refuses a field that it does not know, as REST does: the codec of the package passes a misspelled field over.
func Codecs(atMost int) connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(countedProto{atMost}),
		connect.WithCodec(strictJSON{"json", atMost}), connect.WithCodec(strictJSON{"json; charset=utf-8", atMost}))
}

// countedProto reads and writes the wire format of protobuf.
type countedProto struct{ most int }

// Name is that of the content type.
func (countedProto) Name() string { return "proto" }

// Marshal writes a message.
func (c countedProto) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend writes a message behind what is in a buffer.
func (countedProto) MarshalAppend(buffer []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("write %T: it is no message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(buffer, m)
}

// Unmarshal reads a message.
func (c countedProto) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("read %T: it is no message", message)
	}
	if err := CountWire(data, m.ProtoReflect().Descriptor(), c.most); err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

// strictJSON reads and writes JSON.
type strictJSON struct {
	name string
	most int
}

// Name is that of the content type.
func (c strictJSON) Name() string { return c.name }

// Marshal writes a message.
func (strictJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("write %T: it is no message", message)
	}
	return protojson.Marshal(m)
}

// Unmarshal reads a message.
func (c strictJSON) Unmarshal(text []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("read %T: it is no message", message)
	}
	if err := NewJSON(nil, c.most).Count(text); err != nil {
		return err
	}
	return protojson.Unmarshal(text, m)
}

package rpc

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlb/weir/internal/rpc/bound"
)

// WithCodecs are codecs of package connect that count the messages of a request before they parse it. The one of JSON
// refuses a field that it does not know, as REST does: the codec of the package passes a misspelled field over.
func WithCodecs(atMost int) connect.HandlerOption {
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
	if err := bound.CountWire(data, m.ProtoReflect().Descriptor(), c.most); err != nil {
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
	if err := bound.NewJSON(nil, c.most).Count(text); err != nil {
		return err
	}
	return protojson.Unmarshal(text, m)
}

// Known holds that m and all messages in it have only fields that this program knows. A client that
// is newer than the manager would otherwise get half of what it asked for.
func Known(m proto.Message) error {
	var f fields
	f.known("", m.ProtoReflect())
	return f.Err()
}

func (f *fields) known(path string, m protoreflect.Message) {
	if len(m.GetUnknown()) > 0 {
		f.Refuse(path, "has a field that this manager does not know: is the client newer?")
	}
	if path != "" {
		path += "."
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := path + field.JSONName()
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range v.List().Len() {
				f.known(fmt.Sprintf("%s[%d]", at, i), v.List().Get(i).Message())
			}
		default:
			f.known(at, v.Message())
		}
		return true
	})
}

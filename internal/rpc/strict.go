package rpc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// StrictJSON is a codec of package connect that refuses a field that it does not know, as REST does.
// The codec of the package passes a misspelled field over.
type StrictJSON struct{}

// Name is that of the content type.
func (StrictJSON) Name() string { return "json" }

// Marshal writes a message.
func (StrictJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("write %T: it is no message", message)
	}
	return protojson.Marshal(m)
}

// Unmarshal reads a message.
func (StrictJSON) Unmarshal(text []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("read %T: it is no message", message)
	}
	return protojson.Unmarshal(text, m)
}

// Known holds that m and all messages in it have only fields that this program knows. A client that
// is newer than the manager would otherwise get half of what it asked for.
func Known(m proto.Message) error {
	var f fields
	f.known("", m.ProtoReflect())
	return f.err()
}

func (f *fields) known(path string, m protoreflect.Message) {
	if len(m.GetUnknown()) > 0 {
		f.refuse(path, "has a field that this manager does not know: is the client newer?")
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

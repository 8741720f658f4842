package compile

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Known holds that m and all messages in it have only fields that this program knows. A client that
// is newer than the manager would otherwise get half of what it asked for.
func Known(m proto.Message) error {
	var f Fields
	f.known("", m.ProtoReflect())
	return f.Err()
}

func (f *Fields) known(path string, m protoreflect.Message) {
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

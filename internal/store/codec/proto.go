package codec

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// What users write lies in the store as a message of api/v1: one byte, its schema, and the message in binary form. Of
// fields that are output only, a VIP has its Record.

// SchemaOf is the schema that a message needs.
func SchemaOf(m proto.Message) int {
	vip, _ := m.(*weirv1.VIP)
	for _, e := range vip.GetEndpoints() {
		if len(e.GetAllowLists())+len(e.GetDenyLists()) > 0 {
			return ListsSchema
		}
	}
	return Schema
}

// EncodeMessage encodes m with the fields that a newer manager has set in the message from before; nil: there are none.
func EncodeMessage(was []byte, m proto.Message) (string, error) {
	if was != nil {
		before := m.ProtoReflect().New()
		if err := proto.Unmarshal(was[1:], before.Interface()); err != nil {
			return "", fmt.Errorf("read what is to be replaced: %w", err)
		}
		carryUnknown(before, m.ProtoReflect())
	}
	text, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{byte(SchemaOf(m))}, m)
	return string(text), err
}

// DecodeMessage reads into m what lies under key, and makes the model of it. It says whether there are fields that this
// release does not know.
func DecodeMessage[M proto.Message, T any](key string, data []byte, m M, read func(M) (T, error)) (value T, unknown bool, err error) {
	if len(data) == 0 || data[0] < Schema || data[0] > NewestSchema {
		return value, false, fmt.Errorf("read %s of the store: its schema is %d, this weir-manager knows %d: run a newer one",
			key, append(data, 0)[0], NewestSchema)
	}
	if err = proto.Unmarshal(data[1:], m); err == nil {
		value, err = read(m)
	}
	if err != nil {
		return value, false, fmt.Errorf("read %s of the store: %w", key, err)
	}
	return value, HasUnknown(m.ProtoReflect()), nil
}

// HasUnknown says whether m, or a message in it, has fields that this release does not know.
func HasUnknown(m protoreflect.Message) bool {
	found := len(m.GetUnknown()) > 0
	eachMessage(m, func(_ protoreflect.FieldDescriptor, inner protoreflect.Message) {
		found = found || HasUnknown(inner)
	})
	return found
}

// carryUnknown gives next, and the messages in it, the fields of was that this release does not know.
func carryUnknown(was, next protoreflect.Message) {
	next.SetUnknown(was.GetUnknown())
	before := map[string]protoreflect.Message{}
	eachMessage(was, func(field protoreflect.FieldDescriptor, inner protoreflect.Message) {
		before[messageID(field, inner)] = inner
	})
	eachMessage(next, func(field protoreflect.FieldDescriptor, inner protoreflect.Message) {
		if id := messageID(field, inner); id != "" && before[id] != nil {
			carryUnknown(before[id], inner)
		}
	})
}

// eachMessage calls do with each message in a field of m.
func eachMessage(m protoreflect.Message, do func(field protoreflect.FieldDescriptor, inner protoreflect.Message)) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				do(field, value.List().Get(i).Message())
			}
		default:
			do(field, value.Message())
		}
		return true
	})
}

// messageID is what tells a message in a field from the others of the message that it is in; empty: nothing does.
func messageID(field protoreflect.FieldDescriptor, m protoreflect.Message) (id string) {
	if !field.IsList() {
		return string(field.Name())
	}
	for _, name := range []protoreflect.Name{"name", "protocol", "address", "port"} {
		if part := m.Descriptor().Fields().ByName(name); part != nil {
			id += string(field.Name()) + " " + m.Get(part).String() + " "
		}
	}
	return id
}

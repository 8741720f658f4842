package store

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// What users write lies in the store as a message of api/v1: one byte, its schema, and the message in binary form. Of
// fields that are output only, a VIP has its Record.

// schemaOf is the schema that a message needs.
func schemaOf(m proto.Message) int {
	vip, _ := m.(*weirv1.VIP)
	for _, e := range vip.GetEndpoints() {
		if len(e.GetAllowLists())+len(e.GetDenyLists()) > 0 {
			return listsSchema
		}
	}
	return schema
}

// encodeMessageIn is encodeIn of a message.
func encodeMessageIn(s *State, key string, m proto.Message) (string, error) {
	if err := s.allManagersRead(schemaOf(m)); err != nil {
		return "", err
	}
	return encodeMessage(s.unknown.At(key), m)
}

// encodeMessage encodes m with the fields that a newer manager has set in the message from before; nil: there are none.
func encodeMessage(was []byte, m proto.Message) (string, error) {
	if was != nil {
		before := m.ProtoReflect().New()
		if err := proto.Unmarshal(was[1:], before.Interface()); err != nil {
			return "", fmt.Errorf("read what is to be replaced: %w", err)
		}
		carryUnknown(before, m.ProtoReflect())
	}
	text, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{byte(schemaOf(m))}, m)
	return string(text), err
}

// decodeMessage reads into m what lies under key, and makes the model of it. It says whether there are fields that this
// release does not know.
func decodeMessage[M proto.Message, T any](key string, data []byte, m M, read func(M) (T, error)) (value T, unknown bool, err error) {
	if len(data) == 0 || data[0] < schema || data[0] > newestSchema {
		return value, false, fmt.Errorf("read %s of the store: its schema is %d, this weir-manager knows %d: run a newer one",
			key, append(data, 0)[0], newestSchema)
	}
	if err = proto.Unmarshal(data[1:], m); err == nil {
		value, err = read(m)
	}
	if err != nil {
		return value, false, fmt.Errorf("read %s of the store: %w", key, err)
	}
	return value, hasUnknown(m.ProtoReflect()), nil
}

// hasUnknown says whether m, or a message in it, has fields that this release does not know.
func hasUnknown(m protoreflect.Message) bool {
	found := len(m.GetUnknown()) > 0
	eachMessage(m, func(_ protoreflect.FieldDescriptor, inner protoreflect.Message) {
		found = found || hasUnknown(inner)
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

// vipMessage is vip as it lies in the store.
func vipMessage(vip model.VIP, record Record) *weirv1.VIP {
	m := compile.VIPMessage(vip)
	if !record.Created.IsZero() {
		m.CreateTime = timestamppb.New(record.Created)
	}
	if !record.Updated.IsZero() {
		m.UpdateTime = timestamppb.New(record.Updated)
	}
	m.UpdatedBy = record.By
	return m
}

// recordOf is the Record of a VIP that vipMessage wrote.
func recordOf(m *weirv1.VIP) (record Record) {
	if m.CreateTime != nil {
		record.Created = m.CreateTime.AsTime()
	}
	if m.UpdateTime != nil {
		record.Updated = m.UpdateTime.AsTime()
	}
	record.By = m.GetUpdatedBy()
	return record
}

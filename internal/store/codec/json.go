package codec

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// The schemas of all documents, in one row of numbers. One that names prefix lists is of ListsSchema: a manager that knows
// none must not take it for one that everybody may come to. A manager tells the newest that it knows in its own document.
const (
	Schema       = 1
	ListsSchema  = 2
	NewestSchema = ListsSchema
)

// document is the frame of every value.
type document[T any] struct {
	Schema int `json:"schema"`
	Value  T   `json:"value"`
}

// Encode returns a value as JSON, with its schema.
func Encode[T any](value T) (string, error) {
	data, err := json.Marshal(document[T]{Schema: Schema, Value: value})
	return string(data), err
}

// EncodeOver is Encode with what a newer manager has written into the document from before; nil: nothing.
func EncodeOver[T any](was []byte, value T) (string, error) {
	text, err := Encode(value)
	if err != nil || was == nil {
		return text, err
	}
	next, err := carry(reflect.TypeFor[document[T]](), was, []byte(text))
	return string(next), err
}

// Decode returns the value that lies under a key.
func Decode[T any](key string, data []byte) (T, error) {
	value, _, err := DecodeKnown[T](key, data)
	return value, err
}

// DecodeKnown is Decode, and says whether the document has fields that this release does not know.
func DecodeKnown[T any](key string, data []byte) (value T, unknown bool, err error) {
	var d document[T]
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err = strict.Decode(&d); err != nil {
		d = document[T]{}
		err = json.Unmarshal(data, &d)
		unknown = err == nil
	}
	if err != nil {
		// One of another schema may not look like this at all.
		var head struct {
			Schema int `json:"schema"`
		}
		if json.Unmarshal(data, &head) == nil {
			d.Schema = head.Schema
		}
	}
	switch {
	case d.Schema > Schema || err == nil && d.Schema < Schema:
		return d.Value, unknown, fmt.Errorf("read %s of the store: its schema is %d, this weir-manager knows %d: run a newer one",
			key, d.Schema, Schema)
	case err != nil:
		return d.Value, unknown, fmt.Errorf("read %s of the store: %w", key, err)
	}
	return d.Value, unknown, nil
}

// carry returns next, a document of type t, with those members of the document before that t does not have: a newer
// manager wrote them. Elements of lists are the same if their fields with the tag store:"id" are; what is in others of
// which there is no such one goes with them.
func carry(t reflect.Type, was, next json.RawMessage) (json.RawMessage, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && isObject(t.Elem()):
		return carryEach(t.Elem(), was, next)
	case !isObject(t):
		return next, nil
	}
	var before, members map[string]json.RawMessage
	if json.Unmarshal(was, &before) != nil || json.Unmarshal(next, &members) != nil || before == nil || members == nil {
		return next, nil // one of them is null
	}
	known := map[string]reflect.StructField{}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		known[cmp.Or(name, field.Name)] = field
	}
	for name, value := range before {
		field, is := known[name]
		there, err := members[name], error(nil)
		switch {
		case !is:
			members[name] = value
		case there != nil:
			if members[name], err = carry(field.Type, value, there); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(members)
}

func carryEach(t reflect.Type, was, next json.RawMessage) (json.RawMessage, error) {
	var before, elements []json.RawMessage
	if json.Unmarshal(was, &before) != nil || json.Unmarshal(next, &elements) != nil || elements == nil {
		return next, nil
	}
	named := map[string]json.RawMessage{}
	for _, element := range before {
		named[identity(t, element)] = element
	}
	for i, element := range elements {
		id := identity(t, element)
		if old, there := named[id]; there && id != "" {
			var err error
			if elements[i], err = carry(t, old, element); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(elements)
}

// identity is what tells an element of a list from the others; empty: nothing does.
func identity(t reflect.Type, element json.RawMessage) (id string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(element, &members) != nil {
		return ""
	}
	for _, field := range reflect.VisibleFields(t) {
		if field.Tag.Get("store") == "id" {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			id += string(members[name]) + " "
		}
	}
	return id
}

// isObject says whether values of the type are JSON objects, by its fields.
func isObject(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	text, own := reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[json.Marshaler]()
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(text) && !reflect.PointerTo(t).Implements(own)
}

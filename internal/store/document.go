package store

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// Keys. Those that end in a slash are prefixes.
const (
	root           = "/weir/v1/"
	keyGeneration  = root + "generation"
	keyHash        = root + "hash-key"
	keyFastpath    = root + "fastpath-keys"
	keySYNSecrets  = root + "syn-secrets"
	keyLeader      = root + "leader"
	keyRestored    = root + "restored"
	prefixManagers = root + "managers/"
	prefixVIPs     = root + "vips/"
	prefixTables   = root + "tables/"
	prefixNodes    = root + "nodes/"
	prefixStatus   = root + "status/"
	prefixHealth   = root + "health/"
	prefixStreams  = root + "streams/"
	prefixExcluded = root + "excluded/"
	prefixReady    = root + "ready/"
	prefixSteps    = root + "steps/"
)

// tableKey is where the table of an endpoint lies: tables/203.0.113.10/TCP/80.
func tableKey(k model.EndpointKey) string {
	return fmt.Sprintf("%s%s/%s/%d", prefixTables, k.VIP, k.Protocol, k.Port)
}

// parseTableKey reads what tableKey wrote.
func parseTableKey(key string) (model.EndpointKey, error) {
	parts := strings.Split(strings.TrimPrefix(key, prefixTables), "/")
	if len(parts) != 3 {
		return model.EndpointKey{}, fmt.Errorf("read key %s of the store: it names no endpoint", key)
	}
	vip, err1 := netip.ParseAddr(parts[0])
	protocol, err2 := model.ParseProtocol(parts[1])
	port, err3 := strconv.ParseUint(parts[2], 10, 16)
	if err := errors.Join(err1, err2, err3); err != nil {
		return model.EndpointKey{}, fmt.Errorf("read key %s of the store: %w", key, err)
	}
	return model.EndpointKey{VIP: vip, Protocol: protocol, Port: uint16(port)}, nil
}

// The schemas of all documents, in one row of numbers. One that names prefix lists is of listsSchema: a manager that
// knows none must not take it for one that everybody may come to. A manager tells the newest that it knows in its own
// document.
const (
	schema       = 1
	listsSchema  = 2
	newestSchema = listsSchema
)

// document is the frame of every value.
type document[T any] struct {
	Schema int `json:"schema"`
	Value  T   `json:"value"`
}

func encode[T any](value T) (string, error) {
	data, err := json.Marshal(document[T]{Schema: schema, Value: value})
	return string(data), err
}

// UnknownFormError says that something can't be written while a manager runs that could not read it.
type UnknownFormError struct {
	Manager      string
	Knows, Needs int
}

func (e *UnknownFormError) Error() string {
	return fmt.Sprintf("manager %s knows the schemas of the store up to %d, and this needs %d: upgrade it, or take it out with weir delete manager %s",
		e.Manager, e.Knows, e.Needs, e.Manager)
}

// allManagersRead refuses a schema that not all managers know.
func (s *State) allManagersRead(needs int) error {
	for _, m := range s.Managers {
		if knows := max(m.Schema, schema); knows < needs {
			return &UnknownFormError{m.Name, knows, needs}
		}
	}
	return nil
}

// encodeIn is encode of a document that lies under key in s, with what newer managers have written into it.
func encodeIn[T any](s *State, key string, value T) (string, error) {
	return encodeOver(s.unknown.At(key), value)
}

// encodeOver is encode with what a newer manager has written into the document from before; nil: nothing.
func encodeOver[T any](was []byte, value T) (string, error) {
	text, err := encode(value)
	if err != nil || was == nil {
		return text, err
	}
	next, err := carry(reflect.TypeFor[document[T]](), was, []byte(text))
	return string(next), err
}

func decode[T any](key string, data []byte) (T, error) {
	value, _, err := decodeKnown[T](key, data)
	return value, err
}

// decodeKnown is decode, and says whether the document has members that this release does not know.
func decodeKnown[T any](key string, data []byte) (value T, unknown bool, err error) {
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
	case d.Schema > schema || err == nil && d.Schema < schema:
		return d.Value, unknown, fmt.Errorf("read %s of the store: its schema is %d, this weir-manager knows %d: run a newer one",
			key, d.Schema, schema)
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

// NodeStatus is what a node said last.
type NodeStatus struct {
	Seen         time.Time        `json:"seen"`
	Generation   model.Generation `json:"generation"` // that it runs
	Rejected     model.Generation `json:"rejected,omitempty"`
	Reason       string           `json:"reason,omitempty"` // why it rejected that generation
	Detail       json.RawMessage  `json:"detail,omitempty"` // written and read by the store's user
	SessionCount SessionCount     `json:"sessionCount,omitzero"`
}

// SessionCount is what of a host's last count of connections decides about the end of moves.
type SessionCount struct {
	At         time.Time              `json:"at"`                 // by the clock of the manager that it was told
	Generation model.Generation       `json:"generation"`         // that the host ran
	Draining   []model.HostBackendKey `json:"draining,omitempty"` // the backends that have one in a bucket that they are draining
}

// Equal says whether both are the same count.
func (c SessionCount) Equal(other SessionCount) bool {
	return c.At.Equal(other.At) && c.Generation == other.Generation
}

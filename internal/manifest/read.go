package manifest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// allPorts is how the port of an endpoint of all ports is written.
const allPorts = "all"

// portField has a form of its own in manifests.
const portField = "weir.v1.Endpoint.port"

// document reads the resource of a document of a kind.
func (r *reader) document(doc *object, m proto.Message) {
	r.message(doc.get("metadata").required(), m.ProtoReflect(), metadata)
	about := doc.get("spec")
	if _, ok := m.(*weirv1.Tenant); !ok { // which may have no more than a name
		about.required()
	}
	r.message(about, m.ProtoReflect(), spec)
	doc.end("apiVersion", "kind", "metadata", "spec", "status")
}

// message reads the fields of m from v.
func (r *reader) message(v value, m protoreflect.Message, fields part) {
	if o := v.object(); o.fields != nil {
		r.fields(o, m, fields)
	}
}

// fields reads the fields of m that an object has. Those that are wrong are left out.
func (r *reader) fields(o *object, m protoreflect.Message, fields part) {
	unknown := false
	for _, name := range o.order {
		switch field := fields.field(m.Descriptor(), name); {
		case field == nil:
			unknown = true
		case !isOutput(field):
			r.field(o.fields[name], m, field, fields)
		}
	}
	if unknown {
		o.end(fields.names(m.Descriptor())...)
	}
	for i := range m.Descriptor().Oneofs().Len() {
		if choice := m.Descriptor().Oneofs().Get(i); !choice.IsSynthetic() {
			o.chooseOne(choice, fields)
		}
	}
	if endpoint, ok := m.Interface().(*weirv1.Endpoint); ok && endpoint.GetPort() == 0 && !o.isAllPorts() {
		o.get("port").required()
		endpoint.Port = 1 // a wrong port is told once, not for each backend again
	}
}

// chooseOne holds that the object has one of the fields of which a message has one.
func (o *object) chooseOne(choice protoreflect.OneofDescriptor, fields part) {
	names := fields.chosen(choice)
	has := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !o.has(name) })
	switch len(has) {
	case 1:
	case 0:
		o.refuse("must say how: %s", oneOf(names))
	default:
		o.refuse("must be %s, is %s", oneOf(names), strings.Join(has, " and "))
	}
}

// oneOf is "tcp, http or udp".
func oneOf(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func (o *object) isAllPorts() bool {
	port := o.fields["port"].node
	return port != nil && port.Kind == yaml.ScalarNode && port.Value == allPorts
}

// field reads a field of m.
func (r *reader) field(v value, m protoreflect.Message, field protoreflect.FieldDescriptor, fields part) {
	switch {
	case v.node == nil && (field.ContainingOneof() == nil || field.HasOptionalKeyword()):
	case field.IsMap():
		o := v.object()
		for _, name := range o.order {
			if text, ok := o.fields[name].text(); ok {
				m.Mutable(field).Map().Set(protoreflect.ValueOfString(name).MapKey(), protoreflect.ValueOfString(text))
			}
		}
	case field.IsList():
		elements := v.list()
		for _, element := range elements {
			r.append(element, m.Mutable(field).List(), field, fields)
		}
		if len(elements) == 0 && v.node.Kind == yaml.SequenceNode && hasNone(field) {
			m.Mutable(field).List().Append(protoreflect.ValueOfString(model.None))
		}
	case isDuration(field):
		if d, ok := v.duration(); ok {
			m.Set(field, protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()))
		}
	case field.Message() != nil: // of one that has a choice, the name alone is enough
		r.message(v, m.Mutable(field).Message(), fields)
	default:
		if value, ok := v.single(field); ok {
			m.Set(field, value)
		}
	}
}

// append reads an element of a list. One that is wrong has its place nevertheless.
func (r *reader) append(v value, list protoreflect.List, field protoreflect.FieldDescriptor, fields part) {
	if field.Message() != nil {
		if v.node == nil && !r.stopped() {
			v.refuse("must be an object, is empty")
		}
		r.message(v, list.AppendMutable().Message(), fields)
		return
	}
	value, _ := v.single(field)
	if !value.IsValid() {
		value = list.NewElement()
	}
	list.Append(value)
}

// hasNone says whether a list that is left out has a default, and an empty one the element "none".
func hasNone(field protoreflect.FieldDescriptor) bool {
	return field.FullName() == "weir.v1.SNAT.reserved" || field.FullName() == "weir.v1.SNAT.except"
}

func isDuration(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && field.Message().FullName() == "google.protobuf.Duration"
}

// single reads a text, a number, or true or false.
func (v value) single(field protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	switch field.Kind() {
	case protoreflect.StringKind:
		text, ok := v.text()
		return protoreflect.ValueOfString(text), ok
	case protoreflect.Uint32Kind:
		n, ok := v.number(field, math.MaxUint32)
		return protoreflect.ValueOfUint32(uint32(n)), ok
	case protoreflect.Uint64Kind:
		n, ok := v.number(field, math.MaxUint64)
		return protoreflect.ValueOfUint64(n), ok
	case protoreflect.BoolKind:
		s, ok := v.scalar("true or false")
		if ok && s != "true" && s != "false" {
			v.refuse("must be true or false, is %s", quote(s))
		}
		return protoreflect.ValueOfBool(s == "true"), ok
	default:
		v.refuse("can't be written in a manifest")
		return protoreflect.Value{}, false
	}
}

// scalar returns the text of v as it stands in the file.
func (v value) scalar(what string) (string, bool) {
	if v.node == nil {
		return "", false
	}
	if v.node.Kind != yaml.ScalarNode {
		v.refuse("must be %s, is %s", what, describe(v.node))
		return "", false
	}
	return v.node.Value, true
}

func (v value) text() (string, bool) {
	s, ok := v.scalar("text")
	if ok && !utf8.ValidString(s) {
		v.refuse("must be valid UTF-8, is %s", quote(s))
		return "", false
	}
	return s, ok || v.node == nil
}

// number reads a whole number of up to most. 0 stands for one that is left out, unless a message tells them apart.
func (v value) number(field protoreflect.FieldDescriptor, most uint64) (uint64, bool) {
	if field.FullName() == portField && v.node.Value == allPorts {
		return 0, false
	}
	s, ok := v.scalar("a number")
	if !ok {
		return 0, false
	}
	least := least(field)
	n, err := strconv.ParseUint(s, 10, 64)
	switch isPort := field.Name() == "port"; {
	case isPort && (err != nil || n < 1 || n > math.MaxUint16):
		v.refuse("must be a whole number from 1 to 65535, is %s", quote(s))
	case n > most: // or more than 64 bits hold
		v.refuse("must be at most %d, is %s", most, quote(s))
	case err != nil || n < uint64(least):
		v.refuse("must be a whole number of at least %d, is %s", least, quote(s))
	default:
		return n, true
	}
	return 0, false
}

// least is the least number that a field holds.
func least(field protoreflect.FieldDescriptor) int {
	if field.HasPresence() {
		return 0
	}
	return 1
}

func (v value) duration() (time.Duration, bool) {
	s, ok := v.scalar("a duration")
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		v.refuse(`must be a positive duration such as "2s" or "500ms", is %s`, quote(s))
		return 0, false
	}
	return d, true
}

// list returns the elements of v.
func (v value) list() []value {
	if v.node == nil {
		return nil
	}
	if v.node.Kind != yaml.SequenceNode {
		v.refuse("must be a list, is %s", describe(v.node))
		return nil
	}
	elements := make([]value, 0, len(v.node.Content))
	for i, node := range v.node.Content {
		elements = append(elements, v.r.value(fmt.Sprintf("%s[%d]", v.path, i), node, node.Line))
	}
	return elements
}

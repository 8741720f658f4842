package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Document is a resource in the shape of its manifest, to be encoded.
type Document struct {
	Message proto.Message // as of a Resource
	// Status is what the manager says of the resource; Parse passes over it.
	Status any
}

// MarshalJSON writes the document with its fields in the order of the schema.
func (d Document) MarshalJSON() ([]byte, error) {
	m := d.Message.ProtoReflect()
	o := members{
		{"apiVersion", Version},
		{"kind", string(m.Descriptor().Name())},
		{"metadata", written(m, metadata)},
		{"spec", written(m, spec)},
	}
	if d.Status != nil {
		o = append(o, member{"status", d.Status})
	}
	return json.Marshal(o)
}

// members is a JSON object whose fields have an order.
type members []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the fields in their order.
func (all members) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, field := range all {
		value, err := json.Marshal(field.value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", field.name, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), field.name...), `":`...), value...)
	}
	return append(out, '}'), nil
}

// written are the fields of a message that an object has, as field reads them.
func written(m protoreflect.Message, fields part) members {
	all := members{}
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		switch name := fields(field); {
		case name == "":
		case m.Has(field):
			all = append(all, member{name, writtenField(m.Get(field), field, fields)})
		case field.FullName() == portField:
			all = append(all, member{name, allPorts})
		}
	}
	return all
}

func writtenField(v protoreflect.Value, field protoreflect.FieldDescriptor, fields part) any {
	switch {
	case field.IsMap():
		texts := map[string]string{}
		v.Map().Range(func(key protoreflect.MapKey, text protoreflect.Value) bool {
			texts[key.String()] = text.String()
			return true
		})
		return texts
	case field.IsList():
		list := make([]any, v.List().Len())
		for i := range list {
			list[i] = writtenValue(v.List().Get(i), fields)
		}
		return list
	}
	return writtenValue(v, fields)
}

func writtenValue(v protoreflect.Value, fields part) any {
	m, ok := v.Interface().(protoreflect.Message)
	if !ok {
		return v.Interface()
	}
	if d, ok := m.Interface().(*durationpb.Duration); ok {
		return d.AsDuration().String()
	}
	return written(m, fields)
}

// Encode writes one YAML document for each document given.
func Encode(documents ...Document) ([]byte, error) {
	var out bytes.Buffer
	for i, d := range documents {
		text, err := json.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("encode document %d: %w", i, err)
		}
		block, err := Block(text)
		if err != nil {
			return nil, fmt.Errorf("encode document %d: %w", i, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(block)
	}
	return out.Bytes(), nil
}

// Block turns JSON into YAML as people write it, with the fields in the same order.
func Block(text []byte) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Load(text, &node); err != nil {
		return nil, fmt.Errorf("turn JSON into YAML: %w", err)
	}
	unstyle(&node)
	return yaml.Dump(&node)
}

// unstyle forgets quotes and braces; empty lists and objects keep theirs.
func unstyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode || len(n.Content) > 0 {
		n.Style = 0
	}
	for _, child := range n.Content {
		unstyle(child)
	}
}

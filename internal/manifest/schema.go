package manifest

import (
	"bytes"
	"encoding/json"
	"math"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlb/weir/api/openapi"
)

// Schema is the JSON schema of documents, for editors. Fields and their types are those of the messages, bounds those of
// the OpenAPI document; describe says what a message or a field is.
func Schema(describe func(protoreflect.Descriptor) string) ([]byte, error) {
	s := schema{describe: describe, definitions: jsonObject{}}
	var documents []any
	for _, kind := range kinds {
		s.definitions[kind] = s.document(newMessage(kind).ProtoReflect().Descriptor())
		documents = append(documents, reference(kind))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(jsonObject{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "A manifest of Weir: docs/reference/manifest.md",
		"oneOf":   documents,
		"$defs":   s.definitions,
	})
	return out.Bytes(), err
}

type jsonObject = map[string]any

// schema collects definitions: of kinds of documents, and of the messages in them.
type schema struct {
	describe    func(protoreflect.Descriptor) string
	definitions jsonObject
}

func reference(definition string) jsonObject { return jsonObject{"$ref": "#/$defs/" + definition} }

// oneRequired is a schema of objects that have some, or one, of the fields.
func oneRequired(word string, names ...string) jsonObject {
	var all []any
	for _, name := range names {
		all = append(all, jsonObject{"required": []string{name}})
	}
	return jsonObject{word: all}
}

// document is the schema of documents of a kind.
func (s *schema) document(m protoreflect.MessageDescriptor) jsonObject {
	kind, about := string(m.Name()), s.object(m, spec)
	required := []string{"apiVersion", "kind", "metadata", "spec"}
	switch kind {
	case Kind:
		about["allOf"] = []any{oneRequired("anyOf", "address", "pool"), oneRequired("anyOf", "endpoints", "snat")}
	case KindTenant:
		required = required[:3]
	}
	return jsonObject{
		"type": "object", "additionalProperties": false, "required": required, "description": s.describe(m),
		"properties": jsonObject{
			"apiVersion": jsonObject{"const": Version},
			"kind":       jsonObject{"const": kind},
			"metadata":   s.object(m, metadata),
			"spec":       about,
			"status":     jsonObject{"description": "Output only."},
		},
	}
}

// object is the schema of an object that has fields of a message.
func (s *schema) object(m protoreflect.MessageDescriptor, fields part) jsonObject {
	properties, required := jsonObject{}, []string{}
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		name := fields(field)
		if name == "" {
			continue
		}
		property := s.property(field)
		if text := s.describe(field); text != "" {
			property["description"] = text
		}
		properties[name] = property
		if isRequired(field) {
			required = append(required, name)
		}
	}
	object := jsonObject{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		object["required"] = required
	}
	for i := range m.Oneofs().Len() {
		if choice := m.Oneofs().Get(i); !choice.IsSynthetic() {
			object["oneOf"] = oneRequired("oneOf", fields.chosen(choice)...)["oneOf"]
		}
	}
	return object
}

// isRequired says whether a document must have the field.
func isRequired(field protoreflect.FieldDescriptor) bool {
	return hasBehavior(field, annotations.FieldBehavior_REQUIRED) || field.FullName() == portField ||
		field.Name() == "name" && isResource(field.ContainingMessage())
}

// property is the schema of a field.
func (s *schema) property(field protoreflect.FieldDescriptor) (property jsonObject) {
	switch {
	case isOutput(field):
		return jsonObject{}
	case field.IsMap():
		return jsonObject{"type": "object", "additionalProperties": jsonObject{"type": "string"}}
	case field.IsList():
		property = jsonObject{"type": "array", "items": s.value(field)}
		if hasBehavior(field, annotations.FieldBehavior_REQUIRED) {
			property["minItems"] = 1
		}
	default:
		property = s.value(field)
	}
	bound := openapi.Bounds[string(field.ContainingMessage().FullName())+"."+field.JSONName()]
	bound.Constrain(property, false)
	if property["multipleOf"] != nil && property["minimum"] != 0 {
		property["minimum"] = bound.MultipleOf
	}
	if field.FullName() == portField {
		return jsonObject{"oneOf": []any{property, jsonObject{"const": allPorts}}}
	}
	return property
}

// value is the schema of what a field holds, or each element of a list.
func (s *schema) value(field protoreflect.FieldDescriptor) jsonObject {
	switch {
	case isDuration(field):
		return jsonObject{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`}
	case field.Message() != nil:
		name := string(field.Message().Name())
		if s.definitions[name] == nil {
			definition := s.object(field.Message(), spec)
			definition["description"] = s.describe(field.Message())
			s.definitions[name] = definition
		}
		return reference(name)
	case field.FullName() == "weir.v1.SNAT.reserved": // ports, and ranges of them
		return jsonObject{"type": []string{"string", "integer"}}
	}
	switch field.Kind() {
	case protoreflect.Uint32Kind:
		return jsonObject{"type": "integer", "minimum": least(field), "maximum": uint64(math.MaxUint32)}
	case protoreflect.Uint64Kind:
		return jsonObject{"type": "integer", "minimum": least(field)}
	case protoreflect.BoolKind:
		return jsonObject{"type": "boolean"}
	default:
		return jsonObject{"type": "string"}
	}
}

package manifest

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// part says under which name an object of a document has a field of a message; empty: it has not.
type part func(field protoreflect.FieldDescriptor) string

// metadata has what resources of all kinds have in common.
func metadata(field protoreflect.FieldDescriptor) string {
	if !isMetadata(string(field.Name())) {
		return ""
	}
	return field.JSONName()
}

// spec has what a user says of a resource, and of the messages in it.
func spec(field protoreflect.FieldDescriptor) string {
	if isOutput(field) || isMetadata(string(field.Name())) && isResource(field.ContainingMessage()) {
		return ""
	}
	return field.JSONName()
}

func isMetadata(name string) bool {
	return name == "name" || name == "tenant" || name == "labels" || name == "resource_version"
}

// isResource says whether a message is a document, not a part of one.
func isResource(m protoreflect.MessageDescriptor) bool { return newMessage(string(m.Name())) != nil }

// isOutput says whether a manager writes the field, and passes over it when a user does.
func isOutput(field protoreflect.FieldDescriptor) bool {
	switch field.Name() {
	case "resource_version", "status", "create_time", "update_time", "updated_by":
		return true
	case "used", "flows", "sessions", "snat":
		return field.ContainingMessage().Name() == KindTenant
	}
	return false
}

// field returns the field of m that an object has under the name, or nil.
func (p part) field(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := m.Fields().ByJSONName(name); field != nil && p(field) == name {
		return field
	}
	for i := range m.Fields().Len() { // of Figure 6, or unknown
		if field := m.Fields().Get(i); p(field) == name {
			return field
		}
	}
	return nil
}

// names are those of the fields of m that an object has.
func (p part) names(m protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range m.Fields().Len() {
		if name := p(m.Fields().Get(i)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// spelling turns a path of a resource into that of its document.
func spelling(path string) string {
	top, _, _ := strings.Cut(path, ".")
	top, _, _ = strings.Cut(top, "[")
	if slices.Contains([]string{"name", "tenant", "labels"}, top) {
		return "metadata." + path
	}
	return "spec." + path
}

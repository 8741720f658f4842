package manifest

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlb/weir/api/v1"
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
func isOutput(field protoreflect.FieldDescriptor) bool { return outputFields()[field] }

// outputFields are those that api/v1 marks as output only.
var outputFields = sync.OnceValue(func() map[protoreflect.FieldDescriptor]bool {
	output := map[protoreflect.FieldDescriptor]bool{}
	for _, file := range []protoreflect.FileDescriptor{weirv1.File_v1_resource_proto, weirv1.File_v1_trust_proto} {
		for i := range file.Messages().Len() {
			fields := file.Messages().Get(i).Fields()
			for k := range fields.Len() {
				if hasBehavior(fields.Get(k), annotations.FieldBehavior_OUTPUT_ONLY) {
					output[fields.Get(k)] = true
				}
			}
		}
	}
	return output
})

func hasBehavior(field protoreflect.FieldDescriptor, behavior annotations.FieldBehavior) bool {
	all, _ := proto.GetExtension(field.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	return slices.Contains(all, behavior)
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

// chosen are the names of the fields of which a message has one.
func (p part) chosen(choice protoreflect.OneofDescriptor) []string {
	var names []string
	for i := range choice.Fields().Len() {
		names = append(names, p(choice.Fields().Get(i)))
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

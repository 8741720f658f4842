// Package mergepatch changes messages of the API by JSON merge patches (RFC 7396).
package mergepatch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/typo"
)

// Apply changes m by a JSON merge patch (RFC 7396) of m as JSON: null removes a field, an object
// is merged, and anything else, a list too, replaces what was there. A field that m does not have is
// refused, by its path.
func Apply(m proto.Message, patch *structpb.Struct) error {
	var f compile.Fields
	refuse(&f, "", m.ProtoReflect().Descriptor(), patch.AsMap())
	if err := f.Err(); err != nil {
		return err
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return fmt.Errorf("write what is to be patched: %w", err)
	}
	var before map[string]any
	if err := json.Unmarshal(text, &before); err != nil {
		return fmt.Errorf("read what is to be patched: %w", err)
	}
	text, err = json.Marshal(merge(before, patch.AsMap()))
	if err != nil {
		return &model.FieldError{Field: "patch", Reason: fmt.Sprintf("must be JSON: %v", err)}
	}
	proto.Reset(m)
	if err := protojson.Unmarshal(text, m); err != nil {
		_, reason, _ := strings.Cut(err.Error(), ": ") // without "proto: (line 1:7)"
		return &model.FieldError{Field: "patch", Reason: reason}
	}
	return nil
}

// merge is the algorithm of RFC 7396, section 2.
func merge(target any, patch map[string]any) map[string]any {
	merged, ok := target.(map[string]any)
	if !ok {
		merged = map[string]any{}
	}
	for name, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(merged, name)
		case map[string]any:
			merged[name] = merge(merged[name], value)
		default:
			merged[name] = value
		}
	}
	return merged
}

// refuse refuses the fields of a patch that a message does not have.
func refuse(f *compile.Fields, path string, m protoreflect.MessageDescriptor, patch map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		field := m.Fields().ByJSONName(name)
		if field == nil {
			f.Refuse(at, "%s", unknownField(m, name))
			continue
		}
		if field.Message() == nil || field.IsMap() || field.Message().ParentFile().Package() != m.ParentFile().Package() {
			continue
		}
		switch value := patch[name].(type) {
		case map[string]any:
			refuse(f, at, field.Message(), value)
		case []any:
			for i, element := range value {
				if object, ok := element.(map[string]any); ok {
					refuse(f, fmt.Sprintf("%s[%d]", at, i), field.Message(), object)
				}
			}
		}
	}
}

func unknownField(m protoreflect.MessageDescriptor, name string) string {
	var known []string
	for i := range m.Fields().Len() {
		known = append(known, m.Fields().Get(i).JSONName())
	}
	if guess := typo.Nearest(name, known); guess != "" {
		return "unknown field, did you mean " + guess + "?"
	}
	slices.Sort(known)
	return "unknown field, must be one of " + strings.Join(known, ", ")
}

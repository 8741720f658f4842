package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weirlb/weir/api/openapi"
)

// schemaFile is written by make generate.
const schemaFile = "../../api/schema/manifest.schema.json"

// The schema in the tree is the one of the messages and bounds; its descriptions are comments of api/v1.
func TestSchemaIsGenerated(t *testing.T) {
	current, err := Schema(func(protoreflect.Descriptor) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(current, &want), json.Unmarshal(committed, &got)); err != nil {
		t.Fatal(err)
	}
	if stripDescriptions(want); stripDescriptions(got) == 0 {
		t.Error("the schema says of no field what it is")
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("api/schema/manifest.schema.json is not what the messages and their bounds say: run make generate")
	}
}

// stripDescriptions removes what a schema says for people, and counts it.
func stripDescriptions(schema any) (n int) {
	switch schema := schema.(type) {
	case map[string]any:
		if text, ok := schema["description"].(string); ok {
			delete(schema, "description")
			n = min(1, len(text))
		}
		for _, member := range schema {
			n += stripDescriptions(member)
		}
	case []any:
		for _, element := range schema {
			n += stripDescriptions(element)
		}
	}
	return n
}

// Each bound is of a field that there is.
func TestBoundsAreOfFields(t *testing.T) {
	for name := range openapi.Bounds {
		message, field, _ := strings.Cut(strings.TrimPrefix(name, "weir.v1."), ".")
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("weir.v1." + message))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m, ok := found.(protoreflect.MessageDescriptor); !ok || m.Fields().ByJSONName(field) == nil {
			t.Errorf("%s: there is no such field", name)
		}
	}
}

// objectSchema is what the schema says of an object.
type objectSchema struct {
	Ref                  string                  `json:"$ref"`
	Properties           map[string]objectSchema `json:"properties"`
	AdditionalProperties any                     `json:"additionalProperties"`
	Items                *objectSchema           `json:"items"`
}

// The schema names the fields that the parser knows, no others: each object is given one that there is not,
// and the parser says which ones there are.
func TestSchemaKnowsTheParsersFields(t *testing.T) {
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Kinds       []objectSchema          `json:"oneOf"`
		Definitions map[string]objectSchema `json:"$defs"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	const alien = "qqqqqqqqqqqqqqqq"
	seen := 0
	const definitions = "#/$defs/"
	for _, document := range schema.Kinds {
		kind := strings.TrimPrefix(document.Ref, definitions)
		var walk func(path []string, o objectSchema)
		walk = func(path []string, o objectSchema) {
			if o.Ref != "" {
				o = schema.Definitions[strings.TrimPrefix(o.Ref, definitions)]
			}
			if o.Items != nil {
				walk(append(slices.Clone(path), "[]"), *o.Items)
			}
			if o.AdditionalProperties != false {
				return
			}
			seen++
			_, err := Parse("schema", []byte(documentWith(kind, path, alien)))
			want := "unknown field, must be one of " + strings.Join(slices.Sorted(maps.Keys(o.Properties)), ", ")
			if len(o.Properties) > 0 && (err == nil || !strings.Contains(err.Error()+"\n", want+"\n")) {
				t.Errorf("%s %v: the parser says %v, the schema %s", kind, path, err, want)
			}
			for name, property := range o.Properties {
				walk(append(slices.Clone(path), name), property)
			}
		}
		walk(nil, document)
	}
	if seen < 10 {
		t.Errorf("the schema has %d objects only", seen)
	}
}

// documentWith is a document with a field of that name in the object at path.
func documentWith(kind string, path []string, field string) string {
	text := fmt.Sprintf("{%q: 1}", field)
	for _, name := range slices.Backward(path) {
		if name == "[]" {
			text = "[" + text + "]"
		} else {
			text = fmt.Sprintf("{%q: %s}", name, text)
		}
	}
	head := fmt.Sprintf("{\"apiVersion\": %q, \"kind\": %q, ", Version, kind)
	return head + strings.TrimPrefix(text, "{")
}

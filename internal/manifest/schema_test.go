package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// objectSchema is what the schema says of an object.
type objectSchema struct {
	Properties           map[string]objectSchema `json:"properties"`
	AdditionalProperties any                     `json:"additionalProperties"`
	Items                *objectSchema           `json:"items"`
}

// The schema names the fields that the parser knows, no others: each object is given one that there is not,
// and the parser says which ones there are.
func TestSchemaKnowsTheParsersFields(t *testing.T) {
	data, err := os.ReadFile("../../api/schema/manifest.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Kinds map[string]objectSchema `json:"$defs"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	const alien = "qqqqqqqqqqqqqqqq"
	seen := 0
	for kind, object := range schema.Kinds {
		var walk func(path []string, o objectSchema)
		walk = func(path []string, o objectSchema) {
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
		walk(nil, object)
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

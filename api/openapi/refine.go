package openapi

import (
	"slices"
	"strings"
)

// What the contract says in words, and an OpenAPI document can say in its own.
const (
	uint64Pattern = "^[0-9]{1,20}$"
	maxUint32     = 1<<32 - 1
)

// words are the values of parameters that are one of some; left out is empty.
var words = map[string][]any{
	"/v1/nodes.role":            {"", "mux", "host"},
	"/v1/events.kind":           {"", "VIP", "AddressPool", "PrefixList", "VirtualNetwork", "Overlay", "Fabric", "mux", "host", "manager"},
	"/v1/events.severity":       {"", "info", "warning"},
	"/v1/events:watch.kind":     {"", "VIP", "AddressPool", "PrefixList", "VirtualNetwork", "Overlay", "Fabric", "mux", "host", "manager"},
	"/v1/events:watch.severity": {"", "info", "warning"},
	"/v1/explain.protocol":      {"TCP", "UDP"},
}

// examples are bodies of requests, by schema.
var examples = map[string]any{
	"weir.v1.VIP": map[string]any{
		"name": "shop", "tenant": "acme", "labels": map[string]any{"team": "web"}, "address": "203.0.113.10",
		"endpoints": []any{map[string]any{"protocol": "TCP", "port": 80}},
	},
	"weir.v1.AddressPool": map[string]any{"name": "public", "prefixes": []any{"198.51.100.0/24"}},
}

// refine adds to the document what its generator does not know.
func refine(document map[string]any) {
	eachObject(document, func(o map[string]any) {
		switch {
		case o["type"] == "string" && o["format"] == "uint64":
			o["pattern"] = uint64Pattern
		case o["type"] == "integer" && o["format"] == "int64":
			o["minimum"], o["maximum"] = 0, maxUint32
		}
	})
	for name, schema := range object(object(document, "components"), "schemas") {
		schema, ok := schema.(map[string]any)
		if !ok {
			continue
		}
		required, _ := schema["required"].([]any)
		for property, value := range object(schema, "properties") {
			if value, ok := value.(map[string]any); ok {
				Bounds[name+"."+property].Constrain(value, !slices.Contains(required, any(property)))
			}
		}
		if example := examples[name]; example != nil {
			schema["examples"] = []any{example}
		}
	}
	for path, operations := range object(document, "paths") {
		operations, ok := operations.(map[string]any)
		if !ok {
			continue
		}
		for method := range operations {
			refineCall(path, method, object(operations, method))
		}
	}
}

func refineCall(path, method string, call map[string]any) {
	parameters, _ := call["parameters"].([]any)
	for _, p := range parameters {
		p, ok := p.(map[string]any)
		if !ok {
			continue
		}
		name, _ := p["name"].(string)
		schema := object(p, "schema")
		if p["in"] == "path" {
			schema["pattern"] = NamePattern
		}
		if list := words[path+"."+name]; list != nil {
			schema["enum"] = list
		}
	}
	json := "application/json"
	if method == "patch" {
		content := object(object(call, "requestBody"), "content")
		content["application/merge-patch+json"] = content[json]
	}
	if strings.HasSuffix(path, ":watch") {
		content := object(object(object(call, "responses"), "200"), "content")
		content["application/x-ndjson"] = content[json]
		delete(content, json)
	}
}

// object is a member that is an object, or an empty one.
func object(o map[string]any, name string) map[string]any {
	member, ok := o[name].(map[string]any)
	if !ok {
		return map[string]any{}
	}
	return member
}

// eachObject calls do for all objects of a document.
func eachObject(value any, do func(map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		do(value)
		for _, member := range value {
			eachObject(member, do)
		}
	case []any:
		for _, element := range value {
			eachObject(element, do)
		}
	}
}

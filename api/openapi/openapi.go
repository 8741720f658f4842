// Package openapi holds the description of the manager's REST API, generated from api/v1.
package openapi

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
)

// One document for each file of services.
//
//go:embed v1/*.openapi.json
var files embed.FS

// Document is the OpenAPI 3.1 document of all services, as JSON.
func Document() ([]byte, error) {
	list, err := files.ReadDir("v1")
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI documents: %w", err)
	}
	var all map[string]any
	for _, file := range list {
		text, err := files.ReadFile("v1/" + file.Name())
		if err != nil {
			return nil, fmt.Errorf("read the OpenAPI documents: %w", err)
		}
		var one map[string]any
		if err := json.Unmarshal(text, &one); err != nil {
			return nil, fmt.Errorf("read the OpenAPI document %s: %w", file.Name(), err)
		}
		if paths, ok := one["paths"].(map[string]any); !ok || len(paths) == 0 {
			continue
		}
		if all == nil {
			all = one
			all["info"] = map[string]any{"title": "Weir", "version": "v1"}
			continue
		}
		merge(all, one)
	}
	refine(all)
	return json.MarshalIndent(all, "", "  ")
}

// merge adds the members that from has to into, and its tags.
func merge(into, from map[string]any) {
	for name, value := range from {
		there, taken := into[name]
		if !taken {
			into[name] = value
			continue
		}
		switch value := value.(type) {
		case map[string]any:
			if there, ok := there.(map[string]any); ok {
				merge(there, value)
			}
		case []any:
			if there, ok := there.([]any); ok && name == "tags" && isTags(value) {
				into[name] = append(there, value...)
			}
		}
	}
}

// isTags tells the tags of a document from those of an operation, which are names.
func isTags(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool {
		_, object := v.(map[string]any)
		return !object
	})
}

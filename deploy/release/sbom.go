package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// component is a part of a program in CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json: of its many fields those that
// tools look vulnerabilities up by.
type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref,omitempty"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type bom struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Timestamp time.Time `json:"timestamp"`
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

// writeSBOM lists what the linker wrote into the program: the modules that it is really made of, not those of go.mod.
func writeSBOM(program, version, out string, made time.Time) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w", program, err)
	}
	b := bom{Format: "CycloneDX", Spec: "1.6", Version: 1}
	b.Metadata.Timestamp = made
	b.Metadata.Component = component{Type: "application", Name: filepath.Base(program), Version: version}
	for _, s := range info.Settings {
		if s.Key == "GOARCH" || s.Key == "vcs.revision" {
			b.Metadata.Component.Properties = append(b.Metadata.Component.Properties, property{Name: "go:" + s.Key, Value: s.Value})
		}
	}
	toolchain := strings.TrimPrefix(info.GoVersion, "go")
	toolchain, _, _ = strings.Cut(toolchain, " ") // without experiments
	b.Components = append(b.Components, module("stdlib", toolchain, ""))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, module(m.Path, m.Version, m.Sum))
	}
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(data, '\n'), 0o644)
}

// module is a Go module; sum is its line in go.sum.
func module(path, version, sum string) component {
	purl := "pkg:golang/" + path + "@" + version
	c := component{Type: "library", Ref: purl, Name: path, Version: version, PURL: purl}
	if sum != "" {
		c.Properties = []property{{Name: "go:sum", Value: sum}}
	}
	return c
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Folders of results, below the repository's.
const (
	outFolder  = "out/papers"          // of the last run
	keptFolder = "docs/results/papers" // committed
)

// result is one value in the form that all figures share.
type result struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"`
	Unit  string   `json:"unit"`
	Paper *float64 `json:"paper"` // null: the paper has none
	Bound *float64 `json:"bound"` // null: there is none
}

// record is the results of one run, as they are kept.
type record struct {
	Figure   string   `json:"figure"`
	Date     string   `json:"date"`
	Commit   string   `json:"commit"`
	Machine  string   `json:"machine"`
	Load     float64  `json:"load"` // 1-minute average before the run
	Command  string   `json:"command"`
	Drawings []string `json:"drawings,omitempty"` // in the same folder
	Results  []result `json:"results"`
}

// extract computes a figure's values from what its bench wrote.
func (f figure) extract(document any) (results []result, err error) {
	for _, r := range f.rows {
		if r.from.isEmpty() {
			continue
		}
		value, failed := r.from.value(document)
		if failed != nil && r.mayLack {
			continue
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s of %s: %w", r.name, f.name, failed))
			continue
		}
		results = append(results, result{Name: r.name, Value: value, Unit: r.unit, Paper: r.paper, Bound: r.bound.number()})
	}
	return results, err
}

// readRecord returns what is kept of a figure; nil: nothing.
func readRecord(root, name string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(root, keptFolder, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read results of %s: %w", name, err)
	}
	return decodeRecord(name, data)
}

func decodeRecord(name string, data []byte) (*record, error) {
	var r record
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("read results of %s: %w", name, err)
	}
	return &r, nil
}

func readJSON(path string, to any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, of any) error {
	data, err := json.MarshalIndent(of, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writeFile(path, append(data, '\n'))
}

func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

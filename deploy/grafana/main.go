// Command grafana writes Weir's dashboards beside itself. Each query's metrics are held to exist by the
// tests here.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write("deploy/grafana"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write writes each dashboard into a file of its uid's name.
func write(dir string) error {
	for _, d := range dashboards() {
		text, err := json.MarshalIndent(d.model(), "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, d.uid+".json"), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

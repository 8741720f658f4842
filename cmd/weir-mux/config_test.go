package main

import (
	"os"
	"testing"

	"github.com/weirlb/weir/internal/daemon"
)

// The file that packages ship is what the program says of its flags.
func TestShippedConfigurationIsCurrent(t *testing.T) {
	shipped, err := os.ReadFile("../../deploy/config/mux.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(shipped) != daemon.ConfigFile(command()) {
		t.Error("deploy/config/mux.yaml is not what the flags say: go run ./cmd/weir-mux config > deploy/config/mux.yaml")
	}
}

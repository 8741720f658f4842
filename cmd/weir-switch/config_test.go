package main

import (
	"os"
	"testing"

	"github.com/weirlb/weir/internal/daemon"
)

// The file that packages ship is what the program says of its flags.
func TestShippedConfigurationIsCurrent(t *testing.T) {
	shipped, err := os.ReadFile("../../deploy/config/switch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(shipped) != daemon.ConfigFile(command()) {
		t.Error("deploy/config/switch.yaml is not what the flags say: go run ./cmd/weir-switch config > deploy/config/switch.yaml")
	}
}

package main

import (
	"os"
	"testing"

	"github.com/weirlb/weir/internal/daemon"
)

// The file that packages ship is what the program says of its flags.
func TestShippedConfigurationIsCurrent(t *testing.T) {
	shipped, err := os.ReadFile("../../deploy/config/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(shipped) != daemon.ConfigFile(command()) {
		t.Error("deploy/config/agent.yaml is not what the flags say: go run ./cmd/weir-agent config > deploy/config/agent.yaml")
	}
}

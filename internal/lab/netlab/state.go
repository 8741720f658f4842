package netlab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// state is what another process must know to work with the lab.
type state struct {
	Plan
	Bin       string     `json:"bin"`
	Processes []*Process `json:"processes"`
}

func (l *programs) stateFile() string { return filepath.Join(l.dir, "state.json") }

// save replaces state.json in one step.
func (l *programs) save() error {
	l.processesMu.Lock()
	defer l.processesMu.Unlock()
	data, err := json.MarshalIndent(state{Plan: l.Plan, Bin: l.bin, Processes: l.processes}, "", "  ")
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	next := l.stateFile() + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(next, l.stateFile()); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

func (l *programs) load() error {
	data, err := os.ReadFile(l.stateFile())
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read state: %s: %w", l.stateFile(), err)
	}
	l.Plan, l.bin, l.processes = s.Plan, s.Bin, s.Processes
	return nil
}

package bpf

import "fmt"

// ChangeSettings changes members of the table settings. Concurrent calls may lose each other's changes.
func ChangeSettings(objects *AgentObjects, change func(*AgentAgentSettings)) error {
	var s AgentAgentSettings
	if err := objects.Settings.Get(&s); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	change(&s)
	if err := objects.Settings.Set(&s); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

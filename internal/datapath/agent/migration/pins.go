package migration

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
)

// constants is what the library calls what programs are loaded with: no other version goes on with that.
const constants = ".rodata"

// PinTables pins the tables of collection in a folder.
func PinTables(folder string, collection *ebpf.Collection) error {
	for name, m := range collection.Maps {
		if name == constants {
			continue
		}
		if err := m.Pin(filepath.Join(folder, pinName(name))); err != nil {
			return fmt.Errorf("pin table %s: %w", name, err)
		}
	}
	return nil
}

const settingsTable = ".data.settings"

// pinName is a map's file name: a bpffs allows no dots.
func pinName(mapName string) string { return strings.TrimPrefix(mapName, ".data.") }

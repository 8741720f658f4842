package faults

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/anishathalye/porcupine"
)

// pictures is the folder that wrong histories are drawn to, for a browser.
const pictures = "../../out/faults"

func draw(t *testing.T, entries []entry) {
	t.Helper()
	_, info := porcupine.CheckOperationsVerbose(register, operations(entries), checkTime)
	file := filepath.Join(pictures, filepath.Base(t.Name())+".html")
	err := os.MkdirAll(pictures, 0o755)
	if err == nil {
		err = porcupine.VisualizePath(register, info, file)
	}
	if err != nil {
		t.Errorf("draw the history: %v", err)
		return
	}
	t.Logf("the history is drawn in %s", file)
}

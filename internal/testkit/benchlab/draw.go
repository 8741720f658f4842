package benchlab

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirlb/weir/internal/plan"
)

// Draw writes a drawing into a folder; "": nowhere.
func Draw(dir, name string, c plan.Chart) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("draw figures: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(c.SVG()), 0o644)
}

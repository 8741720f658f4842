package manifestfile

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestFabricsAreRefusedForAManager(t *testing.T) {
	file := []string{"../../../deploy/plan/fabric.yaml"}
	const want = "a manager has none of the kind Fabric: weir plan --fabric reads it"
	if _, err := Read(&cobra.Command{}, file); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %q", err, want)
	}
	if fabrics, err := ReadAnyKind(&cobra.Command{}, file); err != nil || len(fabrics) == 0 {
		t.Errorf("read %d documents of any kind, error %v", len(fabrics), err)
	}
}

package testlab

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// ProgramID is the id of the XDP program on a mux's interface; 0 is none.
func ProgramID(t *testing.T, lab *netlab.Lab, mux string) ebpf.ProgramID {
	t.Helper()
	out, err := lab.Run(mux, "ip", "-j", "-d", "link", "show", netlab.Uplink)
	Must(t, err)
	var links []struct {
		XDP struct {
			Program struct {
				ID ebpf.ProgramID `json:"id"`
			} `json:"prog"`
		} `json:"xdp"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("read the link of %s: %v: %s", mux, err, out)
	}
	return links[0].XDP.Program.ID
}

// MapIDs are those of a program's maps, in order.
func MapIDs(t *testing.T, id ebpf.ProgramID) []ebpf.MapID {
	t.Helper()
	program, err := ebpf.NewProgramFromID(id)
	Must(t, err)
	defer program.Close()
	info, err := program.Info()
	Must(t, err)
	maps, known := info.MapIDs()
	if !known || len(maps) == 0 {
		t.Fatalf("program %d has no maps", id)
	}
	slices.Sort(maps)
	return maps
}

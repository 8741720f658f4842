package agent

import (
	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/model"
)

// Verdicts returns how many packets met which end, by the verdict's name: "deliver_native",
// "drop_no_rule". All names are there, also those that no packet has met.
func (d *Datapath) Verdicts() (map[string]model.Counter, error) {
	return d.verdicts.Read(d.objects.Verdicts)
}

// LostDatagrams counts datagrams in fragments that were forgotten before their time, by why: for
// others of the same tenant, or another's.
func (d *Datapath) LostDatagrams() (map[string]uint64, error) {
	return abi.LostDatagrams(d.objects.LostDatagrams)
}

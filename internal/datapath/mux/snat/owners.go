package snat

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
)

// owners knows the rows of snat_owners: one for each tunnel that workloads with ranges have.
type owners struct {
	ids      *alloc.IDs
	byTunnel map[netip.Addr]*owner
	retired  []uint32 // packets may still read these rows
}

type owner struct {
	id   uint32
	uses int // workloads
}

func newOwners(n uint32) *owners {
	return &owners{ids: alloc.NewIDs("snat_owners", n), byTunnel: map[netip.Addr]*owner{}}
}

// addWorkload counts one more workload behind the tunnel. fresh says that the row has to be written before a range
// names it.
func (o *owners) addWorkload(tunnel netip.Addr) (id uint32, fresh bool, err error) {
	if held := o.byTunnel[tunnel]; held != nil {
		held.uses++
		return held.id, false, nil
	}
	if len(o.ids.Free) == 0 && len(o.retired) > 0 {
		if err := abi.Quiesce(); err != nil {
			return 0, false, err
		}
		o.ids.Free, o.retired = append(o.ids.Free, o.retired...), nil
	}
	if id, err = o.ids.Take(); err != nil {
		return 0, false, fmt.Errorf("%w: raise --max-snat-ports", err)
	}
	o.byTunnel[tunnel] = &owner{id: id, uses: 1}
	return id, true, nil
}

// release takes back a hold. No range names the row any more when it was the last.
func (o *owners) release(tunnel netip.Addr) {
	held := o.byTunnel[tunnel]
	if held.uses--; held.uses == 0 {
		delete(o.byTunnel, tunnel)
		o.retired = append(o.retired, held.id)
	}
}

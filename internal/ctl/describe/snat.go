package describe

import (
	"fmt"
	"io"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// snatText is what describe says of a VIP's source NAT.
func snatText(w io.Writer, vip *weirv1.VIP) {
	n := vip.GetStatus().GetSnat()
	if vip.GetSnat() == nil {
		return
	}
	fmt.Fprintf(w, "\nSource NAT\n  Workloads:      %d\n  Ports:          %d can be given out, %d are held, %d in quarantine\n",
		len(vip.GetSnat().GetWorkloads()), n.GetPortsTotal(), n.GetPortsHeld(), n.GetPortsQuarantined())
	fmt.Fprintf(w, "  A workload:     begins with %d ports, has %d at most, asks %d times a second at most\n",
		vip.GetSnat().GetPreallocate(), vip.GetSnat().GetMaxPorts(), vip.GetSnat().GetRequestRate())
	fmt.Fprintf(w, "  Reserved:       %s\n", strings.Join(vip.GetSnat().GetReserved(), ", "))
	fmt.Fprintf(w, "  Left alone:     %s\n", strings.Join(vip.GetSnat().GetExcept(), ", "))
	fmt.Fprintf(w, "  Filtering:      %s\n", vip.GetSnat().GetFiltering())
	fmt.Fprintf(w, "  Without a port: %s\n", vip.GetSnat().GetExhausted())
	fmt.Fprintf(w, "  Idle timeout:   %s\n", vip.GetSnat().GetIdleTimeout().AsDuration())
}

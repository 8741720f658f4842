package benchlab

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// BackendsPerVIP is how many backends each VIP of a large cluster has, on as many hosts if there are so many.
const BackendsPerVIP = 10

// HostName is that of host number i of a large cluster.
func HostName(i int) string { return fmt.Sprintf("host%d", i+1) }

// VIP is number i of a large cluster with so many hosts; round moves one of its backends.
func VIP(i, round, hosts int, tenant string) *weirv1.VIP {
	e := &weirv1.Endpoint{Protocol: "TCP", Port: 80, HealthCheck: &weirv1.HealthCheck{Check: &weirv1.HealthCheck_Tcp{}, Interval: durationpb.New(10 * time.Second)}}
	for j := range BackendsPerVIP {
		n := i*BackendsPerVIP + j
		host := n % hosts
		if j == 0 {
			n += round % 6 * 2_000_000 // another backend on the same host
		}
		e.Backends = append(e.Backends, &weirv1.Backend{
			Address: fmt.Sprintf("10.%d.%d.%d", 16+n/62500, n/250%250, n%250+1), Port: 8080, Host: HostName(host),
		})
	}
	return &weirv1.VIP{
		Name: fmt.Sprintf("vip%d", i), Tenant: tenant, Address: fmt.Sprintf("172.%d.%d.%d", 16+i/62500, i/250%250, i%250+1),
		Endpoints: []*weirv1.Endpoint{e},
	}
}

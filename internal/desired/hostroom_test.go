package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// Whatever VIPs and tables were written and removed before, hosts are charged with what the tables that are there keep.
func TestHostsAreChargedWithWhatTablesKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			s = s.Clone()
			i := rapid.IntRange(0, 3).Draw(t, "vip")
			name := fmt.Sprint("vip", i)
			key := model.EndpointKey{VIP: s.VIPs.At(name).Address, Protocol: model.TCP, Port: uint16(rapid.IntRange(1, 2).Draw(t, "port"))}
			switch rapid.IntRange(0, 5).Draw(t, "do") {
			case 0:
				s.RemoveVIP(name)
			case 1:
				RemoveTable(&s, key)
			case 2, 3:
				table := Table{Buckets: make([]model.Slot, 1<<rapid.IntRange(8, 12).Draw(t, "buckets"))}
				for slot := range rapid.IntRange(0, 4).Draw(t, "rows") {
					table.Rows = append(table.Rows, Row{Backend: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), byte(slot)}), 80)})
				}
				PutTable(&s, key, table)
			default:
				vip := anyVIP(t, i)
				if rapid.Bool().Draw(t, "in hardware") {
					vip.Hardware = &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"switch1"}}
				}
				s.PutVIP(vip)
			}
		}
		want := map[string]steering.Room{}
		for vip := range s.VIPs.Values() {
			if !vip.InHardware() {
				continue
			}
			need, hosts := Steering(vip)
			for host := range hosts {
				want[host] = want[host].Plus(need).Plus(KeptRoom(s, vip))
			}
		}
		got := map[string]steering.Room{}
		for _, host := range []string{"host1", "host2", "host3"} {
			if room := s.SteeringOn(host); room != (steering.Room{}) {
				got[host] = room
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("hosts are charged with %v, want %v", got, want)
		}
	})
}

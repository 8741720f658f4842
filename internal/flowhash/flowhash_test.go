package flowhash

import (
	"math"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

func testKey() Key {
	var k Key
	for i := range k {
		k[i] = byte(i*37 + 11)
	}
	return k
}

func flow(source, destination string) model.Flow {
	return model.Flow{
		Protocol: model.TCP, Source: netip.MustParseAddrPort(source), Destination: netip.MustParseAddrPort(destination),
	}
}

func inNetwork(vni uint32, f model.Flow) model.Flow {
	f.VNI = vni
	return f
}

// Muxes of different versions of Weir must agree, so the function never changes.
func TestSumIsFixed(t *testing.T) {
	cases := []struct {
		flow model.Flow
		want uint32
	}{
		{flow("198.51.100.7:40000", "203.0.113.10:80"), 0xe1f97d15},
		{flow("[2001:db8::7]:40000", "[2001:db8:113::10]:80"), 0x42a5ef8f},
		{inNetwork(0xabcdef, flow("192.168.0.5:40000", "10.99.0.1:80")), 0x7811e233},
	}
	for _, c := range cases {
		if got := testKey().Sum(c.flow); got != c.want {
			t.Errorf("%s: got %#x, want %#x", c.flow, got, c.want)
		}
	}
}

func TestEveryFieldCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		port := rapid.Uint16().Draw(t, "port")
		a := flow("198.51.100.7:40000", "203.0.113.10:80")
		b := a
		switch rapid.IntRange(0, 5).Draw(t, "field") {
		case 0:
			b.Source = netip.AddrPortFrom(a.Source.Addr(), port)
		case 1:
			b.Destination = netip.AddrPortFrom(a.Destination.Addr(), port)
		case 2:
			b.Source = netip.AddrPortFrom(a.Source.Addr().Next(), a.Source.Port())
		case 3:
			b.Destination = netip.AddrPortFrom(a.Destination.Addr().Next(), a.Destination.Port())
		case 4:
			b.Protocol = model.UDP
		case 5:
			b.VNI = rapid.Uint32Range(0, 1<<24-1).Draw(t, "vni")
		}
		if a != b && testKey().Sum(a) == testKey().Sum(b) {
			t.Fatalf("%s and %s hash alike", a, b)
		}
	})
}

func TestTheKeyCounts(t *testing.T) {
	f := flow("198.51.100.7:40000", "203.0.113.10:80")
	for i := range KeySize {
		other := testKey()
		other[i] ^= 0x40
		if other.Sum(f) == testKey().Sum(f) {
			t.Errorf("byte %d of the key changes nothing", i)
		}
	}
}

// Clients of one network with ports in sequence, the least random traffic there is, must fill
// the buckets evenly: chi-square within six standard deviations of its mean.
func TestBucketsFillEvenly(t *testing.T) {
	const buckets, flows = 256, 256 * 1000
	var count [buckets]int
	client := netip.MustParseAddr("198.51.100.1")
	for i := range flows {
		if i%1000 == 0 {
			client = client.Next()
		}
		f := model.Flow{
			Protocol: model.TCP, Source: netip.AddrPortFrom(client, uint16(20000+i%1000)),
			Destination: netip.MustParseAddrPort("203.0.113.10:80"),
		}
		count[testKey().Sum(f)&(buckets-1)]++
	}
	chi := 0.0
	for _, n := range count {
		d := float64(n) - flows/buckets
		chi += d * d / (flows / buckets)
	}
	if deviation := (chi - (buckets - 1)) / math.Sqrt(2*(buckets-1)); math.Abs(deviation) > 6 {
		t.Errorf("chi-square is %.0f for %d buckets: %.1f standard deviations off", chi, buckets, deviation)
	}
}

func TestNewKeyRefusesOtherLengths(t *testing.T) {
	for _, n := range []int{0, KeySize - 1, KeySize + 1} {
		if _, err := NewKey(make([]byte, n)); err == nil {
			t.Errorf("%d bytes were accepted", n)
		}
	}
}

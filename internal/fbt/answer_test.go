package fbt

import (
	"net/netip"
	"testing"
)

// All that an answer says is under its MAC, and no FBT's MAC is one of an answer's.
func TestAllOfAnAnswerCounts(t *testing.T) {
	end := netip.MustParseAddrPort
	answer := Answer{VNI: 100, Host: 7, Client: end("192.168.0.5:40000"), VIP: end("10.99.0.1:80"), ClientMAC: [6]byte{2, 1}}
	seen := map[[6]byte]string{answer.MAC(testKey): "itself"}
	for what, change := range map[string]func(*Answer, *Key){
		"key":           func(_ *Answer, k *Key) { k.Secret[15]++ },
		"VNI":           func(a *Answer, _ *Key) { a.VNI += 1 << 16 },
		"host":          func(a *Answer, _ *Key) { a.Host += 1 << 16 },
		"client":        func(a *Answer, _ *Key) { a.Client = end("192.168.0.6:40000") },
		"client's port": func(a *Answer, _ *Key) { a.Client = end("192.168.0.5:40001") },
		"VIP":           func(a *Answer, _ *Key) { a.VIP = end("10.99.0.2:80") },
		"VIP's port":    func(a *Answer, _ *Key) { a.VIP = end("10.99.0.1:81") },
		"client's MAC":  func(a *Answer, _ *Key) { a.ClientMAC[5]++ },
		"protocol":      func(a *Answer, _ *Key) { a.UDP = true },
		"ends swapped":  func(a *Answer, _ *Key) { a.Client, a.VIP = a.VIP, a.Client },
	} {
		other, key := answer, testKey
		change(&other, &key)
		if same, twice := seen[other.MAC(key)]; twice {
			t.Errorf("%s: the MAC is that of %s", what, same)
		}
		seen[other.MAC(key)] = what
	}
}

// Hosts make answers with the key that muxes make FBTs with, which is derived from what all have.
func TestHostsAndMuxesAgreeOnTheKey(t *testing.T) {
	var masters []Master
	for id := range uint32(9) {
		master := Master{ID: id + 1}
		if masters = append(masters, master); len(masters) > Masters {
			masters = masters[1:]
		}
		if got := MakesOf(HostKeys(masters, "host1")); got.ID != Makes(masters) {
			t.Errorf("of masters %v a host makes with %d, muxes with %d", masters, got.ID, Makes(masters))
		}
	}
	if got := MakesOf(nil); got != (Key{}) {
		t.Errorf("without keys: %v", got)
	}
}

package neighbor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/segment"
)

var (
	web     = netip.MustParseAddr("203.0.113.10")
	shop    = netip.MustParseAddr("2001:db8::10")
	ownMAC  = segment.MAC{2, 0, 0, 0, 0, 1}
	muxMAC  = segment.MAC{2, 0, 0, 0, 0, 2}
	thief   = segment.MAC{2, 0, 0, 0, 0, 0xbb}
	serving = map[netip.Addr]bool{web: true, shop: true}
)

// rig is a Neighbor whose clock, manager, data plane and segment are the test's.
type rig struct {
	*Neighbor
	now    time.Duration
	lines  []string // what it did, in order
	until  time.Duration
	events []*weirv1.MuxEvent

	response *weirv1.RenewNeighborsResponse
	err      error
	requests []*weirv1.RenewNeighborsRequest
	serves   map[netip.Addr]bool
	broken   error // of the data plane
	mac      segment.MAC
	reports  int
}

func (r *rig) note(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *rig) SetNeighbors(vips []netip.Addr) error {
	r.note("answer for %v", vips)
	return r.broken
}

func (r *rig) SetNeighborLease(until time.Duration) error { r.until = until; return nil }

func (r *rig) Announce(vip netip.Addr, _ segment.MAC) error { r.note("announce %s", vip); return nil }
func (r *rig) Probe(vip netip.Addr, _ segment.MAC) error    { r.note("probe %s", vip); return nil }
func (r *rig) SetAddresses([]netip.Addr) error              { return nil }
func (r *rig) Listen(context.Context, func(segment.Claim)) error {
	return nil
}

func newRig() *rig {
	r := &rig{now: time.Hour, serves: serving, mac: ownMAC}
	r.Neighbor = New(Config{
		Name: "mux1", Datapath: r, Segment: r, MAC: func() segment.MAC { return r.mac },
		Serving: func() (map[netip.Addr]bool, bool) { return r.serves, r.serves != nil },
		Renew: func(_ context.Context, request *weirv1.RenewNeighborsRequest) (*weirv1.RenewNeighborsResponse, error) {
			r.requests = append(r.requests, request)
			return r.response, r.err
		},
		Leave: func() { r.note("leave") }, Event: func(e *weirv1.MuxEvent) { r.events = append(r.events, e) },
		Report: func() { r.reports++ },
		Now:    func() time.Duration { return r.now }, Log: slog.New(slog.DiscardHandler),
	})
	return r
}

// grant is what the manager answers from now on.
func (r *rig) grant(wait time.Duration, vips ...netip.Addr) {
	r.response = &weirv1.RenewNeighborsResponse{Lease: durationpb.New(neighbor.Lease), Muxes: []string{"02:00:00:00:00:01", "02:00:00:00:00:02"}, Digest: 7}
	if wait > 0 {
		r.response.Digest = 0
	}
	for _, vip := range vips {
		r.response.Vips = append(r.response.Vips, &weirv1.NeighborVIP{Vip: vip.String(), Wait: durationpb.New(wait)})
	}
}

// turn renews and acts, and returns what was done.
func (r *rig) turn(ctx context.Context) string {
	r.lines = nil
	r.renew(ctx)
	r.step()
	return strings.Join(r.lines, "; ")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A VIP is asked for while others may have it, then answered for and told three times, until its lease ends.
func TestTakingOver(t *testing.T) {
	r := newRig()
	r.grant(neighbor.Lease, web)
	want(t, "at first", r.turn(t.Context()), "answer for []; probe 203.0.113.10")
	if r.until != r.now+neighbor.Lease {
		t.Errorf("the lease ends at %s", r.until)
	}
	want(t, "at once again", r.turn(t.Context()), "")
	r.now += neighbor.Lease
	r.grant(0, web)
	want(t, "after the wait", r.turn(t.Context()), "answer for [203.0.113.10]; announce 203.0.113.10")
	for i := range 4 {
		r.now += announceEvery
		want(t, fmt.Sprintf("told %d times", i+1), r.turn(t.Context()), map[bool]string{true: "announce 203.0.113.10"}[i < announcements-1])
	}
	if r.reports != 1 {
		t.Errorf("a VIP was taken, and reported %d times", r.reports)
	}
	if held := r.Held(); len(held) != 1 || r.requests[0].GetDigest() != 0 || r.requests[len(r.requests)-1].GetDigest() != 7 {
		t.Errorf("it holds %v, and asked %v", held, r.requests)
	}
	r.err = errors.New("no quorum")
	r.now += neighbor.Interval
	want(t, "without a manager", r.turn(t.Context()), "")
	r.now += neighbor.Interval
	want(t, "again", r.turn(t.Context()), "leave")
	r.now = r.until
	want(t, "its lease is over", r.turn(t.Context()), "answer for []")
	if held := r.Held(); len(held) != 0 || !strings.Contains(strings.Join(r.Warnings(), "\n"), "no manager renews the lease") {
		t.Errorf("it holds %v, and warns %q", held, r.Warnings())
	}
	r.err = connect.NewError(connect.CodeAborted, errors.New("not noted yet"))
	for range 2 * failuresToLeave {
		want(t, "a manager that notes the mux first is not left", r.turn(t.Context()), "")
	}
	r.err = nil
	want(t, "a lease again", r.turn(t.Context()), "answer for [203.0.113.10]; announce 203.0.113.10")
}

// A mux that is to attract nothing says so, and one does not answer for VIPs that it does not forward for.
func TestOnlyWhatIsServedIsAnswered(t *testing.T) {
	r := newRig()
	r.serves = map[netip.Addr]bool{web: true}
	r.grant(0, web, shop)
	want(t, "one is served", r.turn(t.Context()), "answer for [203.0.113.10]; announce 203.0.113.10")
	r.serves = nil
	want(t, "none is", r.turn(t.Context()), "answer for []")
	if last := r.requests[len(r.requests)-1]; last.GetReady() || !r.requests[0].GetReady() {
		t.Errorf("asked %v", r.requests)
	}
}

// What the process before answered for is not answered for by the first lease of this one.
func TestOldVIPsGoBeforeALease(t *testing.T) {
	r := newRig()
	r.step()
	if strings.Join(r.lines, "") != "answer for []" || r.until != 0 {
		t.Errorf("did %q, the lease ends at %s", r.lines, r.until)
	}
}

// A VIP that another station has is not taken, one that is held is defended, and other muxes are no strangers.
func TestConflicts(t *testing.T) {
	r := newRig()
	r.grant(neighbor.Lease, web)
	r.turn(t.Context())
	r.hear(segment.Claim{Address: web, MAC: muxMAC})
	r.hear(segment.Claim{Address: shop, MAC: thief}) // none of ours
	if len(r.events) != 0 {
		t.Fatalf("events %v", r.events)
	}
	r.hear(segment.Claim{Address: web, MAC: thief})
	r.hear(segment.Claim{Address: web, MAC: thief})
	if len(r.events) != 1 || r.events[0].GetReason() != reason.NeighborConflict || !r.events[0].GetWarning() || r.events[0].GetVip() != web.String() {
		t.Fatalf("events %v", r.events)
	}
	r.now += neighbor.Lease
	r.grant(0, web)
	want(t, "another has it", r.turn(t.Context()), "")
	if !strings.Contains(strings.Join(r.Warnings(), "\n"), "station 02:00:00:00:00:bb claims VIP 203.0.113.10 too") {
		t.Errorf("warns %q", r.Warnings())
	}
	r.now += conflictTime - neighbor.Lease
	want(t, "after a while", r.turn(t.Context()), "probe 203.0.113.10")
	r.hear(segment.Claim{Address: web, MAC: thief})
	r.now += neighbor.Lease
	want(t, "it has it still", r.turn(t.Context()), "")
	r.now += conflictTime
	want(t, "and then not", r.turn(t.Context()), "answer for [203.0.113.10]; announce 203.0.113.10")
	r.lines = nil
	for range 3 {
		r.hear(segment.Claim{Address: web, MAC: thief})
	}
	want(t, "defended", strings.Join(r.lines, "; "), "announce 203.0.113.10")
	if held := r.Held(); len(held) != 1 {
		t.Errorf("it holds %v", held)
	}
}

// Claims from ever other MACs are told once in a while, as those from one.
func TestClaimsFromManyMACsAreToldSeldom(t *testing.T) {
	r := newRig()
	r.grant(0, web, shop)
	r.turn(t.Context())
	const seconds = 30
	for i := range 1000 * seconds {
		r.now += time.Millisecond
		r.hear(segment.Claim{Address: web, MAC: segment.MAC{2, 1, 1, 1, byte(i >> 8), byte(i)}})
	}
	if most := 1 + int(seconds*time.Second/conflictTime); len(r.events) > most {
		t.Errorf("%d events in %d s, want at most %d", len(r.events), seconds, most)
	}
	told := len(r.events)
	if r.hear(segment.Claim{Address: shop, MAC: thief}); len(r.events) != told+1 {
		t.Error("another vip's conflict is not told")
	}
}

// Of a station that claims many VIPs operators are told by some names, and then by the number of the others. All are warned of.
func TestClaimsOfManyVIPsAreToldBySomeNames(t *testing.T) {
	r := newRig()
	var log strings.Builder
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	const vips = 100
	var all []netip.Addr
	r.serves = map[netip.Addr]bool{}
	for i := range vips {
		all = append(all, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
		r.serves[all[i]] = true
	}
	r.grant(0, all...)
	r.turn(t.Context())
	for range 2 {
		for _, vip := range all {
			r.hear(segment.Claim{Address: vip, MAC: thief})
		}
		r.now += conflictTime
	}
	if len(r.events) != 2*claimsTold || strings.Count(log.String(), "another station has") != 2*claimsTold {
		t.Errorf("%d events and the log\n%s", len(r.events), log.String())
	}
	if !strings.Contains(log.String(), fmt.Sprint("vips=", vips-claimsTold)) {
		t.Errorf("the log does not say how many more\n%s", log.String())
	}
	if warnings := r.Warnings(); len(warnings) != vips {
		t.Errorf("%d warnings", len(warnings))
	}
}

// What a write that failed left in the data plane is written anew, also if the VIPs are those before it again.
func TestAWriteThatFailedIsDoneAgain(t *testing.T) {
	r := newRig()
	r.grant(0, web)
	r.turn(t.Context())
	until := r.until
	r.serves, r.broken = map[netip.Addr]bool{shop: true}, errors.New("no memory")
	r.now += neighbor.Interval
	want(t, "a write fails", r.turn(t.Context()), "answer for []")
	if r.until != until || len(r.Warnings()) != 1 {
		t.Errorf("the lease ends at %s, and it warns %q", r.until, r.Warnings())
	}
	r.serves, r.broken = serving, nil
	want(t, "as before", r.turn(t.Context()), "answer for [203.0.113.10]; announce 203.0.113.10")
}

// VIPs that are held are announced anew when the interface has another MAC.
func TestANewMACIsAnnounced(t *testing.T) {
	r := newRig()
	r.grant(0, web)
	for range announcements {
		r.turn(t.Context())
		r.now += announceEvery
	}
	want(t, "told", r.turn(t.Context()), "")
	r.mac = segment.MAC{2, 0, 0, 0, 0, 3}
	for i := range announcements + 1 {
		want(t, "with another MAC", r.turn(t.Context()), map[bool]string{true: "announce 203.0.113.10"}[i < announcements])
		r.now += announceEvery
	}
}

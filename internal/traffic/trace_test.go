package traffic

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

var twoRacks = []string{"r1", "r2"}

func readAll(text string, limits Limits) (all []Interval, err error) {
	r := NewReader(strings.NewReader(text), twoRacks, limits)
	for {
		i, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, i)
	}
}

func TestTraceIsRead(t *testing.T) {
	text := "\ufeff# a comment\n" + header + "\r\n" + "#0,no,r9,x,y\n" +
		"0,shop,r2,0,3\r\n" + `0,"shop",r1,1500.4,1` + "\n\n" + "0,shop,external,20e3,0\n" + "0,all, r1 ,1,1\n" +
		"7,shop,r1,0,1\n" + "7,other,r1,5,1\n"
	want := []Interval{
		{0, []Demand{
			{VIP: "all", Sources: []Share{{0, 1}}, Backends: []Group{{0, 1}}},
			{VIP: "shop", External: 20_000, Sources: []Share{{0, 1500}}, Backends: []Group{{0, 1}, {1, 3}}},
		}},
		{7, []Demand{
			{VIP: "other", Sources: []Share{{0, 5}}, Backends: []Group{{0, 1}}},
			{VIP: "shop", Backends: []Group{{0, 1}}},
		}},
	}
	got, err := readAll(text, DefaultLimits)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestWrongTracesAreRefused(t *testing.T) {
	limits := Limits{LineBytes: 60, Lines: 6, Rows: 3, VIPs: 2, NameBytes: 10}
	for _, c := range []struct {
		lines, reason string
		at            int
	}{
		{"", "the trace has no line behind its head", 1},
		{"0,a,r1,NaN,1", `rate "NaN" is no number`, 2},
		{"0,a,r1,+Inf,1", `rate "+Inf" is above 1000000000000 kbit/s`, 2},
		{"0,a,r1,1e999,1", `rate "1e999" is above`, 2},
		{"0,a,r1,1e13,1", `rate "1e13" is above`, 2},
		{"0,a,r1,-1,1", `rate "-1" is negative`, 2},
		{"0,a,r1,fast,1", `rate "fast" is no number`, 2},
		{"0,a,r1,,1", `rate "" is no number`, 2},
		{"0,a,r9,1,1", `rack "r9" is not in the fabric`, 2},
		{"0,a,r1,1,-1", `backends "-1" is no number from 0`, 2},
		{"0,a,r1,1,999999999", `backends "999999999" is no number from 0`, 2},
		{"0,a,external,1,1", "backends stand in a rack, not outside of the fabric", 2},
		{"0,a,r1,1,0", "VIP a receives traffic and has no backend in its interval", 2},
		{"0,a,r1,1,1\n0,a,r1,2,1", "VIP a has line 2 of the same rack and interval", 3},
		{"1,a,r1,1,1\n0,a,r1,1,1", "interval 0 stands behind interval 1: intervals ascend", 3},
		{"-1,a,r1,1,1", `interval "-1" is no number from 0 on`, 2},
		{"99999999999,a,r1,1,1", `interval "99999999999" is no number`, 2},
		{"0,,r1,1,1", "the VIP has no name", 2},
		{"0,abcdefghijk,r1,1,1", "the name of a VIP is longer than 10 bytes", 2},
		{"0,a\x1b,r1,1,1", "has characters that can't be printed", 2},
		{"0,a\xff,r1,1,1", "has characters that can't be printed", 2},
		{`0,a"b,r1,1,1`, "the line needs 5 fields", 2},
		{"0,a,r1,1", "the line needs 5 fields", 2},
		{"0,a,r1,1,1,1", "the line needs 5 fields", 2},
		{"0,a,r1,1,1" + strings.Repeat(" ", 60), "the line is longer than 60 bytes", 2},
		{strings.Repeat("x", 10_000), "the line is longer than 60 bytes", 2},
		{"0,a,r1,1,1\n0,b,r1,1,1\n0,c,r1,1,1", "the interval has more than 2 VIPs", 4},
		{"0,a,r1,1,1\n0,a,r2,1,1\n0,b,r1,1,1\n0,b,r2,1,1", "interval 0 has more than 3 lines", 5},
		{"\n\n\n\n\n\n0,a,r1,1,1", "the trace has more than 6 lines", 7},
		{"0,a,r1,1,1\n1,a,r1,1,1\n2,a,r1,1,1\n3,a,r1,1,1\n4,a,r1,1,1\n5,a,r1,1,1", "the trace has more than 6 lines", 7},
		{"0,a,r1,9e11,1\n0,b,r1,9e11,1", "the rates of an interval are above", 3},
		{"0,a,r1,9e11,1\n0,a,r2,9e11,1", "VIP a has more than", 3},
	} {
		_, err := readAll(header+"\n"+c.lines, limits)
		var refused *LineError
		if !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.reason) {
			t.Errorf("%.60q: error %v, want %q", c.lines, err, c.reason)
		} else if refused.Line != c.at {
			t.Errorf("%.60q: refused at line %d, not %d", c.lines, refused.Line, c.at)
		}
	}
	for text, reason := range map[string]string{"": "the trace is empty", "vip,rate\n": "the first line of a trace is " + header} {
		if _, err := readAll(text, limits); err == nil || !strings.Contains(err.Error(), "line 1: "+reason) {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

// One VIP may have all traffic, as much as the bound allows.
func TestVIPOfAllTrafficIsRead(t *testing.T) {
	got, err := readAll(header+"\n0,a,external,1e12,0\n0,a,r1,0,262144\n", DefaultLimits)
	if err != nil || got[0].Rate() != MaxRate {
		t.Errorf("got %v, %v", got, err)
	}
}

// endless is a trace that never ends.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	text := header + "\n"
	if e.n > 0 {
		text = fmt.Sprintf("0,v%d,r1,1,1\n", e.n)
	}
	e.n++
	return copy(p, text), nil
}

func TestEndlessTraceIsRefusedInBoundedMemory(t *testing.T) {
	limits := DefaultLimits
	limits.VIPs = 1000
	_, err := NewReader(&endless{}, twoRacks, limits).Next()
	if err == nil || err.Error() != "line 1002: the interval has more than 1000 VIPs" {
		t.Errorf("error %v", err)
	}
}

func TestOrderOfLinesDoesNotMatter(t *testing.T) {
	lines := strings.Split("0,a,r1,1,1\n0,a,r2,5,0\n0,b,external,7,0\n0,b,r2,0,2\n0,c,r1,1,1", "\n")
	want, err := readAll(header+"\n"+strings.Join(lines, "\n"), DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		random.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		if got, err := readAll(header+"\n"+strings.Join(lines, "\n"), DefaultLimits); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v: got %+v, %v", lines, got, err)
		}
	}
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	s := Series{Workload: Workload{VIPs: 200, Racks: 20, Total: 1e8}, Intervals: 3}
	var racks []string
	for i := range s.Racks {
		racks = append(racks, fmt.Sprintf("rack-%d", i))
	}
	var text bytes.Buffer
	w := NewWriter(&text, racks)
	var want []Interval
	if err := s.Generate(func(i Interval) bool {
		want = append(want, i)
		return errors.Join(w.Comment(fmt.Sprintf("interval %d\n0,no,comment", i.Number)), w.Write(i)) == nil
	}); err != nil {
		t.Fatal(err)
	}
	r := NewReader(&text, racks, DefaultLimits)
	for _, i := range want {
		got, err := r.Next()
		if err != nil || got.Number != i.Number || len(got.Demands) != len(i.Demands) {
			t.Fatalf("interval %d: %d VIPs, %v", got.Number, len(got.Demands), err)
		}
		for n, d := range i.Demands {
			if g := got.Demands[n]; g.VIP != d.VIP || g.External != d.External || fmt.Sprint(g) != fmt.Sprint(d) {
				t.Fatalf("got %+v, want %+v", g, d)
			}
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(header + "\n0,a,r1,1,1\n1,a,r1,1,1\n"))
	f.Add([]byte(header + "\n0,a,external,1e12,0\n0,a,r1,0,1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewReader(bytes.NewReader(text), twoRacks, Limits{LineBytes: 100, Lines: 50, Rows: 20, VIPs: 5, NameBytes: 20})
		for last := -1; ; {
			i, err := r.Next()
			if err != nil {
				return
			}
			if i.Number <= last || len(i.Demands) == 0 || len(i.Demands) > 6 || i.Rate() < 0 || i.Rate() > MaxRate {
				t.Fatalf("got %+v behind interval %d", i, last)
			}
			last = i.Number
		}
	})
}

package netlink

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/overload"
)

func TestParseCPUs(t *testing.T) {
	text := "cpu  11 1 1 1 1 1 7 0 0 0\ncpu0 10 0 0 90 0 0 50 0 5 5\ncpu1 1 2 3 4 5 6 7 8 9 9\nintr 5 cpu\nctxt 7\n"
	got, err := parseCPUs(strings.NewReader(text))
	want := []overload.CPU{
		{SoftIRQ: 500 * time.Millisecond, All: 1500 * time.Millisecond}, {SoftIRQ: 70 * time.Millisecond, All: 360 * time.Millisecond},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := parseCPUs(strings.NewReader("cpu0 1 2 3 x 5 6 7 8 9\n")); err == nil {
		t.Error("a field that is no number was read")
	}
}

func TestLoadOfTheLoopback(t *testing.T) {
	s, err := NewLoad("lo", &program{}).Sample()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.CPUs) == 0 || s.CPUs[0].All == 0 || s.At.IsZero() {
		t.Errorf("read %+v", s)
	}
	if _, err := NewLoad("no-such-interface", &program{}).Sample(); err == nil {
		t.Error("an interface that is not there was read")
	}
}

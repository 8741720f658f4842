package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/echo"
	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netload"
)

const (
	gibibyte = 1 << 30
	bigFile  = "big"
)

// 1 GiB down from nginx and up to it, over both families.
func TestLargeTransfers(t *testing.T) {
	lab := newLab(t)
	noReplyAtMuxes(t, lab)
	big := filepath.Join(lab.Dir(), bigFile)
	want := writeBig(t, big)
	for name := range shop {
		must(t, os.Link(big, filepath.Join(nginxDir(lab, name), "root", bigFile)))
	}
	for i, vip := range vips {
		download := fmt.Sprintf("set -o pipefail; curl -gsSf '%s' | sha256sum", url(vip, 80, "/"+bigFile))
		out, err := lab.Run("client1", "bash", "-c", download)
		must(t, err)
		if got, _, _ := strings.Cut(out, " "); got != want {
			t.Errorf("downloaded from %s: checksum %s, want %s", vip, got, want)
		}

		path := fmt.Sprintf("/upload/%d", i)
		out, err = lab.Run("client1", "curl", "-gsSf", "-D", "-", "-H", "Expect:", "-T", big, url(vip, 80, path))
		must(t, err)
		backend := backendOf(t, out)
		uploaded := filepath.Join(nginxDir(lab, backend), "root", path)
		if got := checksum(t, uploaded); got != want {
			t.Errorf("uploaded to %s, to %s: checksum %s, want %s", vip, backend, got, want)
		}
		must(t, os.Remove(uploaded))

		// Few connections may all meet one mux: with these, each has seen some.
		r, err := netload.RunLoad(t.Context(), lab, "client1", load.Config{
			URL: url(vip, 80, "/"), Requests: 100, Concurrency: 4, PerConn: 1, Timeout: 20 * time.Second,
		})
		must(t, err)
		answered(t, lab, "client1", vip, r)
	}
}

// writeBig writes 1 GiB and returns its checksum.
func writeBig(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Create(path)
	must(t, err)
	defer file.Close()
	hash := sha256.New()
	_, err = io.CopyN(io.MultiWriter(file, hash), &echo.Pattern{}, gibibyte)
	must(t, err)
	return hex.EncodeToString(hash.Sum(nil))
}

func checksum(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	must(t, err)
	return hex.EncodeToString(hash.Sum(nil))
}

// backendOf reads who answered from the head of an answer.
func backendOf(t *testing.T, head string) string {
	t.Helper()
	for line := range strings.Lines(head) {
		if name, value, found := strings.Cut(line, ":"); found && strings.EqualFold(name, echo.BackendHeader) {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no %s in the answer:\n%s", echo.BackendHeader, head)
	return ""
}

// iperf3 up, down and with datagrams, over both families.
func TestIperf(t *testing.T) {
	lab := newLab(t)
	for _, vip := range vips {
		for _, options := range [][]string{
			{},
			{"--reverse"},
			{"--parallel", "4"},
			{"--udp", "--bitrate", "20M", "--length", "1200"},
		} {
			t.Run(strings.Join(append([]string{vip.String()}, options...), " "), func(t *testing.T) {
				args := append([]string{"--client", vip.String(), "--time", "2", "--json"}, options...)
				out, err := lab.Run("client1", "iperf3", args...)
				must(t, err)
				received(t, vip, out)
			})
		}
	}
}

// received holds that what was sent arrived: all of it over TCP, nearly all over UDP.
func received(t *testing.T, vip netip.Addr, out string) {
	t.Helper()
	var report struct {
		End struct {
			Sum struct {
				Packets     int     `json:"packets"`
				LostPercent float64 `json:"lost_percent"`
			} `json:"sum"`
			SumReceived struct {
				Bytes         int64   `json:"bytes"`
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	must(t, json.Unmarshal([]byte(out), &report))
	if sum := report.End.Sum; sum.Packets > 0 {
		t.Logf("%s: %d datagrams, %.2f %% lost", vip, sum.Packets, sum.LostPercent)
		if sum.LostPercent > 5 {
			t.Errorf("%s: %.1f %% of %d datagrams were lost", vip, sum.LostPercent, sum.Packets)
		}
		return
	}
	t.Logf("%s: %.2f Gbit/s", vip, report.End.SumReceived.BitsPerSecond/1e9)
	if report.End.SumReceived.Bytes == 0 {
		t.Errorf("%s: nothing arrived: %s", vip, out)
	}
}

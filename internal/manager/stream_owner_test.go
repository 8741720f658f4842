package manager

import (
	"net/http"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/trust"
)

// Whichever manager is asked about a mux, that one answers which holds its stream.
func TestTasksGoToTheHolderOfTheStream(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 2)
	startMux(t, r.urls[1], "mux1", "10.1.1.2")
	startMux(t, r.urls[0], "mux2", "10.1.1.3")
	for _, url := range r.urls {
		client := dial(t, url)
		for _, mux := range []string{"mux1", "mux2"} {
			eventually(t, "the program of "+mux+" is asked by "+url, func() bool {
				explained, err := client.ExplainPacket(t.Context(), &weirv1.ExplainPacketRequest{Mux: mux, Frame: make([]byte, 64)})
				return err == nil && explained.GetExplanation().GetVerdict() == "drop_of_"+mux
			})
			var verdicts []string
			err := client.EachCapture(t.Context(), &weirv1.CaptureRequest{Mux: mux}, func(p *weirv1.CaptureResponse) error {
				for _, packet := range p.GetPackets() {
					verdicts = append(verdicts, packet.GetVerdict())
				}
				return nil
			})
			if err != nil || len(verdicts) != 1 || verdicts[0] != "drop_of_"+mux {
				t.Errorf("%s captures %v of %s: %v", url, verdicts, mux, err)
			}
		}
		if _, err := client.ExplainPacket(t.Context(), &weirv1.ExplainPacketRequest{Mux: "mux3", Frame: make([]byte, 64)}); err == nil ||
			!strings.Contains(err.Error(), "no mux \"mux3\"") {
			t.Errorf("of a mux that is not there %s says: %v", url, err)
		}
	}
	// What was handed on once stays where it is, whatever that manager believes.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.urls[0]+"/weir.v1.WeirService/ExplainPacket",
		strings.NewReader(`{"mux": "mux1", "frame": "`+strings.Repeat("A", 88)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(trust.ForwardedByHeader, "m2")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode == http.StatusOK {
		t.Error("a call that was handed on is handed on again")
	}
}

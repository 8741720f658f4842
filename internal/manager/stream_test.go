package manager

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// follows has a mux, with the credential of h, hold its stream at a manager until the test ends.
func (h holder) follows(t *testing.T, m *Manager, address string) {
	t.Helper()
	answer := newWireCaller(t, m, h.credential, "").call(t.Context(), t, "https://"+m.Address().String(),
		weirv1connect.SyncServiceSyncMuxProcedure, &weirv1.SyncMuxRequest{Name: h.name, Addresses: []string{address}})
	t.Cleanup(func() { answer.Body.Close() })
	if got := firstOf(answer); !got.message {
		t.Fatalf("the stream of %s: %+v", h.name, got)
	}
}

// Each message of a stream is judged, not the first alone: a mux acknowledges nothing for another one.
func TestEachMessageOfAStreamIsJudged(t *testing.T) {
	c := startTrusted(t, 1)
	one, other := c.newNode(t, trust.Mux, "mux1"), c.newNode(t, trust.Mux, "mux2")
	one.follows(t, c.managers[0], "10.0.0.1")
	other.follows(t, c.managers[0], "10.0.0.2")
	access := c.at(0)
	access.Current = func() *trust.Credential { return one.credential }
	acks := rpc.Acknowledger{Name: "mux1", Open: connected(t, access).AcknowledgeMux}
	t.Cleanup(acks.Close)
	if err := acks.Send(t.Context(), 1, 0); err != nil {
		t.Fatal(err)
	}
	acks.Name = "mux2"
	var err error
	eventually(t, "the stream ends", func() bool {
		err = acks.Send(t.Context(), 1, 0)
		return err != nil
	})
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("mux1 acknowledges for mux2: %v", err)
	}
	auditedWith(t, c.admin, "mux/mux1 may not call AcknowledgeMux for mux/mux2")
}

// openStreamsOf opens what a user may hold open at manager i, by gRPC and REST. Each channel has how that ended.
func (c *trustedCluster) openStreamsOf(ctx context.Context, t *testing.T, i int, h holder, requests map[string]proto.Message) map[string]<-chan string {
	t.Helper()
	url, caller := c.at(i).Managers, newWireCaller(t, c.managers[i], h.credential, h.token)
	open := map[string]<-chan string{}
	hold := func(what string, answer *http.Response, end func() string) {
		ended := make(chan string, 1)
		open[what] = ended
		go func() {
			defer answer.Body.Close()
			ended <- end()
		}()
	}
	for procedure, request := range requests {
		eventually(t, procedure+" is open", func() bool { // a capture waits for the end of the one before
			answer := caller.call(ctx, t, url, procedure, request)
			if !firstOf(answer).message {
				return false
			}
			hold(procedure, answer, func() string {
				end := endOf(answer)
				return fmt.Sprintf(`"code":%d %s`, end.code, end.reason)
			})
			return true
		})
	}
	for _, path := range []string{"/v1/vips:watch", "/v1/events:watch"} {
		answer := caller.do(ctx, t, http.MethodGet, url+path, "application/json", nil)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s of %s at manager %d: %s", path, h.name, i, answer.Status)
		}
		hold(path, answer, func() string {
			text, _ := io.ReadAll(answer.Body) // how it ends stands in what came
			return string(text)
		})
	}
	return open
}

// What a user has open ends at all managers when an admin changes, at one of them, what the user may do. Each manager's
// store tells it, and nothing else does: nothing is sent on the streams meanwhile, and no VIP changes. What is opened
// afterwards is judged by what the user may do now.
func TestStreamsEndWhenTheirUserMayDoOtherThings(t *testing.T) {
	t.Parallel()
	c := startTrusted(t, 2)
	c.newNode(t, trust.Mux, "mux1").follows(t, c.managers[0], "10.0.0.1")
	operates := []*weirv1.Binding{{Tenant: trust.AllTenants, Role: "operator"}}
	for what, next := range map[string][]*weirv1.Binding{
		"less":      viewsAll,
		"elsewhere": {{Tenant: "default", Role: "operator"}},
		"more":      {{Tenant: trust.AllTenants, Role: "operator"}, {Tenant: "default", Role: "admin"}},
	} {
		for proof, certificate := range map[string]bool{"token": false, "certificate": true} {
			t.Run(what+"-"+proof, func(t *testing.T) {
				h := c.newUser(t, what+"-"+proof, certificate)
				if _, err := c.admin.UpdateUser(t.Context(), &weirv1.UpdateUserRequest{Name: h.name, Bindings: operates}); err != nil {
					t.Fatal(err)
				}
				c.endsByUpdate(t, h, next)
			})
		}
	}
}

// endsByUpdate holds that what h has open ends when the user gets other bindings, in all tenants or not.
func (c *trustedCluster) endsByUpdate(t *testing.T, h holder, next []*weirv1.Binding) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	eventually(t, "all managers know the user", func() bool {
		for _, m := range c.managers {
			now, _ := m.store.Trust.Watch()
			if account := now.Accounts.At(h.name); len(account.Bindings) != 1 || account.Bindings[0].Role != trust.Operator {
				return false
			}
		}
		return true
	})
	open, told := make([]map[string]<-chan string, len(c.managers)), make([]<-chan struct{}, len(c.managers))
	requests := map[string]proto.Message{
		weirv1connect.WeirServiceWatchVIPsProcedure: &weirv1.WatchVIPsRequest{}, weirv1connect.WeirServiceWatchEventsProcedure: &weirv1.WatchEventsRequest{},
	}
	for i, m := range c.managers {
		if i == 1 { // relayed to manager 0; a mux captures one at a time
			requests[weirv1connect.WeirServiceCaptureProcedure] = &weirv1.CaptureRequest{Mux: "mux1", Duration: durationpb.New(time.Minute)}
		}
		open[i] = c.openStreamsOf(ctx, t, i, h, requests)
		_, told[i] = m.store.Trust.Watch()
	}
	if _, err := c.admin.UpdateUser(ctx, &weirv1.UpdateUserRequest{Name: h.name, Bindings: next}); err != nil {
		t.Fatal(err)
	}
	for i := range c.managers {
		for what, ended := range open[i] {
			select {
			case text := <-ended:
				if !strings.Contains(text, `"code":16`) || !strings.Contains(text, "what you may do has changed") {
					t.Errorf("%s of %s at manager %d ends with %s", what, h.name, i, text)
				}
			case <-ctx.Done():
				t.Fatalf("%s of %s at manager %d goes on", what, h.name, i)
			}
		}
		select {
		case <-told[i]:
		default:
			t.Errorf("the streams of %s at manager %d ended, and not because its store told it", h.name, i)
		}
		again := newWireCaller(t, c.managers[i], h.credential, h.token).call(ctx, t, c.at(i).Managers,
			weirv1connect.WeirServiceCaptureProcedure, &weirv1.CaptureRequest{Mux: "none"})
		wanted := connect.CodePermissionDenied
		if len(next) > 1 {
			wanted = connect.CodeNotFound
		}
		if got := firstOf(again); got.code != wanted {
			t.Errorf("a capture of %s at manager %d afterwards: %+v, want %s", h.name, i, got, wanted)
		}
	}
}

package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/trust"
)

// One caller's refusals do not drive those of others out of the audit log.
func TestRefusalsAreNotedByCaller(t *testing.T) {
	a := New("m1", nil, nil)
	now := time.Unix(1000, 0)
	refuse := func(identity, from string) {
		a.add(trust.AuditEntry{Time: now, Identity: identity, From: from, Refused: true})
	}
	count := map[string]int{}
	for i := range 100 {
		now = now.Add(time.Second)
		for range 20 {
			refuse("nobody", fmt.Sprintf("192.0.2.1:%d", 1000+i))
		}
		refuse("nobody", "198.51.100.7:99")
		if i%10 == 0 {
			refuse("user/vic", "192.0.2.1:5")
		}
		for _, e := range a.drain() {
			who, _, _ := strings.Cut(e.From, ":")
			count[e.Identity+" "+who]++
		}
	}
	if n := count["nobody 192.0.2.1"]; n > 150 {
		t.Errorf("%d refusals of one stranger were noted", n)
	}
	if count["nobody 198.51.100.7"] < 100 || count["user/vic 192.0.2.1"] != 10 {
		t.Errorf("of others were noted %v", count)
	}
}

// What a call changes is named in the audit log with what it is.
func TestSubjectsOfTheAuditLog(t *testing.T) {
	for procedure := range authz.Procedures() {
		if !authz.Changes(procedure) || procedure == weirv1connect.ClusterServiceBackupProcedure {
			continue
		}
		service, method, _ := strings.Cut(strings.TrimPrefix(procedure, "/"), "/")
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
		if err != nil {
			t.Fatal(err)
		}
		request, err := protoregistry.GlobalTypes.FindMessageByName(found.(protoreflect.MethodDescriptor).Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		message := request.New()
		fill(message, 2)
		if got := subject(procedure, message.Interface()); !strings.Contains(got, "/x") && got != "overlay/default" && got != "placement/auto" { // there is one of each
			t.Errorf("%s changes %q", procedure, got)
		}
	}
	for procedure, want := range map[string]string{
		weirv1connect.WeirServicePatchVIPProcedure: "vip/x", weirv1connect.WeirServiceUpdateAddressPoolProcedure: "pool/x",
		weirv1connect.TrustServiceRotateUserProcedure: "user/x", weirv1connect.ClusterServiceDeleteManagerProcedure: "manager/x",
	} {
		if got := subject(procedure, &weirv1.PatchVIPRequest{Name: "x"}); got != want {
			t.Errorf("%s changes %q, want %q", procedure, got, want)
		}
	}
	observe := weirv1connect.WeirServiceObserveProcedure
	for want, muxes := range map[string][]string{"mux/*": nil, "mux/a mux/b": {"a", "b"}} {
		if got := subject(observe, &weirv1.ObserveRequest{Muxes: muxes}); got != want {
			t.Errorf("%s of %q changes %q, want %q", observe, muxes, got, want)
		}
	}
}

// fill sets all texts of a message to x, also in those that it holds.
func fill(m protoreflect.Message, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); {
		case f.Kind() == protoreflect.StringKind && f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfString("x"))
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("x"))
		case f.Kind() != protoreflect.MessageKind || f.IsMap() || depth == 0:
		case f.IsList():
			fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
		default:
			fill(m.Mutable(f).Message(), depth-1)
		}
	}
}

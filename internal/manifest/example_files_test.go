package manifest

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

const examples = "../../examples"

func parseFile(t *testing.T, path string) []Resource {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := Parse(filepath.Base(path), data)
	if err != nil {
		t.Fatal(err)
	}
	return resources
}

func TestExamplesAreValid(t *testing.T) {
	files, err := filepath.Glob(examples + "/*")
	if err != nil {
		t.Fatal(err)
	}
	var all []Resource
	for _, file := range files {
		all = append(all, parseFile(t, file)...)
	}
	if len(files) < 4 {
		t.Errorf("found only %v", files)
	}
	if problems := Repeated(all); problems != nil {
		t.Errorf("the examples can't be applied together: %v", problems)
	}
}

// reference.yaml shows every field there is: its VIP leaves none at its zero value, but for attachments, spread,
// TIPs and other health checks, which can't stand beside others and have VIPs of their own.
func TestReferenceShowsEveryField(t *testing.T) {
	vip := compiled(t, parseFile(t, examples+"/reference.yaml")[0])
	for _, r := range parseFile(t, examples+"/reference.yaml")[1:] {
		switch other, is := r.Message.(*weirv1.VIP); {
		case is && len(other.GetAttachments()) > 0:
			vip.Attachments = compiled(t, r).Attachments
		case is && other.GetHardware().GetPlacement() == string(model.PlacementAuto):
			vip.Hardware.Spread = compiled(t, r).Hardware.Spread
		case is && len(other.GetHardware().GetTips()) > 0:
			vip.Hardware.TIPs = compiled(t, r).Hardware.TIPs
		case is && other.GetName() == "reference-checks":
			check := vip.Endpoints[0].HealthCheck
			for _, e := range compiled(t, r).Endpoints {
				check.TLS = cmp.Or(check.TLS, e.HealthCheck.TLS)
				check.Service = cmp.Or(check.Service, e.HealthCheck.Service)
				check.Send, check.Expect = cmp.Or(check.Send, e.HealthCheck.Send), cmp.Or(check.Expect, e.HealthCheck.Expect)
				check.AnswerOptional = check.AnswerOptional || e.HealthCheck.AnswerOptional
			}
		}
	}
	var filled func(path string, v reflect.Value)
	filled = func(path string, v reflect.Value) {
		switch {
		case v.IsZero():
			t.Errorf("the reference leaves out %s", path)
		case v.Kind() == reflect.Pointer:
			filled(path, v.Elem())
		case v.Type() == reflect.TypeFor[[]model.Endpoint]():
			filled(path, v.Index(0))
		case v.Type() == reflect.TypeFor[[]model.Backend]():
			i := slices.IndexFunc(v.Interface().([]model.Backend), func(b model.Backend) bool { return b.Tunnel.IsValid() })
			filled(path, v.Index(max(i, 0)))
		case v.Kind() == reflect.Struct && v.Type().PkgPath() == reflect.TypeFor[model.VIP]().PkgPath():
			for i := range v.NumField() {
				filled(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		}
	}
	filled("VIP", reflect.ValueOf(vip))
}

// Of Figure 6, as its authors printed it: with the commas that JSON does not allow, and a list of
// addresses without braces.
func TestFigure6AsPrinted(t *testing.T) {
	const printed = `{  "VIP":"1.2.3.4",
"Endpoint": [ {
"protocol":"tcp",
"port": "80",
"DIP": [ {
"Host": "1.1.1.0",
"IP":"1.1.1.1",
"port":"8080", }]}],
"SNAT": [
"IP": "1.1.1.1",
"IP":"2.2.2.2" ] }`
	resources, err := Parse("figure6", []byte(printed))
	if err != nil {
		t.Fatal(err)
	}
	clean := parseFile(t, examples+"/ananta-figure6.json")
	vip := compiled(t, resources[0])
	if want := compiled(t, clean[0]); !reflect.DeepEqual(vip, want) {
		t.Errorf("got %+v, want %+v", vip, want)
	}
	if vip.Name != "vip-1-2-3-4" || vip.Endpoints[0].Backends[0].Host != "1.1.1.0" {
		t.Errorf("the VIP is named %s, the host %s", vip.Name, vip.Endpoints[0].Backends[0].Host)
	}
	want := "figure6:9: SNAT: has no effect: it names no host, write spec.snat of a document of kind VIP"
	if w := resources[0].Warnings; len(w) != 1 || w[0].Error() != want {
		t.Errorf("warnings are %v, want %q", w, want)
	}
}

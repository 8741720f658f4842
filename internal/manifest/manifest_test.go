package manifest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

var update = flag.Bool("update", false, "rewrite golden files with what the tests got")

// golden compares got with the file, or rewrites the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// Every file of testdata/wrong is refused with the text beside it.
func TestWrongManifestsAreRefused(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*[ln]")
	if err != nil || len(files) < 10 {
		t.Fatalf("found only %v: %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			resources, err := Parse(filepath.Base(file), data)
			if err == nil {
				t.Fatalf("was accepted: %+v", resources)
			}
			golden(t, file+".txt", err.Error()+"\n")
		})
	}
}

func TestManyProblemsAreCutShort(t *testing.T) {
	text := "apiVersion: weir/v1\nkind: VIP\nmetadata: {name: shop}\nspec:\n  address: 203.0.113.10\n  endpoints:\n" +
		strings.Repeat("  - {prot: 1, port: 80}\n", 100)
	_, err := Parse("many", []byte(text))
	var problems Problems
	if !errors.As(err, &problems) || len(problems) < 100 {
		t.Fatalf("got %d problems", len(problems))
	}
	lines := strings.Split(err.Error(), "\n")
	if want := fmt.Sprintf("and %d more", len(problems)-mostTold); lines[len(lines)-1] != want {
		t.Errorf("the text ends in %q, want %q", lines[len(lines)-1], want)
	}
}

// A manager's error names fields of the model; the user sees the lines of the file.
func TestLocate(t *testing.T) {
	shop := parseFile(t, examples+"/shop.yaml")[1]
	figure6 := parseFile(t, examples+"/ananta-figure6.json")[0]
	cases := []struct {
		resource    Resource
		field, want string
	}{
		{shop, "endpoints[0].backends[2].host", "shop.yaml:40: spec.endpoints[0].backends[2].host: is wrong"},
		{shop, "endpoints[0].backends[2].tunnel", "shop.yaml:40: spec.endpoints[0].backends[2].tunnel: is wrong"},
		{shop, "endpoints[0].healthCheck.http.path", "shop.yaml:45: spec.endpoints[0].healthCheck.http.path: is wrong"},
		{shop, "endpoints[0].healthCheck", "shop.yaml:44: spec.endpoints[0].healthCheck: is wrong"},
		{shop, "address", "shop.yaml:33: spec.address: is wrong"},
		{shop, "name", "shop.yaml:30: metadata.name: is wrong"},
		{shop, "labels", "shop.yaml:29: metadata.labels: is wrong"},
		{shop, "somewhere", "shop.yaml:32: spec.somewhere: is wrong"},
		{figure6, "endpoints[0].backends[0].host", "ananta-figure6.json:8: Endpoint[0].DIP[0].Host: is wrong"},
		{figure6, "endpoints[0].backends[0].address", "ananta-figure6.json:8: Endpoint[0].DIP[0].IP: is wrong"},
		{figure6, "endpoints[0].port", "ananta-figure6.json:6: Endpoint[0].port: is wrong"},
		{figure6, "address", "ananta-figure6.json:2: VIP: is wrong"},
		{figure6, "name", "ananta-figure6.json:2: VIP: is wrong"},
	}
	for _, c := range cases {
		if got := c.resource.Locate(&model.FieldError{Field: c.field, Reason: "is wrong"}).Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// A few lines must not become a billion values.
func TestAliasesAreBounded(t *testing.T) {
	head := "apiVersion: weir/v1\nkind: VIP\nmetadata: {name: bomb}\nspec:\n  address: 203.0.113.10\n  endpoints:\n"
	bomb := head + "  - {port: 80, backends: &b [" + strings.Repeat("&a {host: a, address: 10.0.0.1},", 1000) + "]}\n" +
		strings.Repeat("  - {port: 81, backends: *b}\n", 1000)
	if _, err := Parse("bomb", []byte(bomb)); err == nil || !strings.Contains(err.Error(), "is too large") {
		t.Errorf("a million backends were read: %v", err)
	}
	loop := head + "  - &e {port: 80, backends: [*e]}\n"
	if _, err := Parse("loop", []byte(loop)); err == nil {
		t.Error("a loop was accepted")
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{examples + "/*", "testdata/wrong/*[ln]"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		resources, err := Parse("fuzz", data)
		if err != nil {
			if err.Error() == "" || resources != nil {
				t.Fatalf("refused with %d resources and %q", len(resources), err)
			}
			return
		}
		for _, r := range resources {
			if err := r.validate(); err != nil {
				t.Fatalf("an invalid resource was accepted: %v", err)
			}
			text, err := Encode(Document{Message: r.Message})
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse("again", text)
			if err != nil {
				t.Fatalf("can't read back what was written: %v\n%s", err, text)
			}
			if !proto.Equal(again[0].Message, r.Message) {
				t.Fatalf("read back as %v, was %v\n%s", again[0].Message, r.Message, text)
			}
		}
	})
}

// A file of one long line does not come back whole.
func TestLongLinesAreShortened(t *testing.T) {
	_, err := Parse("long", []byte("a: ["+strings.Repeat("x,", 1<<20)+"]"))
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("got an error of %d bytes", len(fmt.Sprint(err)))
	}
}

// "tcp:" alone says how, as "tcp: {}" does.
func TestCheckByItsNameAlone(t *testing.T) {
	for _, check := range []string{"{tcp: }", "{tcp: {}}", "\n        tcp:"} {
		text := "apiVersion: weir/v1\nkind: VIP\nmetadata: {name: shop}\nspec:\n  address: 203.0.113.10\n  endpoints:\n" +
			"    - port: 80\n      healthCheck: " + check + "\n"
		resources, err := Parse("check", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if c := compiled(t, resources[0]).Endpoints[0].HealthCheck; c == nil || c.Type != model.CheckTCP {
			t.Errorf("%s is %+v", check, c)
		}
	}
}

// Switches and links of a fabric say whether they are down.
func TestTrueAndFalse(t *testing.T) {
	const fabric = `{apiVersion: weir/v1, kind: Fabric, metadata: {name: west}, spec: {
		switches: [{name: core-1}, {name: tor-1}, {name: tor-2, down: %s}],
		links: [{a: core-1, b: tor-1, mbitPerS: 10000}, {a: core-1, b: tor-2, mbitPerS: 10000}],
		racks: [{name: rack-1, switch: tor-1}]}}`
	resources, err := Parse("fabric", fmt.Appendf(nil, fabric, "true"))
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := resources[0].Message.(*weirv1.Fabric); !ok || !m.GetSwitches()[2].GetDown() || m.GetSwitches()[1].GetDown() {
		t.Errorf("read %v", resources[0].Message)
	}
	_, err = Parse("fabric", fmt.Appendf(nil, fabric, "yes"))
	if err == nil || !strings.Contains(err.Error(), `spec.switches[2].down: must be true or false, is "yes"`) {
		t.Errorf("yes: %v", err)
	}
}

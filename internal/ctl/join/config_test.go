package join

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/daemon"
)

const shipped = `# Configuration of weir-mux.

# our AS number; required with --peer
#as: 0

# URL of the manager
#manager: https://127.0.0.1:7400

# hash of the cluster's CA
#ca-hash:

# router to announce to
#peer: []
`

func settingsOf(pairs ...string) (all []setting) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, setting{pairs[i], strings.Split(pairs[i+1], "|")})
	}
	return all
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etc", "mux.yaml")
	if text != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func writeConfig(path string, settings []setting) (changed bool, err error) {
	p, err := planConfig(path, settings)
	if err != nil {
		return false, err
	}
	return p.changed, p.write()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Keys stand where the file that packages ship has their defaults, and a second run changes nothing.
func TestConfigIsWrittenIntoTheShippedFile(t *testing.T) {
	path := write(t, shipped)
	all := settingsOf("manager", "https://10.0.0.10:7400", "ca-hash", "sha256:ab", "as", "65010",
		"peer", "address=10.0.0.1,as=65000|address=10.0.0.2,as=65000")
	for run, want := range []bool{true, false} {
		changed, err := writeConfig(path, all)
		if err != nil || changed != want {
			t.Fatalf("run %d: changed %t, %v", run, changed, err)
		}
	}
	want := strings.NewReplacer("#as: 0", "as: 65010", "#manager: https://127.0.0.1:7400", "manager: https://10.0.0.10:7400",
		"#ca-hash:", "ca-hash: sha256:ab", "#peer: []", `peer: [address=10.0.0.1,as=65000, address=10.0.0.2,as=65000]`).Replace(shipped)
	want = strings.Replace(want, "[address=10.0.0.1,as=65000, address=10.0.0.2,as=65000]",
		`['address=10.0.0.1,as=65000', 'address=10.0.0.2,as=65000']`, 1)
	if got := strings.ReplaceAll(read(t, path), `"`, `'`); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A list that is there is the same however it is written, also in a file without lines of defaults.
func TestListIsFoundThere(t *testing.T) {
	for name, text := range map[string]string{
		"flow":  "peer: ['address=10.0.0.1,as=65000', 'address=10.0.0.2,as=65000']\n",
		"block": "peer:\n- address=10.0.0.1,as=65000\n- {address: 10.0.0.2, as: 65000}\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, text)
			changed, err := writeConfig(path, settingsOf("peer", "address=10.0.0.1,as=65000|address=10.0.0.2,as=65000"))
			if got := read(t, path); err != nil || changed || got != text {
				t.Errorf("changed %t, %v:\n%s", changed, err, got)
			}
		})
	}
	one := write(t, "peer: {address: 10.0.0.1, as: 65000}\n")
	if changed, err := writeConfig(one, settingsOf("peer", "address=10.0.0.1,as=65000")); err != nil || changed {
		t.Errorf("one: changed %t, %v", changed, err)
	}
}

func TestConfigIsNotWrittenOver(t *testing.T) {
	for name, c := range map[string]struct{ text, key, value, want string }{
		"another value":    {"manager: https://10.0.0.9:7400\n", "manager", "https://10.0.0.10:7400", "manager is https://10.0.0.9:7400 there"},
		"a key of no flag": {shipped, "pear", "10.0.0.1", "pear is no key: do you mean peer?"},
		"a second line":    {shipped, "as", "1\nlog-level: debug", "one line"},
		"no key":           {shipped, "as: 1 #", "x", "is no key"},
		"broken":           {"manager: [", "as", "1", "mux.yaml"},
		"another list":     {"peer: [address=10.0.0.1, address=10.0.0.2]\n", "peer", "address=10.0.0.1", "peer is address=10.0.0.1 address=10.0.0.2 there"},
		"an empty list":    {"peer: []\n", "peer", "address=10.0.0.1", "peer is without a value there"},
		"no value":         {"as:\n", "as", "1", "as is without a value there"},
		"twice":            {"as: 1\nas: 2\n", "name", "x", "as: stands there twice"},
		"another form":     {"{as: 1}\n", "name", "x", "by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, c.text)
			changed, err := writeConfig(path, []setting{{c.key, []string{c.value}}})
			if err == nil || changed || !strings.Contains(err.Error(), c.want) {
				t.Errorf("changed %t, %v; want %q", changed, err, c.want)
			}
			if got := read(t, path); got != c.text {
				t.Errorf("the file was changed:\n%s", got)
			}
		})
	}
}

// Who may read the file stays who may: it can name a password.
func TestConfigKeepsItsAccess(t *testing.T) {
	path := write(t, shipped)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 { // only root gives files away
		uid, gid = 1234, 1235
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	if changed, err := writeConfig(path, settingsOf("as", "1")); err != nil || !changed {
		t.Fatalf("changed %t, %v", changed, err)
	}
	got, err := accessOf(path)
	if want := (access{0o640, uid, gid}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// A symbolic link stays, and so does what it leads to.
func TestConfigIsNotWrittenThroughALink(t *testing.T) {
	target := write(t, shipped)
	link := filepath.Join(t.TempDir(), "mux.yaml")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, err := writeConfig(link, settingsOf("as", "1")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Error(err)
	}
	if at, err := os.Readlink(link); err != nil || at != target || read(t, target) != shipped {
		t.Errorf("%s, %v, %s", at, err, read(t, target))
	}
	// One that says what is asked for is left as it is.
	if err := os.WriteFile(target, []byte("as: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed, err := writeConfig(link, settingsOf("as", "1")); err != nil || changed {
		t.Errorf("changed %t, %v", changed, err)
	}
}

// What a value is made of does not end it: no key can be smuggled in behind it.
func TestValuesAreQuoted(t *testing.T) {
	path := write(t, "")
	if _, err := writeConfig(path, settingsOf("name", "a: b # c", "router-id", "'x\"")); err != nil {
		t.Fatal(err)
	}
	has, err := daemon.ReadConfig(path)
	if err != nil || has.Value("name") != "a: b # c" || has.Value("router-id") != "'x\"" || len(has) != 2 {
		t.Errorf("%q, %v\n%s", has, err, read(t, path))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// What the join itself goes by has a flag: --set would write it and not join by it.
func TestSetLeavesFlagsTheirKeys(t *testing.T) {
	for key, flag := range map[string]string{
		"name": "--name", "manager": "--manager", "join": "--manager", "ca-hash": "--ca-hash", "token-file": "--token-file",
	} {
		if err := CheckSet([]string{"as=1", key + "=x"}); err == nil || !strings.Contains(err.Error(), "is said by "+flag) {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, bad := range [][]string{{"as"}, {"as="}, {"data-dir=/a", "data-dir=/b"}} {
		if CheckSet(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	all, err := parseSet([]string{"peer=a=1,b=2", "as=1", "peer=c"})
	if want := settingsOf("peer", "a=1,b=2|c", "as", "1"); err != nil || !slices.EqualFunc(all, want, func(a, b setting) bool {
		return a.key == b.key && slices.Equal(a.values, b.values)
	}) {
		t.Errorf("%v, %v", all, err)
	}
}

func TestLineForAShell(t *testing.T) {
	l := Line{
		Role: "mux", Managers: "https://10.0.0.10:7400,https://10.0.0.11:7400", CAHash: "sha256:ab", Name: "mux7",
		Set: []string{"peer=address=10.0.0.1,as=65000", "router-id=it's"}, Token: "weir_join_ab.cd",
	}
	const args = `weir join mux --manager https://10.0.0.10:7400,https://10.0.0.11:7400 --ca-hash sha256:ab --name mux7 ` +
		`--set peer=address=10.0.0.1,as=65000 --set 'router-id=it'\''s'`
	if got, want := l.Shell(), "printf %s weir_join_ab.cd | sudo "+args; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	l.File = "token"
	if got, want := l.Shell(), "sudo "+args+" --token-file token"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// root is the repository's, seen from here.
const root = "../.."

func bin(t *testing.T) string {
	t.Helper()
	if set := os.Getenv("WEIR_BIN"); set != "" {
		return set
	}
	path, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// build writes the packages of those names, or of all, as of that version.
func build(t *testing.T, version string, names ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), version)
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/packages.sh"), append([]string{bin(t), out}, names...)...)
	cmd.Env = append(os.Environ(), "WEIR_PACKAGE_VERSION="+version)
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	return out
}

// built holds the packages of two versions, in folders of their names, for all tests.
var built struct {
	once   sync.Once
	folder string
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(built.folder)
	os.Exit(code)
}

// versions returns the folder with the packages 1.0.0, and, of the daemons, 1.0.1.
func versions(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		folder, err := os.MkdirTemp("", "weir-packages-")
		if err != nil {
			t.Fatal(err)
		}
		for version, names := range map[string][]string{"1.0.0": nil, "1.0.1": {"weir-mux", "weir-agent", "weir-manager"}} {
			if out, err := exec.Command("cp", "-r", build(t, version, names...), filepath.Join(folder, version)).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		built.folder = folder
	})
	if built.folder == "" {
		t.Fatal("the packages could not be built: see the first test that wanted them")
	}
	return built.folder
}

// What an operator does over the years, with dpkg: install, configure, upgrade, remove, install again, purge.
func TestDebLives(t *testing.T) {
	r := newRoom(t, versions(t))
	install := func(version string) string {
		t.Helper()
		return r.run("dpkg -i /mnt/" + version + "/*.deb")
	}
	holds(t, install("1.0.0"), "weir-mux: write /etc/weir/mux.yaml, then: systemctl enable --now weir-mux",
		"weir-manager: write /etc/weir/manager.yaml")
	for _, name := range []string{"mux", "agent", "manager"} {
		r.run("weir-" + name + " config | cmp - /etc/weir/" + name + ".yaml")
		r.run("dpkg-query -W -f '${Conffiles}' weir-" + name + " | grep -q /etc/weir/" + name + ".yaml")
	}
	r.run("weir --version")
	r.run("systemd-analyze verify --man=no /usr/lib/systemd/system/weir-*.service")
	holds(t, r.run("getent passwd weir"), "/var/lib/weir")

	r.run("echo 'interface: eth9' >> /etc/weir/mux.yaml && mkdir -p /var/lib/weir /var/lib/weir-mux && touch /var/lib/weir/db")
	if again := install("1.0.1"); strings.Contains(again, "systemctl enable") {
		t.Errorf("an upgrade tells how to begin:\n%s", again)
	}
	holds(t, r.run("dpkg-query -W -f '${Version}' weir-mux"), "1.0.1")
	holds(t, r.run("cat /etc/weir/mux.yaml"), "interface: eth9")
	holds(t, r.run("getent passwd | grep -c '^weir:'"), "1")
	install("1.0.1") // the same again harms nothing
	holds(t, r.run("cat /etc/weir/mux.yaml"), "interface: eth9")
	if printed, status := r.try("weir-mux --config /etc/weir/mux.yaml"); status == "0" || !strings.Contains(printed, "eth9") {
		t.Errorf("the program does not read its file: ended with %s: %s", status, printed)
	}

	r.run("dpkg -r weir-mux weir-agent weir-manager")
	holds(t, r.run("cat /etc/weir/mux.yaml"), "interface: eth9")
	r.run("test ! -e /usr/bin/weir-mux")
	holds(t, install("1.0.1"), "Setting up weir-mux")
	holds(t, r.run("cat /etc/weir/mux.yaml"), "interface: eth9")
	holds(t, r.run("dpkg -P weir-mux weir-manager"), "the database stays")
	r.run("test ! -e /etc/weir/mux.yaml && test ! -e /var/lib/weir-mux && test -e /var/lib/weir/db")
}

func TestRPMLives(t *testing.T) {
	r := newRoom(t, build(t, "1.0.0", "weir-mux"))
	holds(t, r.run("rpm -i --nodeps /mnt/weir-mux-*.rpm"), "weir-mux: write /etc/weir/mux.yaml")
	holds(t, r.run("rpm -qc weir-mux"), "/etc/weir/mux.yaml")
	holds(t, r.run("rpm -ql weir-mux"), "/usr/share/man/man8/weir-mux.8.gz", "/usr/share/bash-completion/completions/weir-mux",
		"/usr/share/zsh/site-functions/_weir-mux", "/usr/share/fish/vendor_completions.d/weir-mux.fish")
	holds(t, r.run("rpm -V --nodeps weir-mux; weir-mux --version"), "weir-mux version")
	r.run("echo 'interface: eth9' >> /etc/weir/mux.yaml && rpm -U --force --nodeps /mnt/weir-mux-*.rpm")
	holds(t, r.run("cat /etc/weir/mux.yaml"), "interface: eth9")
	r.run("rpm -e weir-mux && test ! -e /usr/bin/weir-mux")
	holds(t, r.run("cat /etc/weir/mux.yaml.rpmsave"), "interface: eth9")
}

// One program twice gives one file, so that anybody can check what was built from which commit.
func TestPackagesAreReproducible(t *testing.T) {
	sums := func() string {
		data, err := os.ReadFile(filepath.Join(build(t, "1.0.0", "weir-agent"), "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if a, b := sums(), sums(); a != b || strings.Count(a, "\n") != 2 {
		t.Errorf("packages differ:\n%s\n%s", a, b)
	}
}

var copied = regexp.MustCompile(`(?m)^COPY (\S+) (\S+)$`)

// What all container files copy is there, and what they start was copied. TestRelease makes the image of one.
func TestContainerFilesCopyWhatIsThere(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "deploy/containers/Containerfile.*"))
	if err != nil || len(paths) != 5 {
		t.Fatalf("found %q, %v", paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var targets []string
		for _, c := range copied.FindAllStringSubmatch(string(text), -1) {
			source := filepath.Join(root, c[1])
			if name, built := strings.CutPrefix(c[1], "bin/"); built {
				source = filepath.Join(bin(t), name)
			}
			if _, err := os.Stat(source); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			targets = append(targets, c[2])
		}
		entry := regexp.MustCompile(`(?m)^ENTRYPOINT \["([^"]+)"`).FindStringSubmatch(string(text))
		if entry == nil || !slices.Contains(targets, entry[1]) {
			t.Errorf("%s starts %v, which it does not copy: %q", path, entry, targets)
		}
		if !strings.Contains(string(text), "\nFROM scratch\n") {
			t.Errorf("%s: static programs need nothing around them", path)
		}
	}
}

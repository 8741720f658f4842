package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// release writes one of these programs, for this machine's architecture, which a test has for nothing. Other
// architectures are built by make release alone.
func release(t *testing.T, programs string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "release")
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/release.sh"), out, arch(t))
	cmd.Env = append(os.Environ(), "WEIR_BIN="+bin(t), "WEIR_PACKAGE_VERSION=1.0.0", "SOURCE_DATE_EPOCH=1700000000", "PROGRAMS="+programs)
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	return out
}

func arch(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOARCH").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func contents(t *testing.T, pattern string) []byte {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// unpack reads a tar file whole.
func unpack(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func unzip(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// A release is what users get: each part is read as a user's tools would, apt by itself.
func TestRelease(t *testing.T) {
	t.Parallel()
	out := release(t, "weir-agent")
	t.Run("sums", func(t *testing.T) { sumsAreRight(t, out) })
	t.Run("apt", func(t *testing.T) { aptInstalls(t, out) })
	t.Run("yum", func(t *testing.T) { yumHasAll(t, out) })
	t.Run("archive", func(t *testing.T) { archiveHoldsTheProgram(t, out) })
	t.Run("image", func(t *testing.T) { imageIsTheContainerfile(t, out) })
	t.Run("sbom", func(t *testing.T) { sbomHasTheModules(t, out) })
	t.Run("again", func(t *testing.T) {
		first, second := contents(t, out+"/SHA256SUMS"), contents(t, release(t, "weir-agent")+"/SHA256SUMS")
		if !bytes.Equal(first, second) {
			t.Errorf("two runs differ:\n%s\n%s", first, second)
		}
	})
}

func sumsAreRight(t *testing.T, out string) {
	listed := map[string]string{}
	for line := range strings.Lines(string(contents(t, out+"/SHA256SUMS"))) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = digest
	}
	files := 0
	err := filepath.WalkDir(out, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		files++
		name, _ := filepath.Rel(out, path)
		if listed[name] != sum(contents(t, path)) {
			t.Errorf("the sum of %s is listed as %q", name, listed[name])
		}
		return nil
	})
	if err != nil || files != len(listed) {
		t.Errorf("%d files, %d sums, %v", files, len(listed), err)
	}
}

func aptInstalls(t *testing.T, out string) {
	r := newRoom(t, out)
	only := "-o Dir::Etc::sourceparts=- -o Dir::Etc::sourcelist=/etc/apt/weir.list -o APT::Sandbox::User=root"
	r.run("echo 'deb [trusted=yes] file:/mnt/apt stable main' >/etc/apt/weir.list")
	r.run("apt-get update " + only)
	r.run("DEBIAN_FRONTEND=noninteractive apt-get install -qy " + only + " weir-agent")
	holds(t, r.run("dpkg-query -W -f '${Version}' weir-agent"), "1.0.0")
	holds(t, r.run("stat -c %F /usr/bin/weir-agent"), "regular file") // the room has this machine's files, which a link would find
	holds(t, r.run("man -l /usr/share/man/man8/weir-agent.8.gz"), "--uplink", "WEIR-AGENT(8)")
	r.run("man -l /usr/share/man/man8/weir-agent-status.8.gz")
	r.run(". /usr/share/bash-completion/completions/weir-agent && complete -p weir-agent")
	r.run("test -s /usr/share/zsh/vendor-completions/_weir-agent && test -s /usr/share/fish/vendor_completions.d/weir-agent.fish")
}

func yumHasAll(t *testing.T, out string) {
	var index struct {
		Packages []struct {
			Name     string `xml:"name"`
			Checksum string `xml:"checksum"`
			Location struct {
				Href string `xml:"href,attr"`
			} `xml:"location"`
		} `xml:"package"`
	}
	if err := xml.Unmarshal(unzip(t, contents(t, out+"/yum/*/repodata/primary.xml.gz")), &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Packages) != 1 || index.Packages[0].Name != "weir-agent" {
		t.Fatalf("the index has %+v", index)
	}
	if file := contents(t, out+"/yum/*/"+index.Packages[0].Location.Href); sum(file) != index.Packages[0].Checksum {
		t.Errorf("the index has another sum of %s", index.Packages[0].Location.Href)
	}
}

func archiveHoldsTheProgram(t *testing.T, out string) {
	files := unpack(t, unzip(t, contents(t, out+"/archives/*.tar.gz")))
	tree := "weir_1.0.0_linux_" + arch(t)
	if !bytes.Equal(files[tree+"/bin/weir-agent"], contents(t, bin(t)+"/weir-agent")) {
		t.Error("the archive has another program")
	}
	for _, name := range []string{"share/man/man8/weir-agent.8.gz", "config/agent.yaml", "systemd/weir-agent.service", "LICENSE"} {
		if len(files[tree+"/"+name]) == 0 {
			t.Errorf("the archive lacks %s", name)
		}
	}
}

// An OCI archive is a chain of sums, from the index to the files; podman and containerd follow it so.
func imageIsTheContainerfile(t *testing.T, out string) {
	files := unpack(t, contents(t, out+"/images/weir-agent_1.0.0_*.oci.tar"))
	type descriptor struct{ Digest string }
	read := func(name string, into any) {
		t.Helper()
		data := files["blobs/"+strings.Replace(name, ":", "/", 1)]
		if name != "index.json" && name != "sha256:"+sum(data) {
			t.Fatalf("the archive has %d bytes of another sum as %s", len(data), name)
		}
		if name == "index.json" {
			data = files[name]
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var index struct{ Manifests []descriptor }
	read("index.json", &index)
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(index.Manifests[0].Digest, &manifest)
	var config struct {
		Architecture, OS string
		Config           struct{ Entrypoint []string }
		RootFS           struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(manifest.Config.Digest, &config)
	packed := files["blobs/"+strings.Replace(manifest.Layers[0].Digest, ":", "/", 1)]
	layer := unzip(t, packed)
	if config.RootFS.DiffIDs[0] != "sha256:"+sum(layer) || manifest.Layers[0].Digest != "sha256:"+sum(packed) {
		t.Error("the layer has another sum")
	}
	if want := []string{"/usr/bin/weir-agent", "--config", "/etc/weir/agent.yaml"}; !slices.Equal(config.Config.Entrypoint, want) {
		t.Errorf("the image starts %q", config.Config.Entrypoint)
	}
	if config.Architecture != arch(t) || config.OS != "linux" {
		t.Errorf("the image is of %s, %s", config.OS, config.Architecture)
	}
	in := unpack(t, layer)
	if !bytes.Equal(in["usr/bin/weir-agent"], contents(t, bin(t)+"/weir-agent")) || len(in["etc/weir/agent.yaml"]) == 0 {
		t.Error("the layer lacks the program or its configuration")
	}
}

func sbomHasTheModules(t *testing.T, out string) {
	var bom struct {
		Components []struct{ Purl string }
	}
	if err := json.Unmarshal(contents(t, out+"/sbom/weir-agent_1.0.0_*.cdx.json"), &bom); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, c := range bom.Components {
		listed[c.Purl] = true
	}
	info, err := buildinfo.ReadFile(bin(t) + "/weir-agent")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		if !listed["pkg:golang/"+m.Path+"@"+m.Version] {
			t.Errorf("the bill of materials lacks %s %s", m.Path, m.Version)
		}
	}
	if len(listed) != len(info.Deps)+1 || !listed["pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go")] {
		t.Errorf("%d modules and the standard library of %s, listed are %d", len(info.Deps), info.GoVersion, len(listed))
	}
}

// The other architecture of a release is built by make release only; what would keep it from that is seen here: each
// package of the programs has its files, the compiled eBPF programs too.
func TestProgramsHaveFilesForBothArchitectures(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{if .Error}}{{.ImportPath}}: {{.Error}}{{end}}", "./cmd/...")
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: %v\n%s", arch, err, out)
		}
	}
}

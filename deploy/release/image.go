package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An image is made of a Containerfile that starts from scratch, copies files and says how to start: nothing is run, so
// that neither a daemon nor a machine of its architecture is needed.
type image struct {
	containerfile string
	bin           string // what COPY bin/... means
	arch          string // as Go names it
	version       string
	made          time.Time
}

// recipe is what the lines of a Containerfile ask for.
type recipe struct {
	copies     [][2]string // from, to
	user       string
	entrypoint []string
}

func readRecipe(file string) (recipe, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return recipe{}, err
	}
	var r recipe
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		fields := strings.Fields(rest)
		switch {
		case word == "" || strings.HasPrefix(word, "#") || word == "FROM" && rest == "scratch":
		case word == "COPY" && len(fields) == 2:
			r.copies = append(r.copies, [2]string{fields[0], fields[1]})
		case word == "USER" && len(fields) == 1:
			r.user = fields[0]
		case word == "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &r.entrypoint); err != nil {
				return recipe{}, fmt.Errorf("read %s: ENTRYPOINT: %w", file, err)
			}
		default:
			return recipe{}, fmt.Errorf("read %s: %q is none of FROM scratch, COPY, USER and ENTRYPOINT", file, strings.TrimSpace(line))
		}
	}
	return r, nil
}

// Types of the OCI image specification, v1.1, as far as an image has them here.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	config struct {
		platform
		Created time.Time `json:"created"`
		Config  struct {
			User       string            `json:"User,omitempty"`
			Entrypoint []string          `json:"Entrypoint"`
			Labels     map[string]string `json:"Labels"`
		} `json:"config"`
		RootFS struct {
			Type    string   `json:"type"`
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	manifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}
	index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
)

// archive is a tar file with sorted times and owners: all that is in it is as old as made and of root.
type archive struct {
	bytes.Buffer
	tar  *tar.Writer
	made time.Time
	dirs map[string]bool
}

func newArchive(made time.Time) *archive {
	a := &archive{made: made, dirs: map[string]bool{".": true, "/": true}}
	a.tar = tar.NewWriter(a)
	return a
}

func (a *archive) add(name string, mode int64, data []byte) error {
	if err := a.directory(path.Dir(name)); err != nil {
		return err
	}
	header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(data)), ModTime: a.made}
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := a.tar.Write(data)
	return err
}

func (a *archive) directory(name string) error {
	if a.dirs[name] {
		return nil
	}
	if err := a.directory(path.Dir(name)); err != nil {
		return err
	}
	a.dirs[name] = true
	return a.tar.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: a.made})
}

// layer packs the copies of a recipe, and returns them as they are and compressed.
func (i image) layer(r recipe) (plain, packed []byte, err error) {
	a := newArchive(i.made)
	for _, c := range r.copies {
		from, mode := c[0], int64(0o644)
		if name, built := strings.CutPrefix(from, "bin/"); built {
			from, mode = filepath.Join(i.bin, name), 0o755
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, nil, err
		}
		if err := a.add(strings.TrimPrefix(c[1], "/"), mode, data); err != nil {
			return nil, nil, err
		}
	}
	if err := a.tar.Close(); err != nil {
		return nil, nil, err
	}
	var squeezed bytes.Buffer
	zip := gzip.NewWriter(&squeezed)
	if _, err := zip.Write(a.Bytes()); err != nil {
		return nil, nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, nil, err
	}
	return a.Bytes(), squeezed.Bytes(), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// writeImage writes the OCI archive, as podman load, skopeo copy oci-archive:... and ctr image import take it.
func writeImage(i image, out string) error {
	r, err := readRecipe(i.containerfile)
	if err != nil {
		return err
	}
	if len(r.entrypoint) == 0 {
		return fmt.Errorf("read %s: there is no ENTRYPOINT", i.containerfile)
	}
	plain, packed, err := i.layer(r)
	if err != nil {
		return fmt.Errorf("pack what %s copies: %w", i.containerfile, err)
	}
	name := strings.TrimPrefix(filepath.Base(i.containerfile), "Containerfile.")
	if name != "weir" {
		name = "weir-" + name
	}
	a := newArchive(i.made)
	blobs := map[string][]byte{}
	blob := func(kind string, data []byte) descriptor {
		sum := digest(data)
		blobs[sum] = data
		return descriptor{MediaType: "application/vnd.oci.image." + kind, Digest: sum, Size: len(data)}
	}
	of := platform{Architecture: i.arch, OS: "linux"}
	c := config{platform: of, Created: i.made}
	c.Config.User, c.Config.Entrypoint = r.user, r.entrypoint
	c.Config.Labels = map[string]string{"org.opencontainers.image.version": i.version, "org.opencontainers.image.title": name}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{digest(plain)}
	m := manifest{
		SchemaVersion: 2, MediaType: "application/vnd.oci.image.manifest.v1+json",
		Config: blob("config.v1+json", encode(c)), Layers: []descriptor{blob("layer.v1.tar+gzip", packed)},
	}
	top := blob("manifest.v1+json", encode(m))
	top.Platform, top.Annotations = &of, map[string]string{"org.opencontainers.image.ref.name": reference(name, i.version)}
	files := map[string][]byte{
		"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`),
		"index.json": encode(index{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json", Manifests: []descriptor{top}}),
	}
	for sum, data := range blobs {
		files["blobs/"+strings.Replace(sum, ":", "/", 1)] = data
	}
	return a.writeAll(files, out)
}

// reference is an image's name and tag. A tag can't hold the + of a version between two releases.
func reference(name, version string) string {
	return name + ":" + strings.ReplaceAll(version, "+", "-")
}

// writeAll adds the files by name and writes the archive.
func (a *archive) writeAll(files map[string][]byte, out string) error {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := a.add(name, 0o644, files[name]); err != nil {
			return err
		}
	}
	if err := a.tar.Close(); err != nil {
		return err
	}
	return os.WriteFile(out, a.Bytes(), 0o644)
}

// encode writes what can't fail: these types have no maps of other keys, channels or functions.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

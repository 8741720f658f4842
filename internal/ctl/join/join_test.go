package join

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/doctor"
	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/testkit/terminal"
	"github.com/weirlb/weir/internal/trust"
)

// cluster is a real manager, and its first user.
type cluster struct {
	url    string
	client *rpc.Client
}

func found(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	m, err := manager.New(ctx, manager.Config{Listen: "127.0.0.1:0", DataDir: dir, Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
		m.Close()
	})
	access, err := rpc.ReadConfig(pki.AdminFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	client, err := access.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return &cluster{"https://" + m.Address().String(), client}
}

func (c *cluster) token(t *testing.T, role string) *weirv1.CreateTokenResponse {
	t.Helper()
	made, err := c.client.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: role, Uses: 1, Ttl: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// node is a machine whose files lie below a folder.
type node struct {
	root string
	name string // empty: mux7
	set  []string
	out  bytes.Buffer
}

func (n *node) join(t *testing.T, c *cluster, caHash, token string) error {
	t.Helper()
	n.out.Reset()
	r := request{
		out: &n.out, errOut: &n.out, role: roles["mux"], name: "mux", managers: c.url, caHash: caHash, node: cmp.Or(n.name, "mux7"),
		set: append([]string{"interface=lo", "as=65010"}, n.set...), root: n.root, force: true,
	}
	return r.run(t.Context(), strings.NewReader(token), func([]doctor.Finding) error { return nil })
}

// files are all of the machine, with what is in them.
func (n *node) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(n.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, n.root)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestJoin(t *testing.T) {
	c, n := found(t), &node{root: t.TempDir()}
	made := c.token(t, "mux")
	if err := n.join(t, c, made.GetCaHash(), made.GetText()+"\n"); err != nil {
		t.Fatalf("%v\n%s", err, &n.out)
	}
	dataDir := filepath.Join(n.root, "var/lib/weir-mux")
	credential, err := trust.LoadCredential(dataDir)
	if err != nil || !credential.Identity.Is(trust.Mux, "mux7") {
		t.Fatalf("the certificate: %v, %v", credential, err)
	}
	if info, err := os.Stat(trust.NodeFile(dataDir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	if info, err := os.Stat(dataDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory: %v, %v", info, err)
	}
	before := n.files(t)
	for path, text := range before {
		if strings.Contains(text, "weir_join_") {
			t.Errorf("the token is left in %s", path)
		}
	}
	want := "manager: " + c.url + "\nca-hash: " + made.GetCaHash() + "\nname: mux7\ninterface: lo\nas: 65010\n"
	if got := before["/etc/weir/mux.yaml"]; got != want {
		t.Errorf("configuration\n%s\nwant\n%s", got, want)
	}

	// A second run needs no token, and changes nothing.
	if err := n.join(t, c, made.GetCaHash(), ""); err != nil {
		t.Fatalf("a second run: %v", err)
	}
	for path, text := range n.files(t) {
		if before[path] != text {
			t.Errorf("%s was changed by a second run", path)
		}
	}

	// Another cluster's line is refused, before its token is used.
	other := found(t)
	theirs := other.token(t, "mux")
	err = n.join(t, other, theirs.GetCaHash(), theirs.GetText())
	if err == nil || !strings.Contains(err.Error(), "is of another cluster") {
		t.Errorf("another cluster's line: %v", err)
	}
	if err := os.Remove(filepath.Join(n.root, "etc/weir/mux.yaml")); err != nil {
		t.Fatal(err)
	}
	err = n.join(t, other, theirs.GetCaHash(), theirs.GetText())
	if err == nil || !strings.Contains(err.Error(), "holds a certificate of another cluster") {
		t.Errorf("another cluster's line, without a configuration: %v", err)
	}
	if len(n.files(t)) != len(before)-1 {
		t.Errorf("a refused line left files: %q", n.files(t))
	}
}

// A line that is wrong leaves no certificate, and says what is wrong.
func TestJoinIsRefused(t *testing.T) {
	c := found(t)
	other := found(t)
	for name, j := range map[string]struct {
		hash, token, want string
	}{
		"no token":               {c.token(t, "mux").GetCaHash(), "", "read the token from standard input"},
		"half a token":           {c.token(t, "mux").GetCaHash(), c.token(t, "mux").GetText()[:30], "read the token from standard input"},
		"a token of agents":      {c.token(t, "mux").GetCaHash(), c.token(t, "agent").GetText(), "join the cluster"},
		"a manager of another's": {other.token(t, "mux").GetCaHash(), other.token(t, "mux").GetText(), "join the cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{root: t.TempDir()}
			err := n.join(t, c, j.hash, j.token)
			if err == nil || !strings.Contains(err.Error(), j.want) {
				t.Errorf("%v; want %q", err, j.want)
			}
			for path, text := range n.files(t) {
				if strings.HasSuffix(path, ".pem") || strings.Contains(text, "weir_join_") {
					t.Errorf("%s is left", path)
				}
			}
		})
	}
	again := &node{root: t.TempDir()}
	made := c.token(t, "mux")
	if err := again.join(t, c, made.GetCaHash(), made.GetText()); err != nil {
		t.Fatal(err)
	}
	if err := (&node{root: t.TempDir()}).join(t, c, made.GetCaHash(), made.GetText()); err == nil {
		t.Error("a token of one use was good for two machines")
	}
}

// The certificate lies where the daemon looks for it.
func TestJoinKeepsToTheDataDirectoryOfTheLine(t *testing.T) {
	c, n := found(t), &node{root: t.TempDir(), set: []string{"data-dir=/srv/mux"}}
	made := c.token(t, "mux")
	for run := range 2 {
		if err := n.join(t, c, made.GetCaHash(), made.GetText()); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
	}
	if _, err := trust.LoadCredential(filepath.Join(n.root, "srv/mux")); err != nil {
		t.Error(err)
	}
	if text := n.files(t)["/etc/weir/mux.yaml"]; !strings.Contains(text, "data-dir: /srv/mux\n") {
		t.Error(text)
	}
	relative := &node{root: t.TempDir(), set: []string{"data-dir=srv"}}
	if err := relative.join(t, c, made.GetCaHash(), made.GetText()); err == nil || !strings.Contains(err.Error(), "must begin with /") {
		t.Errorf("a relative one: %v", err)
	}
}

// A machine that joined is not taken for another one.
func TestJoinUnderAnotherNameIsRefused(t *testing.T) {
	c, n := found(t), &node{root: t.TempDir()}
	made := c.token(t, "mux")
	if err := n.join(t, c, made.GetCaHash(), made.GetText()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.root, "etc/weir/mux.yaml")); err != nil { // that names the first
		t.Fatal(err)
	}
	before := n.files(t)
	n.name = "b"
	err := n.join(t, c, made.GetCaHash(), c.token(t, "mux").GetText())
	if err == nil || !strings.Contains(err.Error(), "holds the certificate of mux/mux7, and mux/b is asked for") {
		t.Errorf("another name: %v", err)
	}
	if len(n.files(t)) != len(before) {
		t.Errorf("files were written: %q", n.files(t))
	}
}

// A token that nobody could use is not left on the machine.
func TestManagersTokenNeedsItsUser(t *testing.T) {
	n := &node{root: t.TempDir()}
	r := request{out: &n.out, role: role{unit: "weir-manager", owner: "no-such-user"}}
	err := r.keepToken(filepath.Join(n.root, "etc/weir/manager.token"), "weir_join_a.b")
	if err == nil || !strings.Contains(err.Error(), "install the package first") {
		t.Error(err)
	}
	if left := n.files(t); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	r.role.owner = me.Username
	path := filepath.Join(n.root, "etc/weir/manager.token")
	if err := r.keepToken(path, "weir_join_a.b"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// Whoever runs join without a pipe is told what it waits for, ends the token by Enter, and can leave.
func TestTokenIsAskedForOnATerminal(t *testing.T) {
	const token = "weir_join_0123456789ab.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	person, program := terminal.Open(t)
	var told bytes.Buffer
	r := request{errOut: &told}
	if _, err := person.WriteString(token + "\n"); err != nil {
		t.Fatal(err)
	}
	got, err := r.token(t.Context(), program)
	if err != nil || got != token || !strings.Contains(told.String(), "the token that weir token create told") {
		t.Errorf("%q, %v, told %q", got, err, &told)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := r.token(left, program); !errors.Is(err, context.Canceled) {
		t.Errorf("it goes on: %v", err)
	}
	if state, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS); err != nil || state.Lflag&unix.ECHO == 0 {
		t.Errorf("%v: what the person types next is not shown", err)
	}
}

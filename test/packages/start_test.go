package packages

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netns"
)

// The machines of docs/start/three-servers.md: four under systemd, each with a root and namespaces of its own, and a
// client behind the router. The switch between router and servers is a bridge of the router's. WEIR_PACKAGES is a folder
// with the packages that they get; by default they are made here.
//
//	client eth0 ── out  router  br0 ── p1, p2, p3 ── eth0 of server1, server2, server3
//	198.51.100.2   .1           10.0.0.1, 2001:db8:10::1
type machines struct {
	rooms  map[string]*room
	pids   map[string]int // of the first processes
	client *netns.NS
	token  map[string]string // what weir token create told last
	line   []string          // the line to join by that it printed, as words has it
}

const walk = "docs/start/three-servers.md"

// blockOfPage is a block of the page: commands on some machines, or a file of one.
var blockOfPage = regexp.MustCompile("(?m)^(?:<!-- on ([a-z0-9 ]+) -->\n```sh|<!-- ([a-z0-9]+) (/[a-z/.]+) -->\n```text)\n((?s:.*?))^```$")

func TestThreeServers(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, walk))
	if err != nil {
		t.Fatal(err)
	}
	found := blockOfPage.FindAllStringSubmatch(string(page), -1)
	if fences := strings.Count(string(page), "\n```sh\n"); len(found) != fences+1 {
		t.Fatalf("the page has %d blocks of commands and one file; %d say where they belong", fences, len(found))
	}
	m := raise(t)
	for _, block := range found {
		if file := block[3]; file != "" {
			m.rooms[block[2]].run("cat >" + file + " <<'END'\n" + block[4] + "END")
			continue
		}
		for _, machine := range strings.Fields(block[1]) {
			m.play(t, machine, block[4])
		}
	}
	m.reachBoth(t)
}

// raise boots the machines and wires them.
func raise(t *testing.T) *machines {
	t.Helper()
	m := &machines{rooms: map[string]*room{}, pids: map[string]int{}, client: netns.New(t, "start-client")}
	router := m.boot(t, "router")
	m.rooms["router"].run("ip link add br0 type bridge && ip link set br0 up && ip address add 10.0.0.1/24 dev br0 && ip address add 2001:db8:10::1/64 dev br0 nodad")
	join(t, router, "out", m.client, "eth0")
	m.rooms["router"].run("ip address add 198.51.100.1/24 dev out && ip address add 2001:db8:51::1/64 dev out nodad")
	for _, add := range []string{"address add 198.51.100.2/24 dev eth0", "address add 2001:db8:51::2/64 dev eth0 nodad", "route add default via 198.51.100.1", "-6 route add default via 2001:db8:51::1"} {
		if out, err := m.client.Run("ip", strings.Fields(add)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for i := 1; i <= 3; i++ {
		name, port := fmt.Sprintf("server%d", i), fmt.Sprintf("p%d", i)
		join(t, router, port, m.boot(t, name), "eth0")
		m.rooms["router"].run("ip link set " + port + " master br0")
		// A veth has no wire: the mux's program would send on packets whose checksum a card was to compute.
		if err := errors.Join(router.PassXDP(port), router.SetOffload(port, netns.TxChecksum, false)); err != nil {
			t.Fatal(err)
		}
		m.rooms[name].run(fmt.Sprintf(`cd /mnt
ip address add 10.0.0.1%d/24 dev eth0 && ip address add 2001:db8:10::1%[1]d/64 dev eth0 nodad
ip route add default via 10.0.0.1 && ip -6 route add default via 2001:db8:10::1`, i))
	}
	return m
}

func join(t *testing.T, a *netns.NS, aName string, b *netns.NS, bName string) {
	t.Helper()
	if err := netns.Veth(a, aName, b, bName); err != nil {
		t.Fatal(err)
	}
}

// boot starts a machine, and gives its network namespace a name for as long as the test runs.
func (m *machines) boot(t *testing.T, name string) *netns.NS {
	t.Helper()
	packages := os.Getenv("WEIR_PACKAGES")
	if packages == "" {
		packages = versions(t) + "/1.0.0"
	}
	r, pid := bootRoom(t, packages)
	m.rooms[name], m.pids[name] = r, pid
	r.run("hostname " + name)
	attached := "start-" + name
	_ = exec.Command("ip", "netns", "delete", attached).Run() // of a test that crashed
	if out, err := exec.Command("ip", "netns", "attach", attached, strconv.Itoa(pid)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", attached).Run() })
	ns, err := netns.Open(attached)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// play has a machine run a block as it stands, but for TOKEN and HASH, which the page tells the reader to replace.
func (m *machines) play(t *testing.T, machine, commands string) {
	t.Helper()
	for word, text := range m.token {
		commands = strings.ReplaceAll(commands, word, text)
	}
	if machine == "client" {
		out, err := m.client.Run("bash", "-euo", "pipefail", "-c", commands)
		if err != nil || !strings.Contains(out, "server") {
			t.Fatalf("client: %s\n%v\n%s", commands, err, out)
		}
		return
	}
	r := m.rooms[machine]
	if r == nil {
		t.Fatalf("%s has commands for %q, which is no machine of it", walk, machine)
	}
	for _, command := range split(commands) {
		printed := r.run(command)
		if strings.HasPrefix(command, "weir token create") {
			told := regexp.MustCompile(`(?m)^(token|ca-hash)\s+(\S+)$`).FindAllStringSubmatch(printed, -1)
			m.token = map[string]string{"TOKEN": told[0][2], "HASH": told[1][2]}
			m.line = words(regexp.MustCompile(`(?m)^.*printf %s .*$`).FindString(printed))
		}
		if strings.Contains(command, "weir join") && !slices.Equal(words(command), m.line) {
			t.Errorf("the page has the line %q, and weir token create printed %q", words(command), m.line)
		}
		if strings.HasPrefix(command, "systemctl enable --now weir-manager") {
			r.soon("journalctl --unit weir-manager | grep 'file=/var/lib/weir/admin.yaml'") // it says where the first user is
		}
		if strings.HasPrefix(command, "ip ") && strings.Contains(command, "route show") {
			r.soon(strings.TrimSpace(command) + " | grep via")
		}
	}
}

// words are those of a command, which may go on in a next line; root needs no sudo.
func words(command string) []string {
	return slices.DeleteFunc(strings.Fields(command), func(word string) bool { return word == `\` || word == "sudo" })
}

// split makes single commands of lines, so that each must succeed: a here-document and lines that go on belong to theirs.
func split(block string) (commands []string) {
	here := false
	for line := range strings.Lines(block) {
		if here {
			commands[len(commands)-1] += line
			here = line != "END\n"
			continue
		}
		if len(commands) > 0 && strings.HasSuffix(commands[len(commands)-1], "\\\n") {
			commands[len(commands)-1] += line
			continue
		}
		commands = append(commands, line)
		here = strings.HasSuffix(line, "<<END\n")
	}
	return commands
}

// reachBoth asks until both servers have answered by both VIPs: the router's routes lead there, and the mux spreads. A
// server that was not healthy yet when the manager died has no part until it is back. No request may fail meanwhile.
func (m *machines) reachBoth(t *testing.T) {
	t.Helper()
	for _, url := range []string{"http://203.0.113.80/", "http://[2001:db8:113::80]/"} {
		command := `for i in $(seq 32); do curl --silent --show-error --max-time 5 '` + url + `' || exit; done | sort | uniq -c`
		for began := time.Now(); ; {
			out, err := m.client.Run("bash", "-o", "pipefail", "-c", command)
			if err == nil && strings.Contains(out, "server2") && strings.Contains(out, "server3") {
				break
			}
			if err != nil || time.Since(began) > time.Minute {
				t.Errorf("%s: %v\n%s", url, err, out)
				break
			}
		}
	}
}

// No other page of docs/start has commands, for nobody would run them.
func TestOnlyTheWalkHasCommands(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs/start/*.md"))
	if err != nil || len(pages) < 6 {
		t.Fatalf("found %q, %v", pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "```sh\n") && filepath.Base(page) != filepath.Base(walk) {
			t.Errorf("%s has commands: move them to %s, or play the page too", page, walk)
		}
	}
}

package packages

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The playbook of the collection makes of the machines of docs/start/three-servers.md what the page does, and a second run
// changes nothing.
func TestAnsible(t *testing.T) {
	ansible := os.Getenv("WEIR_ANSIBLE") // the program ansible-playbook
	if ansible == "" {
		t.Skip("needs Ansible: make ansible-test runs it")
	}
	m := raise(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "site.ini"), m.inventory(filepath.Join(versions(t), "1.0.0")))
	collection, err := filepath.Abs(filepath.Join(root, "deploy/ansible"))
	if err != nil {
		t.Fatal(err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "ansible_collections/weir"), 0o755))
	must(t, os.Symlink(collection, filepath.Join(dir, "ansible_collections/weir/weir")))
	plugins, err := filepath.Abs("testdata")
	must(t, err)
	play := func() string {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), ansible, "-i", "site.ini", filepath.Join(collection, "playbooks/site.yml"))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "ANSIBLE_COLLECTIONS_PATH="+dir, "ANSIBLE_CONNECTION_PLUGINS="+plugins, "ANSIBLE_LOCALHOST_WARNING=false",
			"ANSIBLE_HOME="+dir, "ANSIBLE_NOCOLOR=1", "LC_ALL=C.UTF-8")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	play()
	if out := play(); strings.Count(out, "changed=0 ") != len(m.rooms) {
		t.Errorf("the second run changes something:\n%s", out)
	}
	page, err := os.ReadFile(filepath.Join(root, walk))
	must(t, err)
	for _, block := range blockOfPage.FindAllStringSubmatch(string(page), -1) {
		switch commands := block[4]; {
		case strings.Contains(commands, "systemd-run --unit web"): // the service
			for _, machine := range strings.Fields(block[1]) {
				m.play(t, machine, commands)
			}
		case strings.Contains(commands, "cat >web.yaml"): // the VIPs
			m.play(t, block[1], "export WEIR_CONFIG=/var/lib/weir/admin.yaml\n"+commands)
		case block[1] == "client": // it asks until somebody answers
			m.rooms["router"].soon("ip route show 203.0.113.80 | grep via && ip -6 route show 2001:db8:113::80 | grep via")
			m.play(t, block[1], commands)
		}
	}
	m.reachBoth(t)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inventory is that of the machines, whose addresses are the ids of their first processes.
func (m *machines) inventory(packages string) string {
	var text strings.Builder
	for group, names := range map[string][]string{"routers": {"router"}, "managers": {"server1"}, "muxes": {"server1"}, "agents": {"server2", "server3"}} {
		fmt.Fprintf(&text, "[%s]\n", group)
		for _, name := range names {
			fmt.Fprintf(&text, "%s ansible_host=%d\n", name, m.pids[name])
		}
	}
	text.WriteString(`[all:vars]
ansible_connection=room
ansible_python_interpreter=/usr/bin/python3
weir_packages=` + packages + `
weir_manager_url=https://10.0.0.11:7400
weir_manager_config={"listen": "10.0.0.11:7400"}
weir_mux_config={"interface": "eth0", "as": 65010, "peer": [{"address": "10.0.0.1", "as": 65000, "bfd": "100ms"}]}
weir_agent_config={"uplink": "eth0"}
weir_router={"as": 65000, "mux_as": 65010, "id": "10.0.0.1", "password": "", "muxes": ["10.0.0.11"], "vips4": "203.0.113.0/24", "vips6": "2001:db8:113::/48"}
`)
	return text.String()
}

package faults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/etcd"
)

// external is the lab of managers on an external etcd.
func external() string { return *labName + "x" }

// members are the machines of the external etcd.
var members = []string{"client4", "client5", "client6"}

// memberProgram is what they run: this test's own program by another name, which has etcd in it.
const memberProgram = "etcd"

func runMember() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	member, err := etcd.ParseMember(os.Args[1:])
	if err == nil {
		err = member.Run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startStore starts the members of the external etcd. They form a cluster beside what comes next.
func startStore(lab *netlab.Lab) (endpoints string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(lab.Dir(), memberProgram)
	if err := os.Symlink(self, path); err != nil {
		return "", err
	}
	all := make([]etcd.Member, len(members))
	var urls, peers []string
	for i, name := range members {
		n, err := lab.Node(name)
		if err != nil {
			return "", err
		}
		all[i] = etcd.Member{
			Name: name, Dir: lab.DataDir(name), Client: fmt.Sprintf("http://%s:2379", n.IPv4), Peer: fmt.Sprintf("http://%s:2380", n.IPv4),
		}
		urls, peers = append(urls, all[i].Client), append(peers, name+"="+all[i].Peer)
	}
	for _, m := range all {
		m.Cluster = strings.Join(peers, ",")
		if _, err := lab.Start(m.Name, path, m.Arguments()...); err != nil {
			return "", err
		}
	}
	return strings.Join(urls, ","), nil
}

// storeLeader is the member of the external etcd that leads.
func (w *world) storeLeader(t *testing.T) (name string) {
	t.Helper()
	ns, err := w.NS(operator)
	must(t, err)
	caller := &http.Client{Transport: &http.Transport{DialContext: dialIn(ns), DisableKeepAlives: true}, Timeout: callTime}
	w.eventually(t, func(context.Context) error {
		for _, member := range members {
			n, err := w.Node(member)
			if err != nil {
				return err
			}
			if text, err := metrics(caller, fmt.Sprintf("http://%s:2379/metrics", n.IPv4)); err == nil && strings.Contains(text, "etcd_server_is_leader 1") {
				name = member
				return nil
			}
		}
		return fmt.Errorf("no member of etcd leads")
	})
	return name
}

// externals are the scenarios of managers on an external etcd.
var externals = []scenario{
	{"leader killed", false, leaderKilled},
	{"leader frozen", false, leaderFrozen},
	{"leader cut off from etcd", false, func(t *testing.T, w *world) {
		w.cut(t, []string{w.leader(t)}, members)
		w.hold(t, w.between(8*time.Second, 15*time.Second))
		w.heal(t)
	}},
	{"leader of etcd killed", true, func(t *testing.T, w *world) {
		leader := w.storeLeader(t)
		w.kill(t, leader)
		w.hold(t, w.between(4*time.Second, 8*time.Second))
		w.restart(t, leader)
	}},
	{"leader of etcd frozen", false, func(t *testing.T, w *world) {
		leader := w.storeLeader(t)
		w.freeze(t, leader)
		w.hold(t, w.between(8*time.Second, 15*time.Second))
		w.thaw(t, leader)
	}},
	{"both leaders frozen", false, func(t *testing.T, w *world) {
		leaders := []string{w.leader(t), w.storeLeader(t)}
		w.freeze(t, leaders...)
		w.hold(t, w.between(8*time.Second, 15*time.Second))
		w.random.Shuffle(len(leaders), func(i, j int) { leaders[i], leaders[j] = leaders[j], leaders[i] })
		for _, one := range leaders {
			w.thaw(t, one)
			w.hold(t, w.between(time.Second, 3*time.Second))
		}
	}},
	{"majority of etcd lost and regained", false, func(t *testing.T, w *world) {
		lost := slices.Clone(members)
		w.random.Shuffle(len(lost), func(i, j int) { lost[i], lost[j] = lost[j], lost[i] })
		w.kill(t, lost[1:]...)
		w.hold(t, w.between(5*time.Second, 10*time.Second))
		w.restart(t, lost[1:]...)
	}},
}

// Managers that share an external etcd keep what they promise, whoever of them and of its members is lost.
func TestExternalEtcd(t *testing.T) {
	lab := startLab(t, netlab.Config{
		Plan:  netlab.Plan{Name: external(), Clients: 3 + len(members), Managers: 2, Muxes: 2, Hosts: 2, Workloads: 2, Outside: 1},
		Store: startStore,
	})
	playAll(t, lab, externals)
}

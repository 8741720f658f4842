package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/lab/netns"
)

const (
	connections = 40
	patience    = 5 * time.Second
)

// adoption is whether a server took the keys that were chosen for it.
type adoption struct {
	SYNCookies  int     `json:"synCookies"` // net.ipv4.tcp_syncookies of the server
	Connections int     `json:"connections"`
	Replaced    uint64  `json:"replaced"` // SYN/ACKs that had another key
	Joined      int     `json:"joined"`   // subflows that the server took, by the token of the chosen key
	Share       float64 `json:"share"`
}

// adopt joins connections whose key was replaced on its way, at a server that answers SYNs with cookies, and at one that does not.
func adopt() (all []adoption, err error) {
	for _, cookies := range []int{2, 1} {
		a, err := adoptWith(cookies)
		if err != nil {
			return nil, fmt.Errorf("replace keys with tcp_syncookies=%d: %w", cookies, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// place is a client with two addresses and a server, side by side.
type place struct {
	client, server *netns.NS
	objects        *keysObjects
	attached       link.Link
	listener       net.Listener
}

var (
	serverAddress   = netip.MustParsePrefix("10.99.0.1/24")
	clientAddresses = []netip.Prefix{netip.MustParsePrefix("10.99.0.2/24"), netip.MustParsePrefix("10.99.0.3/24")}
)

func adoptWith(cookies int) (a adoption, err error) {
	p := &place{}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.open(cookies); err != nil {
		return a, err
	}
	a = adoption{SYNCookies: cookies, Connections: connections}
	for range connections {
		c, err := p.dial()
		if err != nil {
			return a, err
		}
		defer c.Close()
		ask(c) // whether it is answered or not: at the server that keeps its own key, it is not
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if a.Joined, err = counter(p.server, "MPJoinAckRx"); err != nil || a.Joined >= connections {
			break
		}
	}
	a.Share = float64(a.Joined) / connections
	return a, errors.Join(err, p.objects.Replaced.Get(&a.Replaced))
}

func (p *place) open(cookies int) (err error) {
	if p.client, err = netns.Create("weir-keys-client"); err != nil {
		return err
	}
	if p.server, err = netns.Create("weir-keys-server"); err != nil {
		return err
	}
	if err := netns.Veth(p.client, "net0", p.server, "net0"); err != nil {
		return err
	}
	if err := errors.Join(
		p.server.AddAddress("net0", serverAddress), p.client.AddAddress("net0", clientAddresses...),
		p.server.SetUp("net0"), p.client.SetUp("net0"),
		p.server.Sysctl("net.ipv4.tcp_syncookies", strconv.Itoa(cookies)),
	); err != nil {
		return err
	}
	for _, args := range [][]string{{"limits", "set", "subflows", "2"}, {"endpoint", "add", clientAddresses[1].Addr().String(), "dev", "net0", "subflow"}} {
		if out, err := p.client.Run("ip", append([]string{"mptcp"}, args...)...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	if out, err := p.server.Run("ip", "mptcp", "limits", "set", "subflows", "2"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if p.objects, _, err = load(1, false); err != nil {
		return err
	}
	return p.serve()
}

// serve has the server echo, and its answers get other keys.
func (p *place) serve() error {
	index, err := p.server.Index("net0")
	if err != nil {
		return err
	}
	err = p.server.Do(func() (err error) {
		p.attached, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: p.objects.KeysReplace, Attach: ebpf.AttachTCXEgress})
		if err != nil {
			return err
		}
		config := net.ListenConfig{}
		config.SetMultipathTCP(true)
		p.listener, err = config.Listen(context.Background(), "tcp", netip.AddrPortFrom(serverAddress.Addr(), 80).String())
		return err
	})
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return nil
}

func (p *place) dial() (c net.Conn, err error) {
	err = p.client.Do(func() (err error) {
		dialer := net.Dialer{Timeout: patience}
		dialer.SetMultipathTCP(true)
		c, err = dialer.Dial("tcp", netip.AddrPortFrom(serverAddress.Addr(), 80).String())
		return err
	})
	return c, err
}

// ask has a few bytes come back, for a short time.
func ask(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := c.Write([]byte("hello")); err != nil {
		return
	}
	_, _ = io.ReadFull(c, make([]byte, 5))
}

// counter is one of Multipath TCP in a namespace.
func counter(ns *netns.NS, name string) (int, error) {
	out, err := ns.Run("nstat", "-asz", "MPTcpExt"+name)
	if errors.Is(err, exec.ErrNotFound) {
		return 0, err
	}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MPTcpExt"+name {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, errors.Join(fmt.Errorf("there is no counter %s", name), err)
}

func (p *place) close() (err error) {
	if p.listener != nil {
		err = p.listener.Close()
	}
	if p.attached != nil {
		err = errors.Join(err, p.attached.Close())
	}
	if p.objects != nil {
		err = errors.Join(err, p.objects.Close())
	}
	for _, ns := range []*netns.NS{p.client, p.server} {
		if ns != nil {
			err = errors.Join(err, ns.Delete())
		}
	}
	return err
}

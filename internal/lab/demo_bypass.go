package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/migrate"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/overlay"
)

var bypassPlan = netlab.Plan{Name: "bypass", Clients: 1, Muxes: 2, Hosts: 1, Workloads: 1, Networks: 2}

const (
	bypassConnections = 50 // of each tenant
	httpPort          = 80 // of the VIP
)

func bypassCommand() *cobra.Command {
	return &cobra.Command{
		Use: "bypass", Short: "Build a lab with two tenants' networks of equal addresses, and have their connections outlive all muxes",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bin, err := binFolder()
			if err != nil {
				return err
			}
			if err := netlab.Requirements(bin); err != nil {
				return err
			}
			d := &bypassDemo{demo: demo{out: cmd.OutOrStdout()}}
			return d.run(cmd.Context(), bin)
		},
	}
}

// bypassDemo is one run of the demo of virtual networks.
type bypassDemo struct {
	demo
	callers []*caller
}

// caller is one connection of a tenant's workload. It speaks HTTP itself: net/http's client gives a connection up when its own
// goroutines are late by 50 ms, and opens another, for which this one's port is still in use.
type caller struct {
	tenant string
	port   int
	conn   net.Conn
	reader *bufio.Reader
}

func (d *bypassDemo) run(ctx context.Context, bin string) (err error) {
	d.say("\nTwo tenants' virtual networks, acme's and bolt's. Their workloads have the same addresses:\n\n%s", bypassPlan.Picture())
	if err := netlab.Down(bypassPlan.Name); err != nil { // what an earlier run left
		return err
	}
	d.lab, err = netlab.Up(ctx, netlab.Config{Plan: bypassPlan, Bin: bin, Tied: true})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() {
		for _, c := range d.callers {
			c.conn.Close()
		}
		if down := d.lab.Down(); down != nil {
			err = errors.Join(err, down)
			return
		}
		d.say("\nCleaned up: nothing of the lab is left.")
	}()
	for _, step := range []func(context.Context) error{d.attach, d.connect, d.move, d.killMuxes, d.killAgent} {
		if err := step(ctx); err != nil {
			return interrupted(ctx, err)
		}
	}
	return nil
}

// attach attaches a VIP to both networks.
func (d *bypassDemo) attach(ctx context.Context) error {
	out, err := d.lab.Weir("apply", "-f", filepath.Join(d.lab.Dir(), "networks.yaml"), "--wait")
	if err != nil {
		return err
	}
	d.say("$ weir apply -f networks.yaml --wait\n%s\nBoth networks have the VIP at %s.", indent(out), overlay.VIP4)
	return netlab.Poll(ctx, healthyTime, func() error {
		probe, err := d.caller(ctx, "acme1", 0)
		if err != nil {
			return err
		}
		defer probe.conn.Close()
		_, err = probe.call()
		return err
	})
}

// connect opens connections of both tenants, in pairs of one five-tuple.
func (d *bypassDemo) connect(ctx context.Context) error {
	before, err := d.seen()
	if err != nil {
		return err
	}
	known := map[string]string{}
	for port := 20000; port < 20000+bypassConnections; port++ {
		for _, tenant := range []string{"acme1", "bolt1"} {
			c, err := d.caller(ctx, tenant, port)
			if err != nil {
				return err
			}
			d.callers = append(d.callers, c)
			if known[tenant], err = c.call(); err != nil {
				return err
			}
		}
	}
	if err := d.callAll(9); err != nil {
		return err
	}
	after, err := d.seen()
	if err != nil {
		return err
	}
	w := overlay.WorkloadAt(1)
	d.say("\nacme1 and bolt1, both %s, opened %d connections each, from the same ports, and sent 10 requests on each.", w.IPv4, bypassConnections)
	d.say("  of all their packets the muxes saw %d: the SYNs of %d connections", after-before, len(d.callers))
	for _, tenant := range []string{"acme1", "bolt1"} {
		local := known[tenant]
		out, err := d.lab.Run("host1", d.lab.Find("weir-agent"), "whois", "--pin-path", d.lab.PinPath("host1"), local)
		if err != nil {
			return err
		}
		d.say("  the server knows %s as %s\n    $ weir-agent whois %[2]s\n    %s", tenant, local, strings.TrimSpace(out))
	}
	return nil
}

// move takes a workload to the other host of clients while its connections are in use.
func (d *bypassDemo) move(ctx context.Context) error {
	before, err := d.seen()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- d.callAll(50) }()
	began := time.Now()
	if err := migrate.Tenant(ctx, d.lab, "acme1", "chost2"); err != nil {
		return errors.Join(err, <-done)
	}
	took := time.Since(began)
	if err := errors.Join(<-done, d.callAll(10)); err != nil {
		return err
	}
	after, err := d.seen()
	if err != nil {
		return err
	}
	d.say("$ weir lab move acme1 chost2\nacme1 has moved to chost2 in %s: all its connections go on, after %d packets by the muxes.", seconds(took), after-before)
	return nil
}

// killMuxes cuts the power of all muxes.
func (d *bypassDemo) killMuxes(context.Context) error {
	for _, mux := range d.lab.Of(netlab.Mux) {
		if err := d.lab.CutPower(mux.Name); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := d.callAll(10); err != nil {
		return err
	}
	d.say("All muxes have lost their power. 10 more requests on each of the %d connections: all answered, in %s.", len(d.callers), seconds(time.Since(began)))
	return nil
}

// killAgent kills the agent of the clients' host.
func (d *bypassDemo) killAgent(context.Context) error {
	p, err := d.lab.Process("chost1", "weir-agent")
	if err != nil {
		return err
	}
	if err := p.Stop(unix.SIGKILL, healthyTime); err != nil {
		return err
	}
	if err := d.callAll(10); err != nil {
		return err
	}
	d.say("The agent of chost1, where bolt1 is, is killed: its programs are pinned, and all %d connections go on.", len(d.callers))
	return nil
}

// seen is how many packets the muxes have sent to hosts.
func (d *bypassDemo) seen() (packets uint64, err error) {
	for _, mux := range d.lab.Of(netlab.Mux) {
		n, failed := d.lab.Forwarded(mux.Name)
		packets, err = packets+n, errors.Join(err, failed)
	}
	return packets, err
}

// caller opens a connection, from a port of its own; 0: any.
func (d *bypassDemo) caller(ctx context.Context, tenant string, port int) (*caller, error) {
	ns, err := d.lab.NS(tenant)
	if err != nil {
		return nil, err
	}
	from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(overlay.WorkloadAt(1).IPv4, uint16(port)))
	var conn net.Conn
	err = ns.Do(func() (err error) {
		to := netip.AddrPortFrom(overlay.VIP4, httpPort).String()
		conn, err = (&net.Dialer{Timeout: cutTimeout * cutRetries, LocalAddr: from}).DialContext(ctx, "tcp", to)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect %s, port %d: %w", tenant, port, err)
	}
	return newCaller(tenant, port, conn), nil
}

func newCaller(tenant string, port int, conn net.Conn) *caller {
	return &caller{tenant, port, conn, bufio.NewReader(conn)}
}

// call makes a request on the connection, and returns as whom the server knows the client.
func (c *caller) call() (local string, err error) {
	text, err := c.get()
	if err != nil {
		return "", fmt.Errorf("call from %s, port %d: %w", c.tenant, c.port, err)
	}
	var answer struct{ Client string }
	if err := json.Unmarshal(text, &answer); err != nil {
		return "", fmt.Errorf("read the answer to %s: %w: %.100q", c.tenant, err, text)
	}
	return answer.Client, nil
}

func (c *caller) get() ([]byte, error) {
	request, err := http.NewRequest(http.MethodGet, "http://"+c.conn.RemoteAddr().String()+"/", nil)
	if err != nil {
		return nil, err
	}
	if err := c.conn.SetDeadline(time.Now().Add(healthyTime)); err != nil {
		return nil, err
	}
	if err := request.Write(c.conn); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(io.LimitReader(response.Body, 1<<16))
}

// callAll makes so many requests on each connection, which must be the one that it was.
func (d *bypassDemo) callAll(requests int) error {
	failed := make(chan error, len(d.callers))
	for _, c := range d.callers {
		go func() {
			var first string
			for range requests {
				local, err := c.call()
				if err == nil && first != "" && local != first {
					err = fmt.Errorf("%s, port %d, was %s to the server and is %s", c.tenant, c.port, first, local)
				}
				if err != nil {
					failed <- err
					return
				}
				first = local
			}
			failed <- nil
		}()
	}
	var all error
	for range d.callers {
		all = errors.Join(all, <-failed)
	}
	return all
}

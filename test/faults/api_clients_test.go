package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

const (
	operatorCount = 4
	// callTime bounds one call.
	callTime = 5 * time.Second
	// Between two calls of one operator; after a call that nobody knows the outcome of, ten times that:
	// each of them may be done at any later time, which makes an order hard to find.
	idleTime = 60 * time.Millisecond
)

// errDial is about a manager that was not reached: nothing was sent.
var errDial = errors.New("not reached")

// replica is a manager as its clients see it.
type replica struct {
	weirv1connect.WeirServiceClient
	weirv1connect.ClusterServiceClient
	name string
}

// cluster calls each manager by itself, from a node.
type cluster struct {
	replicas []*replica
}

func newCluster(t *testing.T, lab *netlab.Lab, from string) *cluster {
	t.Helper()
	ns, err := lab.NS(from)
	must(t, err)
	access, err := rpc.ReadConfig(lab.AdminFile())
	must(t, err)
	c := &cluster{}
	for _, n := range lab.Of(netlab.Manager) {
		transport := newTransport(ns, access)
		t.Cleanup(transport.CloseIdleConnections)
		base, caller := fmt.Sprintf("https://%s:7400", n.IPv4), &http.Client{Transport: transport}
		c.replicas = append(c.replicas, &replica{
			WeirServiceClient: weirv1connect.NewWeirServiceClient(caller, base), name: n.Name,
			ClusterServiceClient: weirv1connect.NewClusterServiceClient(caller, base),
		})
	}
	return c
}

// newTransport dials from inside a namespace, as the cluster's first user.
func newTransport(ns *netns.NS, access rpc.Access) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	return &http.Transport{
		Protocols:           &protocols,
		TLSClientConfig:     trust.ClientTLS(access.CA, access.Current, time.Now),
		TLSHandshakeTimeout: callTime,
		DialContext:         dialIn(ns),
	}
}

func dialIn(ns *netns.NS) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = ns.Do(func() error {
			conn, err = (&net.Dialer{Timeout: callTime}).DialContext(ctx, network, address)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDial, err)
		}
		return conn, nil
	}
}

// clear deletes the registers: a history begins with none.
func (w *world) clear(t *testing.T) {
	t.Helper()
	for _, name := range registers {
		w.eventually(t, func(ctx context.Context) error {
			_, err := one(w, w.cluster.replicas).DeleteVIP(ctx, &weirv1.DeleteVIPRequest{Name: name})
			if connect.CodeOf(err) == connect.CodeNotFound {
				return nil
			}
			return err
		})
	}
	generation := w.mark(t)
	for _, r := range w.cluster.replicas { // what is read later is of what comes now
		w.eventually(t, func(ctx context.Context) error { return w.current(ctx, r, generation) })
	}
	w.history = newHistory()
}

// start has operators write and read the registers through any manager, until stop.
func (w *world) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var operators sync.WaitGroup
	for i := range operatorCount {
		o := &worker{
			number: i, cluster: w.cluster, history: w.history, lab: w.Lab, seen: map[string]seen{},
			random: rand.New(rand.NewPCG(w.random.Uint64(), uint64(i))),
		}
		operators.Go(func() { o.run(ctx) })
	}
	return func() { cancel(); operators.Wait() }
}

// worker is one operator.
type worker struct {
	number  int
	cluster *cluster
	history *history
	lab     *netlab.Lab
	random  *rand.Rand
	written int
	seen    map[string]seen // by name
}

// seen is what an operator read last of a VIP.
type seen struct {
	value   string
	version uint64
}

func (o *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := idleTime
		// A call under way ends in its own time: what it did must be known.
		if known := o.call(context.WithoutCancel(ctx)); !known {
			wait *= 10
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// call makes one call and says whether its outcome is known.
func (o *worker) call(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r := o.cluster.replicas[o.random.IntN(len(o.cluster.replicas))]
	c := call{Client: o.number, Manager: r.name, Name: registers[o.random.IntN(len(registers))]}
	last := o.seen[c.Name]
	switch n := o.random.IntN(100); {
	case n < 30:
		c.Kind = get
	case n < 40:
		return o.list(ctx, r)
	case n < 65:
		c.Kind = apply
	case n < 72:
		c.Kind = create
	case n < 90:
		c.Kind, c.Expect = update, last.value
		if c.Expect == "" {
			c.Kind = apply
		}
	default:
		c.Kind = remove
		if o.random.IntN(2) == 0 {
			c.Expect = last.value
		}
	}
	if c.Kind == apply || c.Kind == create || c.Kind == update {
		o.written++
		c.Value = fmt.Sprintf("%d-%d-%d", o.history.number, o.number, o.written)
	}
	from := time.Now()
	a, err := o.do(ctx, r, c, last.version)
	if err != nil {
		a, err = refusal(c, err)
	}
	if err != nil { // nothing was done
		return false
	}
	o.history.add(entry{call: c, answer: a}, from)
	o.learn(c, a)
	return a.Outcome != unknown
}

// learn keeps what a call told of a VIP.
func (o *worker) learn(c call, a answer) {
	switch {
	case c.Kind == get:
		o.seen[c.Name] = seen{a.Value, a.Version}
	case a.Version != 0:
		o.seen[c.Name] = seen{c.Value, a.Version}
	case a.Outcome == absent, c.Kind == remove && a.Outcome == done:
		delete(o.seen, c.Name)
	}
}

// refusal is what an error says of a call; an error means that it says that nothing was done, and no more.
func refusal(c call, err error) (answer, error) {
	if errors.Is(err, errDial) {
		return answer{}, err
	}
	if askedToRetry(err) {
		return answer{}, err
	}
	switch connect.CodeOf(err) {
	case connect.CodeNotFound:
		if c.Kind == get {
			return answer{}, nil
		}
		return answer{Outcome: absent}, nil
	case connect.CodeAlreadyExists:
		return answer{Outcome: present}, nil
	case connect.CodeAborted, connect.CodeFailedPrecondition:
		return answer{Outcome: conflict}, nil
	case connect.CodeInvalidArgument, connect.CodeUnimplemented, connect.CodeResourceExhausted:
		return answer{}, err
	}
	return answer{Outcome: unknown}, nil
}

// askedToRetry: the managers promise that a call was not carried out that they ask to make again.
func askedToRetry(err error) bool {
	var refused *connect.Error
	if !errors.As(err, &refused) {
		return false
	}
	return slices.ContainsFunc(refused.Details(), func(d *connect.ErrorDetail) bool {
		value, err := d.Value()
		_, retry := value.(*errdetails.RetryInfo)
		return err == nil && retry
	})
}

func (o *worker) do(ctx context.Context, r *replica, c call, version uint64) (answer, error) {
	switch c.Kind {
	case get:
		response, err := r.GetVIP(ctx, &weirv1.GetVIPRequest{Name: c.Name})
		if err != nil {
			return answer{}, err
		}
		return read(response.GetVip()), nil
	case apply:
		response, err := r.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{o.vip(c)}})
		if err != nil {
			return answer{}, err
		}
		a := answer{Outcome: outcome(response.GetVips()[0].GetChange())}
		if a.Outcome != unchanged {
			a.Version = response.GetGeneration()
		}
		return a, nil
	case create:
		response, err := r.CreateVIP(ctx, &weirv1.CreateVIPRequest{Vip: o.vip(c)})
		return answer{Outcome: done, Version: response.GetVip().GetResourceVersion()}, err
	case update:
		vip := o.vip(c)
		vip.ResourceVersion = version
		response, err := r.UpdateVIP(ctx, &weirv1.UpdateVIPRequest{Name: c.Name, Vip: vip})
		return answer{Outcome: done, Version: response.GetVip().GetResourceVersion()}, err
	}
	request := &weirv1.DeleteVIPRequest{Name: c.Name}
	if c.Expect != "" {
		request.ResourceVersion = version
	}
	_, err := r.DeleteVIP(ctx, request)
	return answer{Outcome: done}, err
}

// list reads all registers at once; each is a read of its own.
func (o *worker) list(ctx context.Context, r *replica) bool {
	from := time.Now()
	entries, err := listed(ctx, r, o.number)
	for _, e := range entries {
		o.history.add(e, from)
		o.learn(e.call, e.answer)
	}
	return err == nil
}

func listed(ctx context.Context, r *replica, client int) ([]entry, error) {
	response, err := r.ListVIPs(ctx, &weirv1.ListVIPsRequest{})
	if err != nil {
		return nil, err
	}
	there := map[string]*weirv1.VIP{}
	for _, vip := range response.GetVips() {
		there[vip.GetName()] = vip
	}
	entries := make([]entry, 0, len(registers))
	for _, name := range registers {
		entries = append(entries, entry{
			call: call{Client: client, Manager: r.name, Kind: get, Name: name}, answer: read(there[name]),
		})
	}
	return entries, nil
}

// read is what a VIP says; nil: it is not there.
func read(vip *weirv1.VIP) answer {
	return answer{Value: vip.GetLabels()["value"], Version: vip.GetResourceVersion()}
}

// vip is one with the value to write, and with weights of its own, so that its tables change too.
func (o *worker) vip(c call) *weirv1.VIP {
	return newVIP(o.lab, c.Name, c.Value, func() uint32 { return uint32(1 + o.random.IntN(4)) })
}

func newVIP(lab *netlab.Lab, name, value string, weight func() uint32) *weirv1.VIP {
	e := &weirv1.Endpoint{Protocol: "TCP", Port: 80}
	for _, n := range lab.Of(netlab.Workload) {
		w := weight()
		e.Backends = append(e.Backends, &weirv1.Backend{
			Address: n.IPv4.String(), Port: netlab.EchoPort, Host: n.Host, Weight: &w,
		})
	}
	return &weirv1.VIP{
		Name: name, Address: addresses[name], Labels: map[string]string{"value": value}, Endpoints: []*weirv1.Endpoint{e},
	}
}

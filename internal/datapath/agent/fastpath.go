package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/model"
)

// DirectState is how far a connection has left the muxes.
type DirectState uint8

// The states.
const (
	DirectNone   DirectState = 0
	DirectAccept             = DirectState(bpf.AgentFastpathStateFASTPATH_ACCEPT) // the peer may send here
	DirectSend               = DirectState(bpf.AgentFastpathStateFASTPATH_SEND)   // and packets go there
)

// String is the word that operators see: "send".
func (s DirectState) String() string { return [...]string{"none", "accept", "send"}[s] }

// Direct is a connection of one of this host's workloads that has left the muxes, or is about to.
type Direct struct {
	Connection  fastpath.Connection
	Client      bool       // the workload opened it
	Own, Peer   netip.Addr // tunnels at both ends
	State       DirectState
	Sent, Heard time.Duration // when packets passed, on the clock of Now; may lag by 134 ms

	key bpf.AgentSessionKey // of the row
}

// String is "TCP 203.0.113.20:1024 → 203.0.113.10:80 to 10.1.0.9 send".
func (d Direct) String() string { return fmt.Sprintf("%s to %s %s", d.Connection, d.Peer, d.State) }

// Why SetDirect leaves a connection as it is.
var (
	ErrDirectUnknown   = errors.New("no such connection here that is established")
	ErrDirectForbidden = errors.New("its vip has no fastpath")
	ErrDirectLocal     = errors.New("both ends are on this host")
	ErrDirectUnnamed   = errors.New("no redirect has named this peer")
	ErrDirectFull      = errors.New("too many connections have left the muxes")
)

// SetDirect lets a connection go as far as w.State; DirectNone brings it back to the muxes. It never goes back from
// DirectSend to DirectAccept, unless the peer is another, and to DirectSend only with the peer of DirectAccept. It
// returns the state that the connection is in, and whether that is news.
func (d *Datapath) SetDirect(w Direct) (state DirectState, changed bool, err error) {
	c := bpf.AgentFastpathCommand{
		Connection: toConnection(w.Connection), Own: toAddress(w.Own), Peer: toAddress(w.Peer),
		Time: uint64(Now()), State: bpf.AgentFastpathState(w.State),
	}
	if w.Client {
		c.Client = 1
	}
	if _, err := d.objects.FastpathSet.Run(&ebpf.RunOptions{Context: &c, ContextOut: &c}); err != nil {
		return DirectNone, false, fmt.Errorf("set fastpath of %s: %w", w.Connection, err)
	}
	state = DirectState(c.Now)
	switch c.Answer {
	case bpf.AgentFastpathAnswerFASTPATH_SET:
		return state, true, nil
	case bpf.AgentFastpathAnswerFASTPATH_SAME:
		return state, false, nil
	case bpf.AgentFastpathAnswerFASTPATH_FORBIDDEN:
		return state, false, ErrDirectForbidden
	case bpf.AgentFastpathAnswerFASTPATH_LOCAL:
		return state, false, ErrDirectLocal
	case bpf.AgentFastpathAnswerFASTPATH_UNNAMED:
		return state, false, ErrDirectUnnamed
	case bpf.AgentFastpathAnswerFASTPATH_FULL:
		return state, false, ErrDirectFull
	}
	return state, false, ErrDirectUnknown
}

// EndDirect brings a connection that Directs has listed back to the muxes, also if its session is gone.
func (d *Datapath) EndDirect(w Direct) error {
	w.State = DirectNone
	if _, _, err := d.SetDirect(w); err != nil && !errors.Is(err, ErrDirectUnknown) && !errors.Is(err, ErrDirectForbidden) {
		return err
	}
	if err := d.objects.Fastpath.Delete(w.key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("end fastpath of %s: %w", w.Connection, err)
	}
	return nil
}

// Directs lists the connections that have left the muxes, or are about to.
func (d *Datapath) Directs() ([]Direct, error) {
	rows, err := readTable[bpf.AgentSessionKey, bpf.AgentFastpath](d.objects.Fastpath)
	if err != nil {
		return nil, fmt.Errorf("list fastpath: %w", err)
	}
	all := make([]Direct, 0, len(rows))
	for key, row := range rows {
		all = append(all, fromDirect(key, row))
	}
	return all, nil
}

func fromDirect(key bpf.AgentSessionKey, row bpf.AgentFastpath) Direct {
	w := Direct{
		Own: fromAddress(row.Own), Peer: fromAddress(row.Peer), State: DirectState(row.State), Client: row.Client != 0,
		Sent: time.Duration(row.Sent), Heard: time.Duration(row.Heard), key: key,
	}
	own, remote := fromAddrPort(row.Vip, row.VipPort), fromAddrPort(key.Client, key.ClientPort)
	w.Connection = fastpath.Connection{Protocol: model.Protocol(key.Protocol), Client: remote, Server: own}
	if w.Client {
		w.Connection.Client, w.Connection.Server = own, remote
	}
	return w
}

func toConnection(c fastpath.Connection) bpf.AgentConnection {
	return bpf.AgentConnection{
		Client: toAddress(c.Client.Addr()), Server: toAddress(c.Server.Addr()),
		ClientPort: abi.Port(c.Client.Port()), ServerPort: abi.Port(c.Server.Port()), Protocol: uint8(c.Protocol),
	}
}

// Control is what the programs hand to user space of connections that leave the muxes.
type Control struct {
	Source, Destination netip.Addr // of the outer header
	FromMux             bool
	Message             []byte // sealed; nil: a stray packet
	// Stray is the connection of a packet that came past the muxes and may not: its sender is the client.
	Stray fastpath.Connection
}

// Controls reads what the programs hand over.
type Controls struct{ reader *ringbuf.Reader }

// Controls begins to read. There may be one reader at a time.
func (d *Datapath) Controls() (*Controls, error) {
	reader, err := ringbuf.NewReader(d.objects.Controls)
	if err != nil {
		return nil, fmt.Errorf("read table controls: %w", err)
	}
	return &Controls{reader: reader}, nil
}

// Read waits for the next record. It fails with fs.ErrClosed once c is closed.
func (c *Controls) Read() (Control, error) {
	record, err := c.reader.Read()
	if errors.Is(err, ringbuf.ErrClosed) {
		return Control{}, fs.ErrClosed
	}
	if err != nil {
		return Control{}, fmt.Errorf("read table controls: %w", err)
	}
	var row bpf.AgentControl
	if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &row); err != nil {
		return Control{}, fmt.Errorf("read table controls: %w", err)
	}
	control := Control{Source: fromAddress(row.Source), Destination: fromAddress(row.Destination), FromMux: row.FromMux != 0}
	if row.Kind == bpf.AgentControlKindCONTROL_MESSAGE {
		control.Message = append([]byte(nil), row.Message[:]...)
		return control, nil
	}
	control.Stray = fastpath.Connection{
		Protocol: model.Protocol(row.Stray.Protocol),
		Client:   fromAddrPort(row.Stray.Client, row.Stray.ClientPort), Server: fromAddrPort(row.Stray.Server, row.Stray.ServerPort),
	}
	return control, nil
}

// Close ends reading.
func (c *Controls) Close() error { return c.reader.Close() }

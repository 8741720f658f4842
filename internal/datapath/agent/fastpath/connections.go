package fastpath

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
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/model"
)

// State is how far a connection has left the muxes.
type State uint8

// The states.
const (
	None   State = 0
	Accept       = State(bpf.AgentFastpathStateFASTPATH_ACCEPT) // the peer may send here
	Send         = State(bpf.AgentFastpathStateFASTPATH_SEND)   // and packets go there
)

// String is the word that operators see: "send".
func (s State) String() string { return [...]string{"none", "accept", "send"}[s] }

// Connections are those of this host's workloads that have left the muxes: the table fastpath.
type Connections struct{ objects *bpf.AgentObjects }

// New is of the tables of objects.
func New(objects *bpf.AgentObjects) *Connections { return &Connections{objects} }

// Entry is a connection of one of this host's workloads that has left the muxes, or is about to.
type Entry struct {
	Connection  fastpath.Connection
	Client      bool       // the workload opened it
	Own, Peer   netip.Addr // tunnels at both ends
	State       State
	Sent, Heard time.Duration // when packets passed, on the clock of Now; may lag by 134 ms

	key bpf.AgentSessionKey // of the row
}

// String is "TCP 203.0.113.20:1024 → 203.0.113.10:80 to 10.1.0.9 send".
func (e Entry) String() string {
	return fmt.Sprintf("%s to %s %s", e.Connection, e.Peer, e.State)
}

// Why SetFastpath leaves a connection as it is.
var (
	ErrUnknown   = errors.New("no such connection here that is established")
	ErrForbidden = errors.New("its vip has no fastpath")
	ErrLocal     = errors.New("both ends are on this host")
	ErrUnnamed   = errors.New("no redirect has named this peer")
	ErrFull      = errors.New("too many connections have left the muxes")
)

// SetFastpath lets a connection go as far as w.State; None brings it back to the muxes. It never goes back from Send to
// Accept, unless the peer is another, and to Send only with the peer of Accept. It returns the state that the connection
// is in, and whether that is news.
func (f *Connections) SetFastpath(w Entry) (state State, changed bool, err error) {
	c := bpf.AgentFastpathCommand{
		Connection: toConnection(w.Connection), Own: bpf.ToAddress(w.Own), Peer: bpf.ToAddress(w.Peer),
		Time: uint64(session.Now()), State: bpf.AgentFastpathState(w.State),
	}
	if w.Client {
		c.Client = 1
	}
	if _, err := f.objects.FastpathSet.Run(&ebpf.RunOptions{Context: &c, ContextOut: &c}); err != nil {
		return None, false, fmt.Errorf("set fastpath of %s: %w", w.Connection, err)
	}
	state = State(c.Now)
	switch c.Answer {
	case bpf.AgentFastpathAnswerFASTPATH_SET:
		return state, true, nil
	case bpf.AgentFastpathAnswerFASTPATH_SAME:
		return state, false, nil
	case bpf.AgentFastpathAnswerFASTPATH_FORBIDDEN:
		return state, false, ErrForbidden
	case bpf.AgentFastpathAnswerFASTPATH_LOCAL:
		return state, false, ErrLocal
	case bpf.AgentFastpathAnswerFASTPATH_UNNAMED:
		return state, false, ErrUnnamed
	case bpf.AgentFastpathAnswerFASTPATH_FULL:
		return state, false, ErrFull
	}
	return state, false, ErrUnknown
}

// EndFastpath brings a connection that FastpathConnections has listed back to the muxes, also if its session is gone.
func (f *Connections) EndFastpath(w Entry) error {
	w.State = None
	if _, _, err := f.SetFastpath(w); err != nil && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrForbidden) {
		return err
	}
	if err := f.objects.Fastpath.Delete(w.key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("end fastpath of %s: %w", w.Connection, err)
	}
	return nil
}

// FastpathConnections lists the connections that have left the muxes, or are about to.
func (f *Connections) FastpathConnections() ([]Entry, error) {
	rows, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentFastpath](f.objects.Fastpath)
	if err != nil {
		return nil, fmt.Errorf("list fastpath: %w", err)
	}
	all := make([]Entry, 0, len(rows))
	for key, row := range rows {
		all = append(all, fromDirect(key, row))
	}
	return all, nil
}

func fromDirect(key bpf.AgentSessionKey, row bpf.AgentFastpath) Entry {
	w := Entry{
		Own: bpf.FromAddress(row.Own), Peer: bpf.FromAddress(row.Peer), State: State(row.State), Client: row.Client != 0,
		Sent: time.Duration(row.Sent), Heard: time.Duration(row.Heard), key: key,
	}
	own, remote := bpf.FromAddrPort(row.Vip, row.VipPort), bpf.FromAddrPort(key.Client, key.ClientPort)
	w.Connection = fastpath.Connection{Protocol: model.Protocol(key.Protocol), Client: remote, Server: own}
	if w.Client {
		w.Connection.Client, w.Connection.Server = own, remote
	}
	return w
}

func toConnection(c fastpath.Connection) bpf.AgentConnection {
	return bpf.AgentConnection{
		Client: bpf.ToAddress(c.Client.Addr()), Server: bpf.ToAddress(c.Server.Addr()),
		ClientPort: abi.Port(c.Client.Port()), ServerPort: abi.Port(c.Server.Port()), Protocol: uint8(c.Protocol),
	}
}

// ControlMessage is what the programs hand to user space of connections that leave the muxes.
type ControlMessage struct {
	Source, Destination netip.Addr // of the outer header
	FromMux             bool
	Message             []byte // sealed; nil: a stray packet
	// Stray is the connection of a packet that came past the muxes and may not: its sender is the client.
	Stray fastpath.Connection
}

// ControlMessages reads what the programs hand over.
type ControlMessages struct{ reader *ringbuf.Reader }

// ControlMessages begins to read. There may be one reader at a time.
func (f *Connections) ControlMessages() (*ControlMessages, error) {
	reader, err := ringbuf.NewReader(f.objects.Controls)
	if err != nil {
		return nil, fmt.Errorf("read table controls: %w", err)
	}
	return &ControlMessages{reader: reader}, nil
}

// Read waits for the next record. It fails with fs.ErrClosed once c is closed.
func (c *ControlMessages) Read() (ControlMessage, error) {
	record, err := c.reader.Read()
	if errors.Is(err, ringbuf.ErrClosed) {
		return ControlMessage{}, fs.ErrClosed
	}
	if err != nil {
		return ControlMessage{}, fmt.Errorf("read table controls: %w", err)
	}
	var row bpf.AgentControl
	if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &row); err != nil {
		return ControlMessage{}, fmt.Errorf("read table controls: %w", err)
	}
	control := ControlMessage{Source: bpf.FromAddress(row.Source), Destination: bpf.FromAddress(row.Destination), FromMux: row.FromMux != 0}
	if row.Kind == bpf.AgentControlKindCONTROL_MESSAGE {
		control.Message = append([]byte(nil), row.Message[:]...)
		return control, nil
	}
	control.Stray = fastpath.Connection{
		Protocol: model.Protocol(row.Stray.Protocol),
		Client:   bpf.FromAddrPort(row.Stray.Client, row.Stray.ClientPort), Server: bpf.FromAddrPort(row.Stray.Server, row.Stray.ServerPort),
	}
	return control, nil
}

// Close ends reading.
func (c *ControlMessages) Close() error { return c.reader.Close() }

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

// FastpathState is how far a connection has left the muxes.
type FastpathState uint8

// The states.
const (
	FastpathNone   FastpathState = 0
	FastpathAccept               = FastpathState(bpf.AgentFastpathStateFASTPATH_ACCEPT) // the peer may send here
	FastpathSend                 = FastpathState(bpf.AgentFastpathStateFASTPATH_SEND)   // and packets go there
)

// String is the word that operators see: "send".
func (s FastpathState) String() string { return [...]string{"none", "accept", "send"}[s] }

// FastpathConnection is a connection of one of this host's workloads that has left the muxes, or is about to.
type FastpathConnection struct {
	Connection  fastpath.Connection
	Client      bool       // the workload opened it
	Own, Peer   netip.Addr // tunnels at both ends
	State       FastpathState
	Sent, Heard time.Duration // when packets passed, on the clock of Now; may lag by 134 ms

	key bpf.AgentSessionKey // of the row
}

// String is "TCP 203.0.113.20:1024 → 203.0.113.10:80 to 10.1.0.9 send".
func (d FastpathConnection) String() string {
	return fmt.Sprintf("%s to %s %s", d.Connection, d.Peer, d.State)
}

// Why SetFastpath leaves a connection as it is.
var (
	ErrFastpathUnknown   = errors.New("no such connection here that is established")
	ErrFastpathForbidden = errors.New("its vip has no fastpath")
	ErrFastpathLocal     = errors.New("both ends are on this host")
	ErrFastpathUnnamed   = errors.New("no redirect has named this peer")
	ErrFastpathFull      = errors.New("too many connections have left the muxes")
)

// SetFastpath lets a connection go as far as w.State; FastpathNone brings it back to the muxes. It never goes back from
// FastpathSend to FastpathAccept, unless the peer is another, and to FastpathSend only with the peer of FastpathAccept.
// It returns the state that the connection is in, and whether that is news.
func (d *Datapath) SetFastpath(w FastpathConnection) (state FastpathState, changed bool, err error) {
	c := bpf.AgentFastpathCommand{
		Connection: toConnection(w.Connection), Own: bpf.ToAddress(w.Own), Peer: bpf.ToAddress(w.Peer),
		Time: uint64(Now()), State: bpf.AgentFastpathState(w.State),
	}
	if w.Client {
		c.Client = 1
	}
	if _, err := d.objects.FastpathSet.Run(&ebpf.RunOptions{Context: &c, ContextOut: &c}); err != nil {
		return FastpathNone, false, fmt.Errorf("set fastpath of %s: %w", w.Connection, err)
	}
	state = FastpathState(c.Now)
	switch c.Answer {
	case bpf.AgentFastpathAnswerFASTPATH_SET:
		return state, true, nil
	case bpf.AgentFastpathAnswerFASTPATH_SAME:
		return state, false, nil
	case bpf.AgentFastpathAnswerFASTPATH_FORBIDDEN:
		return state, false, ErrFastpathForbidden
	case bpf.AgentFastpathAnswerFASTPATH_LOCAL:
		return state, false, ErrFastpathLocal
	case bpf.AgentFastpathAnswerFASTPATH_UNNAMED:
		return state, false, ErrFastpathUnnamed
	case bpf.AgentFastpathAnswerFASTPATH_FULL:
		return state, false, ErrFastpathFull
	}
	return state, false, ErrFastpathUnknown
}

// EndFastpath brings a connection that FastpathConnections has listed back to the muxes, also if its session is gone.
func (d *Datapath) EndFastpath(w FastpathConnection) error {
	w.State = FastpathNone
	if _, _, err := d.SetFastpath(w); err != nil && !errors.Is(err, ErrFastpathUnknown) && !errors.Is(err, ErrFastpathForbidden) {
		return err
	}
	if err := d.objects.Fastpath.Delete(w.key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("end fastpath of %s: %w", w.Connection, err)
	}
	return nil
}

// FastpathConnections lists the connections that have left the muxes, or are about to.
func (d *Datapath) FastpathConnections() ([]FastpathConnection, error) {
	rows, err := bpf.ReadTable[bpf.AgentSessionKey, bpf.AgentFastpath](d.objects.Fastpath)
	if err != nil {
		return nil, fmt.Errorf("list fastpath: %w", err)
	}
	all := make([]FastpathConnection, 0, len(rows))
	for key, row := range rows {
		all = append(all, fromDirect(key, row))
	}
	return all, nil
}

func fromDirect(key bpf.AgentSessionKey, row bpf.AgentFastpath) FastpathConnection {
	w := FastpathConnection{
		Own: bpf.FromAddress(row.Own), Peer: bpf.FromAddress(row.Peer), State: FastpathState(row.State), Client: row.Client != 0,
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
func (d *Datapath) ControlMessages() (*ControlMessages, error) {
	reader, err := ringbuf.NewReader(d.objects.Controls)
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

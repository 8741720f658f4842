package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/model"
)

// Redirect is a connection that may leave the muxes, and the tunnels at both ends.
type Redirect struct {
	Connection     fastpath.Connection
	Client, Server netip.Addr
}

// Redirects reads what the program notes.
type Redirects struct{ reader *ringbuf.Reader }

// Redirects begins to read. There may be one reader at a time.
func (s *SlowPath) Redirects() (*Redirects, error) {
	reader, err := ringbuf.NewReader(s.tables.Redirects)
	if err != nil {
		return nil, fmt.Errorf("read table redirects: %w", err)
	}
	return &Redirects{reader: reader}, nil
}

// Read waits for the next connection. It fails with fs.ErrClosed once r is closed.
func (r *Redirects) Read() (Redirect, error) {
	record, err := r.reader.Read()
	if errors.Is(err, ringbuf.ErrClosed) {
		return Redirect{}, fs.ErrClosed
	}
	if err != nil {
		return Redirect{}, fmt.Errorf("read table redirects: %w", err)
	}
	var row bpf.MuxRedirect
	if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &row); err != nil {
		return Redirect{}, fmt.Errorf("read table redirects: %w", err)
	}
	c := row.Connection
	return Redirect{
		Connection: fastpath.Connection{
			Protocol: model.Protocol(c.Protocol),
			Client:   netip.AddrPortFrom(bpf.FromAddress(c.Client), abi.Port(c.ClientPort)),
			Server:   netip.AddrPortFrom(bpf.FromAddress(c.Server), abi.Port(c.ServerPort)),
		},
		Client: bpf.FromAddress(row.Client), Server: bpf.FromAddress(row.Server),
	}, nil
}

// Close ends reading.
func (r *Redirects) Close() error { return r.reader.Close() }

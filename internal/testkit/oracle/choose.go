package oracle

import (
	"encoding/binary"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle/flowstate"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// choose is the backend that a whole packet, or a first fragment, goes to.
func (m *Mux) choose(e *flowstate.Endpoint, p *packet) flowstate.Choice {
	of := flowstate.Packet{Flow: p.flow, Opens: p.opens()}
	if p.flow.Protocol == model.TCP {
		of.Seq, of.Named = binary.BigEndian.Uint32(p.l4[4:]), p.cookie()
	}
	return e.Choose(m.HashKey, of)
}

// cookie is the slot that the timestamps of a segment of TCP name; 0: none.
func (p *packet) cookie() model.Slot {
	if p.flags&flagSYN != 0 {
		return 0
	}
	_, echo, _ := timestamps(p.l4[20 : int(p.l4[12]>>4)*4])
	return model.Slot(echo % (1 << 13))
}

func (m *Mux) keyedHash(f model.Flow) uint64 { return inet.KeyedHash(m.HashKey, f) }

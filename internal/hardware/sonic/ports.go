package sonic

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlb/weir/internal/hardware"
)

// What SONiC says of ports: their state and neighbours in APPL_DB, their counters in COUNTERS_DB by an id of the ASIC.
const (
	portTable   = "PORT_TABLE:"
	lldpTable   = "LLDP_ENTRY_TABLE:"
	countersMap = "COUNTERS_PORT_NAME_MAP"
	counters    = "COUNTERS:"
)

// Ports implements hardware.Driver.
func (d *Driver) Ports(ctx context.Context) (hardware.Ports, error) {
	names, err := d.portNames(ctx)
	if err != nil {
		return hardware.Ports{}, err
	}
	read := func(database int, table string, of []string, fields ...string) (map[string][]string, error) {
		keys := make([]string, len(of))
		for i, name := range of {
			keys[i] = table + name
		}
		return d.databases.fields(ctx, database, keys, fields...)
	}
	states, err := read(applDB, portTable, names, "oper_status", "speed")
	if err != nil {
		return hardware.Ports{}, err
	}
	neighbours, err := read(applDB, lldpTable, names, "lldp_rem_sys_name", "lldp_rem_port_id")
	if err != nil {
		return hardware.Ports{}, err
	}
	ids, err := d.counterIDs(ctx, names)
	if err != nil {
		return hardware.Ports{}, err
	}
	counted, err := read(countersDB, counters, ids, "SAI_PORT_STAT_IF_IN_OCTETS", "SAI_PORT_STAT_IF_OUT_OCTETS",
		"SAI_PORT_STAT_IF_IN_ERRORS", "SAI_PORT_STAT_IF_OUT_ERRORS", "SAI_PORT_STAT_IF_IN_DISCARDS", "SAI_PORT_STAT_IF_OUT_DISCARDS")
	if err != nil {
		return hardware.Ports{}, err
	}
	var all []hardware.Port
	for i, name := range names {
		state, neighbour, n := states[portTable+name], neighbours[lldpTable+name], numbers(counted[counters+ids[i]])
		p := hardware.Port{Name: name, Up: state[0] == "up", Neighbour: neighbour[0], NeighbourPort: neighbour[1]}
		p.MbitPerS = numbers(state[1:2])[0]
		p.Received, p.Sent = n[0], n[1]
		for _, frames := range n[2:] {
			p.Errors += frames
		}
		all = append(all, p)
	}
	return hardware.NewPorts(all), nil
}

// portNames are the names that may be of ports.
func (d *Driver) portNames(ctx context.Context) ([]string, error) {
	keys, err := d.databases.keys(ctx, applDB, portTable+"*")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, key := range keys {
		if name := strings.TrimPrefix(key, portTable); names.MatchString(name) && name != "PortConfigDone" && name != "PortInitDone" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all[:min(len(all), 2*hardware.MaxPorts)], nil
}

// counterIDs are the ids of ports in COUNTERS_DB; empty of those that have none.
func (d *Driver) counterIDs(ctx context.Context, ports []string) (ids []string, err error) {
	for part := range slices.Chunk(ports, batch) {
		fields, err := d.databases.fields(ctx, countersDB, []string{countersMap}, part...)
		if err != nil {
			return nil, err
		}
		ids = append(ids, fields[countersMap]...)
	}
	return ids, nil
}

// numbers reads numbers; what is none is 0.
func numbers(texts []string) []uint64 {
	all := make([]uint64, len(texts))
	for i, text := range texts {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			all[i] = n
		}
	}
	return all
}

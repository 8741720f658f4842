package telemetry

import (
	"fmt"
	"strconv"

	"github.com/weirlb/weir/internal/model"
)

// Endpoint is the values of the labels vip, protocol and port. All ports are called "all".
func Endpoint(key model.EndpointKey) (vip, protocol, port string) {
	port = strconv.Itoa(int(key.Port))
	if key.Port == model.AllPorts {
		port = "all"
	}
	return key.VIP.String(), key.Protocol.String(), port
}

// PutCounters puts NAME_packets_total and NAME_bytes_total, by one label. An error says that they could not be read.
func PutCounters[K comparable](to *Sample, name string, counters map[K]model.Counter, err error) {
	if err != nil {
		to.Fail(name+"_packets_total", err)
	}
	for label, c := range counters {
		Put(to, name+"_packets_total", c.Packets, fmt.Sprint(label))
		Put(to, name+"_bytes_total", c.Bytes, fmt.Sprint(label))
	}
}

package telemetry

import (
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

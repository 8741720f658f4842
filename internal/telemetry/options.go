package telemetry

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/spf13/pflag"
)

// Where each program's listener is unless a flag says otherwise.
const (
	ManagerListen = "127.0.0.1:7410"
	MuxListen     = "127.0.0.1:7411"
	AgentListen   = "127.0.0.1:7412"
	SwitchListen  = "127.0.0.1:7413"
)

// Options are the flags of a daemon that concern its observation.
type Options struct {
	Listen   string // "" : neither metrics nor readiness are served
	Endpoint string // URL of an OTLP receiver; "": as the OTEL_ variables say

	flag *pflag.Flag // of Listen; nil without flags
}

// Flags adds --metrics-listen and --otlp-endpoint.
func (o *Options) Flags(flags *pflag.FlagSet, listen string) {
	flags.StringVar(&o.Listen, "metrics-listen", listen,
		"address of /metrics, /healthz and /readyz, plain HTTP; empty: not served")
	flags.StringVar(&o.Endpoint, "otlp-endpoint", "",
		"URL of an OpenTelemetry receiver for traces, as http://127.0.0.1:4317 [$OTEL_EXPORTER_OTLP_ENDPOINT]")
	o.flag = flags.Lookup("metrics-listen")
}

// chosen says whether somebody asked for this address, or it is only the default.
func (o *Options) chosen() bool { return o.flag == nil || o.flag.Changed }

func (o *Options) check() error {
	if o.Listen != "" {
		if _, _, err := net.SplitHostPort(o.Listen); err != nil {
			return fmt.Errorf("read --metrics-listen: must be address:port or empty, is %q", o.Listen)
		}
	}
	endpoint := o.endpoint()
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("read --otlp-endpoint: must be http://host:port or https://host:port, is %q", endpoint)
	}
	return nil
}

// endpoint is where traces go, or empty.
func (o *Options) endpoint() string {
	return cmp.Or(o.Endpoint, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
}

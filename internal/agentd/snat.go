package agentd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/agentd/snat"
	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/datapath/agent/session"
)

// ports configures source NAT.
func (o *Options) ports(datapath *agent.Datapath, manager snat.Manager) (snat.Config, func(), error) {
	notices, err := datapath.Notices()
	if err != nil {
		return snat.Config{}, nil, err
	}
	sender, err := datapath.NewSender()
	if err != nil {
		return snat.Config{}, nil, errors.Join(err, notices.Close())
	}
	config := snat.Config{
		Datapath: datapath, Sender: sender, Manager: manager, Read: notices.Read, Live: datapath.LiveSNAT(),
		Excepted: managerPrefixes(o.Manager), MSS: datapath.MSS, Bounds: o.Queue,
	}
	return config, func() {
		_ = notices.Close()
		_ = sender.Close()
	}, nil
}

// sweep ends idle sessions and source NAT flows, probes workloads about resets that may be forged, and updates the time of
// day.
func (o *Options) sweep(datapath *agent.Datapath, log *slog.Logger) (session.Report, error) {
	sessionReport, err := datapath.Sweep(session.Now(), o.Timeouts)
	translated, failed := datapath.SweepSNAT(session.Now(), o.Timeouts)
	sessionReport.SNAT = translated
	if _, unasked := append(sessionReport.Doubtful, translated.Doubtful...).Send(); unasked != nil {
		log.Debug("can't ask workloads whose connections were reset", "err", unasked)
	}
	return sessionReport, errors.Join(err, failed, datapath.SetSYNClock())
}

// lookUpTime bounds the resolution of a manager's name at the start.
const lookUpTime = 2 * time.Second

// managerPrefixes are the addresses of the managers in urls, as far as they resolve now.
func managerPrefixes(urls string) []netip.Prefix {
	ctx, cancel := context.WithTimeout(context.Background(), lookUpTime)
	defer cancel()
	var all []netip.Prefix
	for one := range strings.SplitSeq(urls, ",") {
		parsed, err := url.Parse(strings.TrimSpace(one))
		if err != nil {
			continue
		}
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", parsed.Hostname())
		if err != nil {
			continue
		}
		for _, a := range found {
			a = a.Unmap()
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all
}

package plan

import (
	"slices"

	"github.com/weirlb/weir/internal/traffic"
)

// TrafficSummary says what an interval of traffic holds.
type TrafficSummary struct {
	Interval int     `json:"interval"`
	VIPs     int     `json:"vips"`
	Backends int     `json:"backends"`
	Rate     int64   `json:"kbitPerS"`
	External float64 `json:"externalPart"` // part of the rate that comes from outside
	Top1     float64 `json:"top1PercentPart"`
	Top10    float64 `json:"top10PercentPart"` // part of the rate that the largest 10 % of the VIPs have
}

// Summarize sums up an interval.
func Summarize(i traffic.Interval) TrafficSummary {
	s := TrafficSummary{Interval: i.Number, VIPs: len(i.Demands), Rate: int64(i.Rate())}
	rates := make([]traffic.Rate, len(i.Demands))
	var external traffic.Rate
	for n, d := range i.Demands {
		rates[n] = d.Rate()
		external += d.External
		for _, g := range d.Backends {
			s.Backends += int(g.Backends)
		}
	}
	slices.Sort(rates)
	top := func(percent int) float64 {
		count := (len(rates)*percent + 99) / 100
		var sum traffic.Rate
		for _, r := range rates[len(rates)-count:] {
			sum += r
		}
		return part(float64(sum), float64(s.Rate))
	}
	s.External, s.Top1, s.Top10 = part(float64(external), float64(s.Rate)), top(1), top(10)
	return s
}

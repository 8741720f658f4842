package traffic

import (
	"math"
	"math/rand/v2"
)

// Series is a workload that changes through time: the logarithm of each VIP's rate follows a first-order autoregressive
// process. Its zero fields take the values of the paper's trace of three hours (section 8.6).
type Series struct {
	Workload
	Intervals int     // 0: 18
	Memory    float64 // of the logarithm from one interval to the next; 0: 0.9
	Step      float64 // standard deviation of what is added to it; 0: 0.35
	Swing     float64 // of the sum around Workload.Total, as a sine over all intervals; 0: 0.068, as 6.2 to 7.1 Tbit/s
}

// Constants of Series' zero fields.
const (
	seriesIntervals = 18
	seriesMemory    = 0.9
	seriesStep      = 0.35
	seriesSwing     = 0.068
)

// Generate calls yield with one interval after the other, until it returns false.
func (s Series) Generate(yield func(Interval) bool) error {
	base, err := s.Workload.Generate()
	if err != nil {
		return err
	}
	workload := s.withDefaults()
	intervals := orDefault(float64(s.Intervals), seriesIntervals)
	memory, step, swing := orDefault(s.Memory, seriesMemory), orDefault(s.Step, seriesStep), orDefault(s.Swing, seriesSwing)
	random := rand.New(rand.NewPCG(workload.Seed, 0x74696d65))
	logs := make([]float64, len(base))
	for i := range int(intervals) {
		total := float64(workload.Total) * (1 + float64(swing*math.Sin(2*math.Pi*float64(i)/intervals)))
		if !yield(Interval{Number: i, Demands: scale(base, logs, total, workload.MaxShare)}) {
			return nil
		}
		for v := range logs {
			logs[v] = float64(memory*logs[v]) + float64(step*random.NormFloat64())
		}
	}
	return nil
}

func orDefault(value, otherwise float64) float64 {
	if value == 0 {
		return otherwise
	}
	return value
}

// scale returns the demands times the exponents of logs, scaled so that they sum to about total and no
// share is above most.
func scale(base []Demand, logs []float64, total, most float64) []Demand {
	shares := make([]float64, len(base))
	for i, d := range base {
		shares[i] = float64(float64(d.Rate()) * math.Exp(logs[i]))
	}
	capShares(shares, most)
	scaled := make([]Demand, len(base))
	for i, d := range base {
		scaled[i] = d.scaled(float64(shares[i]*total) / float64(max(1, d.Rate())))
	}
	return scaled
}

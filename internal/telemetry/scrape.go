package telemetry

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric describes one that is read when somebody asks.
type Metric struct {
	Name   string // ends in _total: a counter, which never goes down; else a gauge, or what PutHistogram tells
	Help   string
	Labels []string
}

// Scrape collects the metrics that one function reads.
type Scrape struct {
	descs map[string]*prometheus.Desc
	order []string
	read  func(*Sample)
}

// NewScrape makes a collector of the metrics; read is called at each scrape.
func NewScrape(metrics []Metric, read func(*Sample)) *Scrape {
	s := &Scrape{descs: make(map[string]*prometheus.Desc, len(metrics)), read: read}
	for _, m := range metrics {
		s.descs[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
		s.order = append(s.order, m.Name)
	}
	return s
}

// Describe is for prometheus.
func (s *Scrape) Describe(to chan<- *prometheus.Desc) {
	for _, name := range s.order {
		to <- s.descs[name]
	}
}

// Collect is for prometheus.
func (s *Scrape) Collect(to chan<- prometheus.Metric) { s.read(&Sample{s, to}) }

// Sample takes what is read in one scrape.
type Sample struct {
	scrape *Scrape
	to     chan<- prometheus.Metric
}

// Number is what a metric may be.
type Number interface {
	~int | ~int32 | ~int64 | ~uint | ~uint32 | ~uint64 | ~float64
}

// Put tells the value of a metric with its labels' values in their order.
func Put[N Number](s *Sample, name string, value N, labels ...string) {
	desc := s.scrape.descs[name]
	if desc == nil {
		s.to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(fmt.Errorf("%s is not described", name)), nil)
		return
	}
	metric, err := prometheus.NewConstMetric(desc, kind(name), float64(value), labels...)
	if err != nil {
		metric = prometheus.NewInvalidMetric(desc, err)
	}
	s.to <- metric
}

// PutHistogram tells how many values there were, their sum, and how many were at most each bound.
func PutHistogram(s *Sample, name string, count uint64, sum float64, buckets map[float64]uint64, labels ...string) {
	metric, err := prometheus.NewConstHistogram(s.scrape.descs[name], count, sum, buckets, labels...)
	if err != nil {
		metric = prometheus.NewInvalidMetric(s.scrape.descs[name], err)
	}
	s.to <- metric
}

// PutIf tells 1 if holds, else 0.
func PutIf(s *Sample, name string, holds bool, labels ...string) {
	value := 0
	if holds {
		value = 1
	}
	Put(s, name, value, labels...)
}

// Fail tells that the metric can't be read now. The others are shown all the same.
func (s *Sample) Fail(name string, err error) {
	s.to <- prometheus.NewInvalidMetric(s.scrape.descs[name], err)
}

func kind(name string) prometheus.ValueType {
	const suffix = "_total"
	if len(name) > len(suffix) && name[len(name)-len(suffix):] == suffix {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// Seconds makes a histogram of durations, with buckets from a millisecond to half a minute and, for those
// who ask for them, native ones.
func Seconds(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help,
		Buckets:                     []float64{.001, .0025, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, labels)
}

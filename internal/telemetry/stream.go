package telemetry

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stream is how a node's stream of tables stands, and how long they took to be applied.
type Stream struct {
	prefix  string
	applied *prometheus.HistogramVec

	mu        sync.Mutex
	connected bool
	ever      bool
	attempts  uint64
	breaks    uint64
	messages  uint64
	last      time.Time
}

// What became of the tables of a message.
const (
	applied = "applied"
	refused = "refused"
)

// NewStream makes the metrics of a stream of the program whose metrics begin with prefix: "weir_mux".
func NewStream(prefix string) *Stream {
	s := &Stream{prefix: prefix, applied: Seconds(prefix+"_apply_duration_seconds",
		"Time to bring the data plane to what a message of the manager's stream says.", "result")}
	for _, result := range []string{applied, refused} {
		s.applied.WithLabelValues(result)
	}
	return s
}

// Opens notes an attempt to open it.
func (s *Stream) Opens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if s.connected {
		s.breaks++
	}
	s.connected = false
}

// Message notes one that came.
func (s *Stream) Message() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected, s.ever, s.last = true, true, time.Now()
	s.messages++
}

// Applied notes what became of a message's tables, and how long that took.
func (s *Stream) Applied(took time.Duration, err error) {
	result := applied
	if err != nil {
		result = refused
	}
	s.applied.WithLabelValues(result).Observe(took.Seconds())
}

// Ready says what is missing until the first message has come.
func (s *Stream) Ready() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.connected:
		return "connected", nil
	case s.ever:
		return fmt.Sprintf("not connected since %s, going on with what runs", s.last.UTC().Format(time.RFC3339)), nil
	}
	return "", errors.New("no manager has answered yet")
}

// Collectors are the stream's metrics.
func (s *Stream) Collectors() []prometheus.Collector {
	const connected, attempts, breaks, messages, last = "_stream_connected", "_stream_attempts_total",
		"_stream_breaks_total", "_stream_messages_total", "_stream_last_message_timestamp_seconds"
	return []prometheus.Collector{s.applied, NewScrape([]Metric{
		{Name: s.prefix + connected, Help: "1 while the stream from a manager is open."},
		{Name: s.prefix + attempts, Help: "Attempts to open the stream."},
		{Name: s.prefix + breaks, Help: "Streams that were open and broke."},
		{Name: s.prefix + messages, Help: "Messages of the stream."},
		{Name: s.prefix + last, Help: "When the last message came; 0: none did."},
	}, func(to *Sample) {
		s.mu.Lock()
		defer s.mu.Unlock()
		PutIf(to, s.prefix+connected, s.connected)
		Put(to, s.prefix+attempts, s.attempts)
		Put(to, s.prefix+breaks, s.breaks)
		Put(to, s.prefix+messages, s.messages)
		seconds := 0.0
		if !s.last.IsZero() {
			seconds = float64(s.last.UnixMilli()) / 1000
		}
		Put(to, s.prefix+last, seconds)
	})}
}

package apiserver

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// sluggish is a reader that takes its time for each write, and notes the deadlines of its connection.
type sluggish struct {
	http.ResponseWriter

	takes     time.Duration
	deadlines []time.Duration // from when they were told
}

func (s *sluggish) Write(data []byte) (int, error) {
	time.Sleep(s.takes)
	return len(data), nil
}

func (s *sluggish) SetWriteDeadline(at time.Time) error {
	s.deadlines = append(s.deadlines, time.Until(at))
	return nil
}

// The connection of a stream hears of a deadline when that is over, and never while its reader keeps up.
func TestDeadlinesAreToldWhenTheyAreOver(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		told  bool
	}{{0, false}, {900 * time.Millisecond, false}, {1100 * time.Millisecond, true}} {
		synctest.Test(t, func(t *testing.T) {
			reader := &sluggish{takes: c.takes}
			w := &watchedWriter{ResponseWriter: reader, slow: time.Second}
			for range 2 {
				if _, err := w.Write([]byte("a message")); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Minute) // the stream has nothing to tell
			synctest.Wait()
			if told := len(reader.deadlines) > 0; told != c.told || told && slices.Max(reader.deadlines) >= 0 {
				t.Errorf("a reader that takes %s is told %v", c.takes, reader.deadlines)
			}
		})
	}
}

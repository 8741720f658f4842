package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/echo"
)

// Config says what to ask for, how often and how.
type Config struct {
	URL         string        // http://ADDRESS[:PORT]/PATH
	Requests    int           // 0: until Duration is over
	Duration    time.Duration // 0: until Requests are made
	Concurrency int           // workers; with Rate, none
	Rate        int           // requests a second; 0: as fast as the workers can
	PerConn     int           // requests on one connection; 0: 1
	Timeout     time.Duration // of one attempt, with its connection; 0: 5 s
	Attempts    int           // after which a request counts as failed; 0: 1
	Record      bool          // every attempt
}

// Result is what the client noticed.
type Result struct {
	Requests int            `json:"requests"`
	Failed   int            `json:"failed"`  // of the requests, after all their attempts
	Retried  int            `json:"retried"` // attempts that failed and were made again
	Backends map[string]int `json:"backends"`
	Clients  map[string]int `json:"clients"` // the client's address, as backends saw it
	Slowest  time.Duration  `json:"slowest"` // of the requests that were answered, attempts together
	Took     time.Duration  `json:"took"`
	Failures []Failure      `json:"failures,omitempty"` // of attempts, in order of their end; the first maxFailures
	Attempts []Attempt      `json:"attempts,omitempty"` // all, in order of their end, if they were to be recorded
}

// Attempt is what became of one.
type Attempt struct {
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took"`
	Again   int           `json:"again,omitempty"` // segments that the client sent again on its connection, SYNs above all
	Failed  bool          `json:"failed,omitempty"`
}

// Failure is an attempt that failed.
type Failure struct {
	Started time.Time `json:"started"`
	Error   string    `json:"error"`
}

const (
	maxFailures    = 1000
	defaultTimeout = 5 * time.Second
)

// Outage is the time between the start of the first and of the last attempt that failed.
func (r Result) Outage() time.Duration {
	if len(r.Failures) == 0 {
		return 0
	}
	first, last := r.Failures[0].Started, r.Failures[0].Started
	for _, f := range r.Failures {
		if f.Started.Before(first) {
			first = f.Started
		}
		if f.Started.After(last) {
			last = f.Started
		}
	}
	return last.Sub(first)
}

// Run makes the requests. Failed ones are no error of Run.
func Run(ctx context.Context, config Config) (Result, error) {
	c, err := newClient(config)
	if err != nil {
		return Result{}, fmt.Errorf("make requests: %w", err)
	}
	began := time.Now()
	if config.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, config.Duration)
		defer cancel()
	}
	if config.Rate > 0 {
		c.pace(ctx)
	} else {
		c.work(ctx)
	}
	c.result.Took = time.Since(began)
	return c.result, nil
}

type client struct {
	config  Config
	address string
	request []byte // with keep-alive
	last    []byte // without: the server closes

	started atomic.Int64
	mu      sync.Mutex
	result  Result
}

func newClient(config Config) (*client, error) {
	u, err := url.Parse(config.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%q is no http://ADDRESS/PATH", config.URL)
	}
	if config.Requests <= 0 && config.Duration <= 0 {
		return nil, errors.New("neither a number of requests nor a duration is given")
	}
	config.PerConn = max(1, config.PerConn)
	config.Concurrency = max(1, config.Concurrency)
	config.Attempts = max(1, config.Attempts)
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n", u.RequestURI(), u.Host)
	return &client{
		config: config, address: net.JoinHostPort(u.Hostname(), port),
		request: []byte(head + "\r\n"), last: []byte(head + "Connection: close\r\n\r\n"),
		result: Result{Backends: map[string]int{}, Clients: map[string]int{}},
	}, nil
}

// next tells whether another request is to be made.
func (c *client) next(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	return c.config.Requests <= 0 || c.started.Add(1) <= int64(c.config.Requests)
}

func (c *client) work(ctx context.Context) {
	var workers sync.WaitGroup
	for range c.config.Concurrency {
		workers.Go(func() {
			conn := &connection{client: c}
			defer conn.close()
			for c.next(ctx) {
				c.serve(conn)
			}
		})
	}
	workers.Wait()
}

func (c *client) pace(ctx context.Context) {
	ticker := time.NewTicker(time.Second / time.Duration(c.config.Rate))
	defer ticker.Stop()
	var requests sync.WaitGroup
	for c.next(ctx) {
		requests.Go(func() {
			conn := &connection{client: c}
			defer conn.close()
			c.serve(conn)
		})
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	requests.Wait()
}

// serve makes one request, in as many attempts as it may take.
func (c *client) serve(conn *connection) {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		started := time.Now()
		response, err := conn.ask(started.Add(c.config.Timeout))
		if c.config.Record {
			c.record(Attempt{Started: started, Took: time.Since(started), Again: conn.again, Failed: err != nil})
		}
		if err == nil {
			c.answered(response, time.Since(began))
			return
		}
		conn.close()
		if c.failed(Failure{Started: started, Error: err.Error()}, attempt) {
			return
		}
	}
}

func (c *client) record(a Attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.Attempts = append(c.result.Attempts, a)
}

func (c *client) answered(header http.Header, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.Requests++
	c.result.Backends[header.Get(echo.BackendHeader)]++
	c.result.Clients[header.Get(echo.ClientHeader)]++
	c.result.Slowest = max(c.result.Slowest, took)
}

// failed takes note of a failed attempt and tells whether it was the request's last.
func (c *client) failed(failure Failure, attempt int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.result.Failures) < maxFailures {
		c.result.Failures = append(c.result.Failures, failure)
	}
	if attempt < c.config.Attempts {
		c.result.Retried++
		return false
	}
	c.result.Requests++
	c.result.Failed++
	return true
}

// connection is one worker's connection, made when it is needed.
type connection struct {
	client *client
	conn   net.Conn
	reader *bufio.Reader
	asked  int
	again  int // segments that were sent again, up to the last answer
}

func (c *connection) ask(deadline time.Time) (http.Header, error) {
	c.again = 0
	if c.conn == nil {
		dialer := net.Dialer{Deadline: deadline}
		conn, err := dialer.Dial("tcp", c.client.address)
		if err != nil {
			return nil, err
		}
		c.conn, c.asked = conn, 0
		c.reader = bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	c.asked++
	last := c.asked == c.client.config.PerConn
	request := c.client.request
	if last {
		request = c.client.last
	}
	if _, err := c.conn.Write(request); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	c.again = retransmitted(c.conn)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answer %s", response.Status)
	}
	if last || response.Close {
		// The server closes first, so that the port can be used again at once.
		if _, err := io.Copy(io.Discard, c.reader); err != nil {
			return nil, err
		}
		c.close()
	}
	return response.Header, nil
}

// retransmitted is how many segments were sent again on a connection.
func retransmitted(conn net.Conn) (segments int) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			segments = int(info.Total_retrans)
		}
	})
	return segments
}

func (c *connection) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

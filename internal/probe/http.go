package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

const (
	// answerLimit bounds what is read of an answer, headers and body together. A body that is
	// longer is cut short and counts as whole.
	answerLimit = 64 << 10
	// interimLimit bounds the 1xx answers before the real one.
	interimLimit = 5
)

// get asks for the path over conn. The client of net/http is not used: it would pool, follow
// redirects, heed proxies and start goroutines, all of which a check must not.
func get(conn net.Conn, target netip.AddrPort, path, host string) error {
	location, err := url.ParseRequestURI("http://" + target.String() + path)
	if err != nil {
		return errors.New("path is no URL path")
	}
	request := &http.Request{
		Method: http.MethodGet, URL: location, Host: host, Close: true,
		ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"User-Agent": {"weir-agent"}, "Accept": {"*/*"}},
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: conn, N: answerLimit}
	response, err := read(bufio.NewReader(limited), request)
	if err != nil {
		if limited.N == 0 {
			return fmt.Errorf("answer's header is longer than %d bytes", answerLimit)
		}
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil && limited.N > 0 {
		return err
	}
	return nil
}

// read returns the first answer that is not an interim one.
func read(from *bufio.Reader, request *http.Request) (*http.Response, error) {
	for range interimLimit + 1 {
		response, err := http.ReadResponse(from, request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode/100 != 1 {
			return response, nil
		}
	}
	return nil, fmt.Errorf("more than %d interim answers", interimLimit)
}

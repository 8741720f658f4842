package stream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/lab/echo"
)

// conn is a stream of TCP. Both sides send the same endless pattern.
type conn struct {
	net.Conn
	reader    *bufio.Reader
	patience  time.Duration
	server    string
	sent, due echo.Pattern
	out, want []byte
	in        []byte
}

func openConn(config Config) (*conn, error) {
	dialer := net.Dialer{Timeout: config.Patience}
	if config.Source.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(config.Source, 0))
	}
	opened, err := dialer.Dial("tcp", config.Target.String())
	if err != nil {
		return nil, err
	}
	c := &conn{
		Conn: opened, reader: bufio.NewReaderSize(opened, 1024), patience: config.Patience,
		out: make([]byte, config.Size), want: make([]byte, config.Size), in: make([]byte, config.Size),
	}
	if err := c.upgrade(config.Target.String()); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return c, nil
}

// upgrade asks the server to leave HTTP.
func (c *conn) upgrade(host string) error {
	if err := c.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		echo.StreamPath, host, echo.StreamProtocol)
	if err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close() // an answer that switches has none
	if response.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("answer %s", response.Status)
	}
	c.server = response.Header.Get(echo.BackendHeader)
	return nil
}

func (c *conn) backend() string { return c.server }
func (c *conn) local() string   { return c.LocalAddr().String() }

func (c *conn) exchange() (answered bool, err error) {
	if err := c.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return false, err
	}
	if _, err := io.ReadFull(&c.sent, c.out); err != nil {
		return false, err
	}
	if _, err := c.Write(c.out); err != nil {
		return false, err
	}
	if _, err := io.ReadFull(c.reader, c.in); err != nil {
		return false, err
	}
	if _, err := io.ReadFull(&c.due, c.want); err != nil {
		return false, err
	}
	if !bytes.Equal(c.in, c.want) {
		return false, errors.New("wrong bytes")
	}
	return true, nil
}

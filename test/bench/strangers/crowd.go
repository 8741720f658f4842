package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// crowd is the process that sends the requests. Strangers are on other machines: it takes what CPU time the manager and the
// admin leave, and the admin's client does not share its threads.
type crowd struct {
	command *exec.Cmd
	orders  *json.Encoder
	answers *json.Decoder
}

func newCrowd() (*crowd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command("chrt", "--idle", "0", self, "-crowd") //nolint:noctx // it ends with its standard input
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	orders, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &crowd{command, json.NewEncoder(orders), json.NewDecoder(answers)}, command.Start()
}

// order is what the crowd is to send.
type order struct {
	Class   string
	To      string
	Sources int
	Limit   int // requests; 0: until it is told to stop
}

// send has the requests of an order sent, and returns how they were answered.
func (c *crowd) send(o order) (answers map[string]int, err error) {
	if err := c.orders.Encode(o); err != nil {
		return nil, err
	}
	return answers, c.answers.Decode(&answers)
}

// beside does something while requests of a class are sent.
func (c *crowd) beside(o order, do func() error) (answers map[string]int, err error) {
	o.Limit = 0
	if err := c.orders.Encode(o); err != nil {
		return nil, err
	}
	err = do()
	if stopped := c.orders.Encode(order{}); stopped != nil {
		return nil, errors.Join(err, stopped)
	}
	return answers, errors.Join(err, c.answers.Decode(&answers))
}

func (c *crowd) close() {
	c.command.Process.Kill() //nolint:errcheck // it may have ended
	c.command.Wait()         //nolint:errcheck // it was killed
}

// serveOrders is the crowd: it sends what in orders, and tells out how that was answered.
func serveOrders(ctx context.Context, in io.Reader, out io.Writer) error {
	classes, err := allClasses()
	if err != nil {
		return err
	}
	if err := makeCertificates(classes); err != nil {
		return err
	}
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		l := &load{to: o.To, sources: o.Sources, limit: o.Limit, answers: map[string]int{}}
		for _, c := range classes {
			if c.name == o.Class {
				l.class = c
			}
		}
		if l.class.name == "" {
			return fmt.Errorf("no class is named %q", o.Class)
		}
		sending, stop := context.WithCancel(ctx)
		if o.Limit == 0 {
			go func() {
				orders.Decode(&order{}) //nolint:errcheck // whatever comes ends the load
				stop()
			}()
		}
		l.send(sending)
		stop()
		if err := answers.Encode(l.answers); err != nil {
			return err
		}
	}
}

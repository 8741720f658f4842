package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/look"
)

// Bounds of a capture, and what is taken where nothing is said.
const (
	DefaultCaptureCount      = 1000
	MaxCaptureCount          = 100_000
	DefaultCaptureDuration   = 10 * time.Second
	MaxCaptureDuration       = 10 * time.Minute
	DefaultCaptureSnapLength = 256
	MaxCaptureSnapLength     = 2048
	DefaultObserveCount      = 10_000
)

// Directions of captured packets.
const (
	DirectionIn  = "in"
	DirectionOut = "out"
)

// Bounds of a frame that is to be explained, in bytes: an Ethernet header, and what the kernel takes
// for a test run.
const (
	minExplainFrame = 14
	maxExplainFrame = 3200
)

// CheckExplainFrame refuses a frame that no test run takes.
func CheckExplainFrame(frame []byte) error {
	if len(frame) < minExplainFrame || len(frame) > maxExplainFrame {
		return &model.FieldError{Field: "frame", Reason: fmt.Sprintf(
			"must be of %d to %d bytes, from the Ethernet header on, is of %d", minExplainFrame, maxExplainFrame, len(frame))}
	}
	return nil
}

// CaptureFromProto reads a capture as an operator asks for it.
func CaptureFromProto(r *weirv1.CaptureRequest) (look.Capture, error) {
	filter, err := captureFilterFromProto(r.GetFilter())
	errs := []error{compile.Below("filter", err)}
	c := look.Capture{
		Filter: filter, Count: DefaultCaptureCount, Duration: DefaultCaptureDuration, SnapLength: DefaultCaptureSnapLength,
	}
	if n := r.GetCount(); n > 0 {
		c.Count = int(min(n, MaxCaptureCount+1))
	}
	if c.Count > MaxCaptureCount {
		errs = append(errs, &model.FieldError{Field: "count", Reason: fmt.Sprintf("must be at most %d", MaxCaptureCount)})
	}
	if d := r.GetDuration(); d != nil {
		c.Duration = d.AsDuration()
	}
	if c.Duration <= 0 || c.Duration > MaxCaptureDuration {
		errs = append(errs, &model.FieldError{Field: "duration", Reason: fmt.Sprintf("must be above 0 and at most %s, is %s", MaxCaptureDuration, c.Duration)})
	}
	if n := r.GetSnapLength(); n > 0 {
		c.SnapLength = int(min(n, MaxCaptureSnapLength+1))
	}
	if c.SnapLength < minExplainFrame || c.SnapLength > MaxCaptureSnapLength {
		errs = append(errs, &model.FieldError{Field: "snapLength", Reason: fmt.Sprintf("must be from %d to %d", minExplainFrame, MaxCaptureSnapLength)})
	}
	return c, errors.Join(errs...)
}

// CaptureTaskToProto writes the capture that r asks for as a task of the mux.
func CaptureTaskToProto(r *weirv1.CaptureRequest, c look.Capture) *weirv1.CaptureTask {
	return &weirv1.CaptureTask{
		Filter: r.GetFilter(), Count: uint32(c.Count), Duration: durationpb.New(c.Duration), SnapLength: uint32(c.SnapLength),
	}
}

// CaptureTaskFromProto reads what CaptureTaskToProto wrote.
func CaptureTaskFromProto(p *weirv1.CaptureTask) (look.Capture, error) {
	return CaptureFromProto(&weirv1.CaptureRequest{
		Filter: p.GetFilter(), Count: p.GetCount(), Duration: p.GetDuration(), SnapLength: p.GetSnapLength(),
	})
}

func captureFilterFromProto(p *weirv1.CaptureFilter) (f look.CaptureFilter, err error) {
	var errs []error
	refuse := func(field, reason string) { errs = append(errs, &model.FieldError{Field: field, Reason: reason}) }
	if text := p.GetClient(); text != "" {
		f.Client, err = parsePrefix(text)
		if err != nil {
			refuse("client", fmt.Sprintf("must be an address or a prefix, is %q", text))
		}
	}
	if text := p.GetVip(); text != "" {
		if f.VIP, err = netip.ParseAddr(text); err != nil {
			refuse("vip", fmt.Sprintf("must be an address, is %q", text))
		}
		f.VIP = f.VIP.Unmap()
	}
	if f.Client.IsValid() && f.VIP.IsValid() && f.Client.Addr().Is4() != f.VIP.Is4() {
		refuse("client", "must be of the VIP's family")
	}
	if p.GetClientPort() > 65535 {
		refuse("clientPort", "must be at most 65535")
	}
	if p.GetPort() > 65535 {
		refuse("port", "must be at most 65535")
	}
	f.ClientPort, f.Port, f.Verdict = uint16(p.GetClientPort()), uint16(p.GetPort()), p.GetVerdict()
	switch f.Protocol = strings.ToUpper(p.GetProtocol()); f.Protocol {
	case "", "TCP", "UDP", "ICMP":
	default:
		refuse("protocol", fmt.Sprintf("must be TCP, UDP or ICMP, is %q", p.GetProtocol()))
	}
	return f, errors.Join(errs...)
}

// parsePrefix reads a prefix, or an address as the prefix of it alone.
func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err
}

// ExplanationToProto writes e.
func ExplanationToProto(e look.Explanation, generation model.Generation) *weirv1.PacketExplanation {
	p := &weirv1.PacketExplanation{
		Verdict: e.Verdict, Action: e.Action, Layer: e.Layer, Slot: uint32(e.Slot), PreviousSlot: uint32(e.Previous),
		Frame: e.Frame, Generation: uint64(generation), Buckets: uint32(e.Buckets),
	}
	if e.Endpoint != nil {
		p.Endpoint = EndpointKeyToProto(*e.Endpoint)
	}
	if e.Hashed {
		p.Hash, p.Bucket = e.Hash, uint32(e.Bucket)
	}
	if e.Tunnel.IsValid() {
		p.Tunnel = e.Tunnel.String()
	}
	if e.Workload.IsValid() {
		p.Workload = e.Workload.String()
	}
	if p.Interface = e.Interface; e.Reply != nil {
		p.Reply = ExplanationToProto(*e.Reply, generation)
	}
	return p
}

// CapturedPacketToProto writes c.
func CapturedPacketToProto(c look.CapturedPacket) *weirv1.CapturedPacket {
	direction := DirectionIn
	if c.Out {
		direction = DirectionOut
	}
	return &weirv1.CapturedPacket{
		Time: timestamppb.New(c.Time), Direction: direction, Frame: c.Frame, Length: uint32(c.Length),
		Verdict: c.Verdict, Comment: c.Comment,
	}
}

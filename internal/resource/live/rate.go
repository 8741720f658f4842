package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/muxrate"
	"github.com/weirlb/weir/internal/rate"
	"github.com/weirlb/weir/internal/trust"
)

// maxBusiest is how many VIPs may be asked for that are not named.
const maxBusiest = 256

// WatchRates streams samples of rates.
func (s *Streams) WatchRates(ctx context.Context, r *weirv1.WatchRatesRequest, stream *connect.ServerStream[weirv1.WatchRatesResponse]) error {
	return apierr.ToConnect(s.EachRate(ctx, r, stream.Send))
}

// EachRate sends samples until ctx ends, the manager stops, or send fails.
func (s *Streams) EachRate(ctx context.Context, r *weirv1.WatchRatesRequest, send func(*weirv1.WatchRatesResponse) error) error {
	f, err := rateFilter(ctx, r)
	if err != nil {
		return err
	}
	if !f.whole { // other managers are few, and go before
		end, err := s.Watches.Begin(trust.FromContext(ctx))
		if err != nil {
			return err
		}
		defer end()
	}
	after := time.Time{}
	if r.GetSince() != nil {
		after = r.GetSince().AsTime()
	}
	for first := true; ; first = false {
		samples, more := s.Rates.Since(r.GetOwn(), after)
		if first && r.GetSince() == nil && len(samples) > 1 {
			samples = samples[len(samples)-1:]
		}
		for _, sample := range samples {
			if err := send(f.ToProto(sample)); err != nil {
				return err
			}
			after = sample.At
		}
		if first {
			if err := send(&weirv1.WatchRatesResponse{Type: Bookmark}); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-s.Stopping:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rates says what of samples is told.
type rates struct {
	muxrate.Filter

	whole bool
}

// rateFilter reads what is asked for.
func rateFilter(ctx context.Context, r *weirv1.WatchRatesRequest) (f rates, err error) {
	var errs []error
	refuse := func(field, reason string) { errs = append(errs, &model.FieldError{Field: field, Reason: reason}) }
	caller := trust.FromContext(ctx)
	peer := caller.Kind == trust.Manager || caller.Method == trust.Insecure
	switch {
	case r.GetWhole() && !peer:
		refuse("whole", "is for managers alone")
	case r.GetOwn() && !r.GetWhole():
		refuse("own", "is for managers alone, with whole")
	}
	if r.GetBusiest() > maxBusiest {
		refuse("busiest", fmt.Sprintf("must be %d at most, is %d", maxBusiest, r.GetBusiest()))
	}
	if r.GetSince() != nil && (!r.GetSince().IsValid() || r.GetSince().AsTime().After(time.Now().Add(time.Minute))) {
		refuse("since", "must be a time that has passed")
	}
	f.whole, f.Cluster, f.VIPs, f.Busiest = r.GetWhole(), authz.CanView(ctx, trust.AllTenants), r.GetVips(), int(r.GetBusiest())
	if f.whole {
		f.Busiest = rate.MaxEndpoints
	}
	f.Sees = func(tenant string) bool {
		return (r.GetTenant() == "" || r.GetTenant() == tenant) && authz.CanView(ctx, tenant)
	}
	return f, errors.Join(errs...)
}

package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Bounds of a page. etcd counts keys, not bytes: a page is to have pageBytes at most by the largest value of the page
// before, and DefaultPageKeys at most.
const (
	DefaultPageKeys = 4096
	pageKeysFirst   = 64
	pageBytes       = 8 << 20
	// pageTries is how often reading begins anew when what is read has been compacted meanwhile.
	pageTries = 5
)

// Pages reads all that lies below a prefix as of one revision, which it returns. take gets page after page, in the order
// of the keys, and must keep no more of a page than it needs; its
// error is an UnreadableError. begin is called before the first page, and again when reading
// must begin anew.
func (c *Client) Pages(ctx context.Context, prefix string, begin func(), take func([]*mvccpb.KeyValue) error) (revision int64, err error) {
	for range pageTries {
		begin()
		if revision, err = c.eachPage(ctx, prefix, take); !errors.Is(err, rpctypes.ErrCompacted) {
			return revision, err
		}
	}
	return revision, err
}

func (c *Client) eachPage(ctx context.Context, prefix string, take func([]*mvccpb.KeyValue) error) (revision int64, err error) {
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from, limit := prefix, min(pageKeysFirst, c.pageKeys); ; {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(limit)}
		if revision != 0 {
			options = append(options, clientv3.WithRev(revision))
		}
		page, err := c.Get(ctx, from, options...)
		if err != nil {
			return 0, Explain("read the store", err)
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		if err := take(page.Kvs); err != nil {
			return revision, &UnreadableError{err}
		}
		if !page.More {
			return revision, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		limit = nextLimit(limit, page.Kvs, c.pageKeys)
	}
}

// nextLimit is how many keys the page that follows may have.
func nextLimit(limit int64, page []*mvccpb.KeyValue, most int64) int64 {
	largest := 1
	for _, kv := range page {
		largest = max(largest, len(kv.Key)+len(kv.Value))
	}
	return max(1, min(2*limit, most, int64(pageBytes/largest)))
}

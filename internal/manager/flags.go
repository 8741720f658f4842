package manager

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/weirlb/weir/internal/etcd"
)

// StoreFlags adds the flags that say where the store is, and how large it may be.
func (c *Config) StoreFlags(flags *pflag.FlagSet) {
	flags.Int64Var(&c.Quota, "quota-backend-bytes", etcd.DefaultQuota,
		fmt.Sprintf("how large the file of the embedded etcd may be, in bytes, %d to %d; the same for all managers", etcd.MinQuota, etcd.MaxQuota))
	flags.StringSliceVar(&c.EtcdEndpoints, "etcd-endpoints", nil, "URLs of an external etcd, separated by commas (default: the embedded one)")
	c.EtcdTLS.Flags(flags)
}

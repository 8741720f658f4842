package manager

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/weirlb/weir/internal/etcd"
)

// PartFlags adds the flags of parts: where the store is and how large it may be, and who signs users of the web page in.
func (c *Config) PartFlags(flags *pflag.FlagSet) {
	flags.Int64Var(&c.Quota, "quota-backend-bytes", etcd.DefaultQuota,
		fmt.Sprintf("how large the file of the embedded etcd may be, in bytes, %d to %d; the same for all managers", etcd.MinQuota, etcd.MaxQuota))
	flags.StringSliceVar(&c.EtcdEndpoints, "etcd-endpoints", nil, "URLs of an external etcd, separated by commas (default: the embedded one)")
	c.EtcdTLS.Flags(flags)
	c.OIDC.Flags(flags)
}

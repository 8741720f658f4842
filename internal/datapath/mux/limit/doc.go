// Package limit writes the rate limits of VIPs and what fair shares drop of them: the tables vip_policers and vip_drops.
package limit

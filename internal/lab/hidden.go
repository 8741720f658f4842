package lab

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/lab/echo"
	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
)

// echoCommand is what workloads of the lab run.
func echoCommand() *cobra.Command {
	var config echo.Config
	var listen []string
	cmd := &cobra.Command{
		Use: "echo", Short: "Answer HTTP and UDP with what was seen", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, text := range listen {
				address, err := netip.ParseAddrPort(text)
				if err != nil {
					return err
				}
				config.Listen = append(config.Listen, address)
			}
			return echo.Serve(cmd.Context(), config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&config.Backend, "backend", "", "name of the workload")
	flags.StringVar(&config.Host, "host", "", "name of its host")
	flags.StringArrayVar(&listen, "listen", nil, "address:port; repeatable")
	return cmd
}

// loadCommand is what the lab's clients run. It prints a load.Result as JSON.
func loadCommand() *cobra.Command {
	var config load.Config
	cmd := &cobra.Command{
		Use: "load URL", Short: "Make many requests and print what was noticed, as JSON", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			config.URL = args[0]
			result, err := load.Run(cmd.Context(), config)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(result)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Requests, "requests", 0, "how many requests")
	flags.DurationVar(&config.Duration, "duration", 0, "or for how long")
	flags.IntVar(&config.Concurrency, "concurrency", 1, "how many at once")
	flags.IntVar(&config.Rate, "rate", 0, "instead: how many a second, whether the earlier ones are answered or not")
	flags.IntVar(&config.PerConn, "per-connection", 1, "requests on one connection")
	flags.DurationVar(&config.Timeout, "timeout", 0, "of one attempt")
	flags.IntVar(&config.Attempts, "attempts", 1, "after which a request has failed")
	flags.BoolVar(&config.Record, "record", false, "print every attempt, too")
	return cmd
}

// streamCommand is a client of the lab that holds on. It prints netload.Opened when all its streams have
// begun, holds them until SIGTERM, and then prints a stream.Result as JSON.
func streamCommand() *cobra.Command {
	var config stream.Config
	var source string
	cmd := &cobra.Command{
		Use: "stream tcp|udp ADDRESS:PORT", Short: "Hold many connections or flows, and print which broke, as JSON",
		Args: cobra.ExactArgs(2), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			config.Network = stream.Network(args[0])
			if config.Target, err = netip.ParseAddrPort(args[1]); err != nil {
				return err
			}
			if source != "" {
				if config.Source, err = netip.ParseAddr(source); err != nil {
					return err
				}
			}
			out := cmd.OutOrStdout()
			result, err := stream.Run(cmd.Context(), config, func() { fmt.Fprintln(out, netload.Opened) })
			if err != nil {
				return err
			}
			return json.NewEncoder(out).Encode(result)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Streams, "streams", 1, "how many")
	flags.DurationVar(&config.Interval, "interval", 0, "from block to block of one stream")
	flags.IntVar(&config.Size, "size", 0, "bytes of a block")
	flags.StringVar(&source, "source", "", "address that they come from")
	flags.DurationVar(&config.Patience, "patience", 0, "a stream without an answer for so long is broken")
	return cmd
}

// floodCommand is an attacker of the lab. It prints a flood.Result as JSON.
func floodCommand() *cobra.Command {
	var config flood.Config
	cmd := &cobra.Command{
		Use: "flood ADDRESS:PORT...", Short: "Send packets of spoofed sources, for a bounded time",
		Args: cobra.MinimumNArgs(1), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, text := range args {
				target, err := netip.ParseAddrPort(text)
				if err != nil {
					return err
				}
				config.Targets = append(config.Targets, target)
			}
			result, err := flood.Run(cmd.Context(), config)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(result)
		},
	}
	cmd.Flags().DurationVar(&config.Duration, "duration", 0, "for how long")
	cmd.Flags().StringVar((*string)(&config.Kind), "kind", string(flood.SYN), "of the packets: syn, udp, segment, fragment or ping")
	cmd.Flags().IntVar(&config.Rate, "rate", 0, "packets a second; 0: as many as one thread can send")
	return cmd
}

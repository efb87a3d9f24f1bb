// Package hollow is a kubelet whose machine is made of cardboard and whose everything else is real.
//
// It is upstream's kubelet (k8s.io/kubernetes/cmd/kubelet/app.Run): the same flags and configuration file, registration,
// leases, status, taints, authenticated server, /configz, volume manager, eviction manager and event recorder. Replaced are only
// the parts that would reach into the computer: the container runtime, cgroups, mounts and the machine's statistics.
//
// Kubemark's hollow node (k8s.io/kubernetes/cmd/kubemark/app) replaces more: it enters one level deeper, at RunKubelet, and so has
// no /configz, no authentication on its port, no reaction to failing heartbeats, no events, and an empty machine id.
package hollow

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version/verflag"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

const name = "hollow-kubelet"

// NewCommand is upstream's NewKubeletCommand with the machine's own flags (--hollow-*) added. Flags are parsed by hand, as
// upstream does it, because a flag must win over the configuration file, which is known only after parsing flags.
func NewCommand(ctx context.Context) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Long:               "The kubelet on a machine that is not there: upstream's flags and configuration, a fake container runtime.",
		DisableFlagParsing: true,
		SilenceUsage:       true,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, machine, err := parse(ctx, args)
			if err != nil {
				return err
			}
			logs.InitLogs()
			gates := utilfeature.DefaultFeatureGate
			if err := logsapi.ValidateAndApplyAsField(&server.Logging, gates, field.NewPath("logging")); err != nil {
				return fmt.Errorf("initialize logging: %w", err)
			}
			if err := validation.ValidateKubeletConfiguration(&server.KubeletConfiguration, gates); err != nil {
				return fmt.Errorf("invalid kubelet configuration: %w", err)
			}
			return run(genericapiserver.SetupSignalContext(), server, machine)
		},
	}
}

// parse turns a command line into the kubelet's flags and configuration, and the machine to pretend.
func parse(ctx context.Context, args []string) (*options.KubeletServer, *Machine, error) {
	flags, machine := options.NewKubeletFlags(), NewMachine()
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, fmt.Errorf("kubelet's default configuration: %w", err)
	}
	set := flagSet(flags, config, machine)
	if err := set.Parse(args); err != nil {
		return nil, nil, err
	}
	if set.NArg() > 0 {
		return nil, nil, fmt.Errorf("unknown argument %q", set.Arg(0))
	}
	verflag.PrintAndExitIfRequested()
	if flags.KubeletDropinConfigDirectory != "" {
		return nil, nil, fmt.Errorf("--config-dir is not supported here: put everything into --config")
	}
	if flags.KubeletConfigFile != "" {
		if config, err = load(ctx, flags.KubeletConfigFile, args); err != nil {
			return nil, nil, err
		}
	}
	if err := options.ValidateKubeletFlags(flags); err != nil {
		return nil, nil, fmt.Errorf("invalid kubelet flags: %w", err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(config.FeatureGates); err != nil {
		return nil, nil, fmt.Errorf("feature gates: %w", err)
	}
	return &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}, machine, nil
}

// load reads a KubeletConfiguration file and lets the flags in args win over it. It follows loadConfigFile and
// kubeletConfigFlagPrecedence of cmd/kubelet/app/server.go, which are not exported.
func load(ctx context.Context, file string, args []string) (*kubeletconfig.KubeletConfiguration, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, path)
	if err != nil {
		return nil, err
	}
	config, err := loader.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("kubelet configuration %s: %w", path, err)
	}
	addEvictionDefaults(config)
	fromFile := config.FeatureGates
	if err := flagSet(options.NewKubeletFlags(), config, NewMachine()).Parse(args); err != nil {
		return nil, err
	}
	for gate, on := range fromFile {
		if _, said := config.FeatureGates[gate]; !said {
			config.FeatureGates[gate] = on
		}
	}
	return config, nil
}

// addEvictionDefaults does what loading leaves out, because these defaults depend on the operating system.
func addEvictionDefaults(config *kubeletconfig.KubeletConfiguration) {
	if config.EvictionHard == nil {
		config.EvictionHard = eviction.DefaultEvictionHard
		return
	}
	if !config.MergeDefaultEvictionSettings {
		return
	}
	for signal, threshold := range eviction.DefaultEvictionHard {
		if _, said := config.EvictionHard[signal]; !said {
			config.EvictionHard[signal] = threshold
		}
	}
}

// flagSet is the kubelet's whole command line, bound to what it is given.
func flagSet(flags *options.KubeletFlags, config *kubeletconfig.KubeletConfiguration, machine *Machine) *pflag.FlagSet {
	set := pflag.NewFlagSet(name, pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	options.AddGlobalFlags(set)
	machine.AddFlags(set)
	return set
}

// run starts the container runtime and then the kubelet on it, and returns when ctx ends.
func run(ctx context.Context, server *options.KubeletServer, machine *Machine) error {
	server.ContainerRuntimeEndpoint = runtimeEndpoint(server.RootDirectory)
	if machine.runtime != runtimeBeside {
		runtime, err := StartRuntime(server.RootDirectory)
		if err != nil {
			return err
		}
		defer runtime.Stop()
	}
	if machine.runtime == runtimeOnly {
		<-ctx.Done()
		return nil
	}
	deps, err := dependencies(ctx, server, machine)
	if err != nil {
		return err
	}
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	return kubeletapp.Run(ctx, server, deps, utilfeature.DefaultFeatureGate)
}

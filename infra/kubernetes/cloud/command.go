package cloud

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
)

// Name is what --cloud-provider has to be.
const Name = "nodeproof"

// NewCommand is main of k8s.io/cloud-provider/sample/basic_main.go with a provider of our own: everything else of it is
// upstream's. Of its controllers there are the one that looks after lost machines and the one that sets new nodes up.
func NewCommand() *cobra.Command {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("unable to initialize command options: %v", err)
	}
	var answers, addresses, calls string
	flags := cliflag.NamedFlagSets{}
	own := flags.FlagSet(Name)
	own.StringVar(&answers, "nodeproof-answers", "", `JSON file that says of nodes, by name, "exists", "shut-down" or "gone".`)
	own.StringVar(&addresses, "nodeproof-addresses", "", "JSON file that gives nodes, by name, their addresses as a Node has them.")
	own.StringVar(&calls, "nodeproof-calls", "", "File that gets a line of JSON for each call of the provider.")
	initialize := func(completed *config.CompletedConfig) cloudprovider.Interface {
		if named := completed.ComponentConfig.KubeCloudShared.CloudProvider.Name; named != Name {
			klog.Fatalf("no cloud provider %q; there is: %s", named, Name)
		}
		provider, err := New(answers, addresses, calls)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return provider
	}
	constructors := map[string]app.ControllerInitFuncConstructor{
		names.CloudNodeController:          app.DefaultInitFuncConstructors[names.CloudNodeController],
		names.CloudNodeLifecycleController: app.DefaultInitFuncConstructors[names.CloudNodeLifecycleController],
	}
	return app.NewCloudControllerManagerCommand(opts, initialize, constructors, names.CCMControllerAliases(), flags, wait.NeverStop)
}

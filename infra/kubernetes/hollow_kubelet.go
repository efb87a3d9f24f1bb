package main

import (
	"context"

	"k8s.io/component-base/cli"

	"nodeproof.dev/components/hollow"
)

// The hollow kubelet reaches into packages of Kubernetes that promise nothing, and may not compile against another
// version. Without this file and the folder hollow everything else still builds, and the harness then builds without them.
func init() {
	programs["hollow-kubelet"] = func() int { return cli.Run(hollow.NewCommand(context.Background())) }
}

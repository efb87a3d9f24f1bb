//go:build !nohollow

package main

import (
	"context"

	"k8s.io/component-base/cli"

	"nodeproof.dev/components/hollow"
)

// The hollow kubelet reaches into packages of Kubernetes that promise nothing, and may not compile against another
// version. The tag nohollow leaves it out, and everything else still builds.
func init() {
	programs["hollow-kubelet"] = func() int { return cli.Run(hollow.NewCommand(context.Background())) }
}

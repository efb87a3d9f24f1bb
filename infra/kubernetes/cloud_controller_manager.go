package main

import (
	"k8s.io/component-base/cli"

	"nodeproof.dev/components/cloud"
)

// Like the hollow kubelet, the cloud controller manager may not compile against another version, which then is built without.
func init() {
	programs["cloud-controller-manager"] = func() int { return cli.Run(cloud.NewCommand()) }
}

// Command components is every program of a Kubernetes control plane and node in one file.
//
// It looks at the name it was called by (a link named kubelet is the kubelet), and otherwise at its first argument
// ("components kubelet --version"). One file links the shared packages once: seven programs cost one link and 140 MB.
//
// Upstream's programs are hooked up in upstream.go as their own cmd/<name> does it; only hollow-kubelet is ours.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "time/tzdata" // upstream's API server and controller manager carry it too: time zones of CronJobs

	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the API clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
)

// programs maps a role to its main function. A program either ends the process itself or returns an exit code.
var programs = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          runAPIServer,
	"kube-controller-manager": runControllerManager,
	"kube-proxy":              runProxy,
	"kube-scheduler":          runScheduler,
	"kubeadm":                 runKubeadm,
	"kubelet":                 runKubelet,
	"kubectl":                 runKubectl,
}

func main() {
	role, args := choose(os.Args)
	run, known := programs[role]
	if !known {
		fmt.Fprintf(os.Stderr, "no program %q; there are: %s\n", role, strings.Join(slices.Sorted(maps.Keys(programs)), " "))
		os.Exit(2)
	}
	os.Args = args // cobra and etcd read the command line from here
	os.Exit(run())
}

// choose splits a command line into the role it asks for and the command line that role should see.
func choose(args []string) (role string, rest []string) {
	name := filepath.Base(args[0])
	if _, known := programs[name]; known || len(args) < 2 {
		return name, args
	}
	return args[1], args[1:]
}

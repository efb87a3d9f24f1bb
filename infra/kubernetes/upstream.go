package main

import (
	"context"
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plugins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// runEtcd is go.etcd.io/etcd/server/v3/main.go. etcd ends the process itself when it fails.
func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

// runAPIServer is k8s.io/kubernetes/cmd/kube-apiserver/apiserver.go.
func runAPIServer() int { return cli.Run(apiserver.NewAPIServerCommand()) }

// runControllerManager is k8s.io/kubernetes/cmd/kube-controller-manager/controller-manager.go.
func runControllerManager() int { return cli.Run(controllermanager.NewControllerManagerCommand()) }

// runScheduler is k8s.io/kubernetes/cmd/kube-scheduler/scheduler.go.
func runScheduler() int { return cli.Run(scheduler.NewSchedulerCommand()) }

// runProxy is k8s.io/kubernetes/cmd/kube-proxy/proxy.go.
func runProxy() int { return cli.Run(proxy.NewProxyCommand()) }

// runKubelet is k8s.io/kubernetes/cmd/kubelet/kubelet.go.
func runKubelet() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) }

// runKubeadm is k8s.io/kubernetes/cmd/kubeadm/kubeadm.go, whose error helper has another package in older versions.
func runKubeadm() int {
	if err := kubeadm.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// runKubectl is k8s.io/kubernetes/cmd/kubectl/kubectl.go: the verbosity counts while the command is still being built,
// and errors are printed the way kubectl's users know.
func runKubectl() int {
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) // upstream drops the error too: a bad -v is told by the flag itself
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
